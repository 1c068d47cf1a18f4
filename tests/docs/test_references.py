"""The generated pages are those of the program, and say all of it."""

import re

import click
import pytest

from haptic_trio.cli.app import cli
from haptic_trio.templating.filters.registry import FILTERS
from haptic_trio.templating.functions import GLOBALS
from tests.docs.markdown import DOCS, ROOT
from tools.docgen.commands import commands_in
from tools.docgen.pages import PAGES, page

REFERENCE = DOCS / "reference"


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_current(name: str) -> None:
    assert (REFERENCE / name).read_text("utf-8") == page(name), "run: make docs"


def test_every_generated_page_is_written_by_one_target() -> None:
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("\ndocs:")[2].partition("\n\n")[0]
    generated = {
        found[1]
        for path in DOCS.rglob("*.md")
        for found in re.finditer(r"<!-- .*python -m (tools[\w.]+)", path.read_text("utf-8"))
    }
    assert {module for module in generated if module not in recipe} == set()
    assert "tools.docgen.pages docs/reference" in recipe


def test_every_subcommand_and_option_is_documented() -> None:
    text = page("cli.md")
    for path, command in commands_in("haptic-trio", cli):
        section = text.partition(f"\n## {path}\n")[2].partition("\n## ")[0]
        assert section, path
        for option in command.params:
            if isinstance(option, click.Option):
                assert f"`{option.opts[0]}`" in section, f"{path} {option.opts}"


def test_every_filter_and_function_is_documented() -> None:
    text = page("filters.md")
    missing = [name for name in [*FILTERS, *GLOBALS] if not re.search(rf"`{re.escape(name)}[`(.]", text)]
    assert missing == []


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    for name in PAGES:
        width = 0
        for line in page(name).splitlines():
            cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
            assert not (width and cells) or cells == width, f"{name}: {line}"
            width = cells
