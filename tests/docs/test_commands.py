"""Commands that the pages name are commands of the program, with options that there are."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from haptic_trio.cli.app import cli
from tests.docs.console import steps_of
from tests.docs.markdown import ROOT, all_pages, blocks_of, prose_of, shown
from tools.docgen.commands import commands_in as all_commands

_INLINE = re.compile(r"`(haptic-trio [^`]+)`")
_TARGET = re.compile(r"`make (?P<target>[a-z][a-z-]+)")


def commands_in(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of *page* that call the program, each with its number."""
    for number, line in prose_of(page):
        yield from ((number, match[1]) for match in _INLINE.finditer(line))
    for block in blocks_of(page):
        if block.language == "console":
            yield from ((block.line, command) for command, _output in steps_of(block.text))
        elif block.language in {"", "text", "sh", "bash"}:
            text = block.text.replace("\\\n", " ")
            yield from ((block.line, line.removeprefix("$ ")) for line in text.splitlines())


def faults_of(line: str) -> Iterator[str]:
    """Yield what is wrong with the call of the program that *line* begins with, if it does."""
    # What stands behind is another command, a remark or the rest of a drawing.
    words = re.split(r"\s[|>&#…]|\s{2,}(?=[a-z])|──", f"{line.strip()} ")[0].split()
    if words[:1] != ["haptic-trio"]:
        return
    command: click.Command = cli
    known: set[str] = {"--help", "-h"}
    for word in words[1:]:
        known |= {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        if word.startswith("-"):
            name = word.partition("=")[0].rstrip(",.;:)]")
            if name not in known and name != "--":
                yield f"{' '.join(words)}: there is no option {name}"
        elif isinstance(command, click.Group) and (inner := command.get_command(click.Context(command), word)):
            command = inner
        elif command is cli and re.fullmatch(r"[a-z]+", word):
            yield f"{' '.join(words)}: there is no command {word}"


@pytest.mark.parametrize("page", all_pages(), ids=shown)
def test_commands_of_a_page_exist(page: Path) -> None:
    faults = [f"{shown(page)}:{number}: {fault}" for number, line in commands_in(page) for fault in faults_of(line)]
    assert not faults, "\n".join(faults)


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"(?m)^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8")))
    named = {
        (shown(page), match["target"])
        for page in all_pages()
        for _number, line in prose_of(page)
        for match in _TARGET.finditer(line)
    }
    assert {(page, target) for page, target in named if target not in targets} == set()


def test_templates_of_the_chart_that_are_named_exist() -> None:
    shown_only = re.compile(r"--show-only (\S+)")
    named = {match[1] for page in all_pages() for match in shown_only.finditer(page.read_text("utf-8"))}
    assert {name for name in named if not (ROOT / "chart" / name).is_file()} == set()


def test_the_list_of_commands_has_a_whole_line_for_each() -> None:
    for path, command in all_commands("haptic-trio", cli):
        if isinstance(command, click.Group):
            listed = CliRunner().invoke(cli, [*path.split()[1:], "--help"]).output.partition("Commands:")[2]
            assert "..." not in listed


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("haptic-trio rendr", "no command rendr"),
        ("haptic-trio render --outptu json", "no option --outptu"),
        ("haptic-trio debug tasks --follow", "no option --follow"),
    ],
)
def test_a_call_that_is_wrong_is_found(line: str, fault: str) -> None:
    assert fault in next(faults_of(line))


@pytest.mark.parametrize(
    "line",
    [
        "haptic-trio debug --url X events --follow",
        "haptic-trio serve --manifests DIR  keep HAProxy in step",
        "haptic-trio render --manifests DIR --strict > x",
        "echo haptic-trio nothing",
    ],
)
def test_a_call_that_is_right_passes(line: str) -> None:
    assert list(faults_of(line)) == []
