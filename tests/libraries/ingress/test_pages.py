"""The pages of the libraries say what the libraries are."""

import re
from pathlib import Path

import pytest

from haptic_trio.config.libraries import library_names, load_library, merge
from haptic_trio.config.model import Config
from haptic_trio.config.templates import template_set
from tools.docgen.libraries import MARKER, library_page, summary_of, write_pages

PAGES = Path(__file__).parents[3] / "docs" / "libraries"
_INCLUDED = re.compile(r'(?:include_snippets |snippets\()"([^"]+)"')


@pytest.mark.parametrize("name", library_names())
def test_page_is_current(name: str) -> None:
    head, _, below = (PAGES / f"{name}.md").read_text("utf-8").partition(MARKER)

    assert head.startswith(f"# {name}\n")
    hint = "run: python -m tools.docgen.libraries docs/libraries"
    assert below.strip() == library_page(name).strip(), hint


def test_only_what_is_below_the_marker_is_written(tmp_path: Path) -> None:
    for name in library_names():
        (tmp_path / f"{name}.md").write_text(f"# {name} by hand\n{MARKER}\nold\n")

    write_pages(tmp_path)

    for name in library_names():
        text = (tmp_path / f"{name}.md").read_text()
        assert text.startswith(f"# {name} by hand\n{MARKER}\n")
        assert "old" not in text.splitlines()


def test_every_extension_point_that_is_included_is_declared_and_the_other_way_round() -> None:
    libraries = [load_library(name) for name in library_names()]
    sources = (template_set(merge(library, user=Config())).texts.values() for library in libraries)
    texts = [text for texts in sources for text in texts]
    included = {pattern for text in texts for pattern in _INCLUDED.findall(text)}

    assert included == {point for library in libraries for point in library.extension_points}


@pytest.mark.parametrize(
    ("template", "summary"),
    [
        ("{# What it is. And more. #}\nx\n", "What it is."),
        ("{#\n  Over two\n  lines: this\n\n  and that #}\n", "Over two lines: this"),
        ("x {# not at the beginning #}", ""),
        ("", ""),
    ],
)
def test_a_template_says_itself_what_it_is(template: str, summary: str) -> None:
    assert summary_of(template) == summary
