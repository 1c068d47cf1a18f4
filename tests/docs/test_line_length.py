"""Lines of prose in the documentation have at most 120 characters, so that changes of a page are readable."""

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
LONGEST: Final = 120
PAGES: Final = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("chart/*.md")})
GENERATED: Final = re.compile(r"<!-- (Below this line|Made from|goals|figures|sync|requests|profile)")


def long_lines(text: str) -> list[int]:
    """Return the numbers of too long lines that are neither generated, nor tables, headings, code or one long word."""
    found = []
    in_code = is_generated = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif GENERATED.match(line):
            is_generated = True
        elif line.startswith("<!-- end"):
            is_generated = False
        elif in_code or is_generated or line.lstrip().startswith(("|", "#", "<", "![", ">")):
            continue
        elif len(line) > LONGEST and len(line.split()) > 3:
            found.append(number)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_lines_of_prose_are_short(page: Path) -> None:
    assert long_lines(page.read_text()) == []


def test_long_lines_of_prose_are_found() -> None:
    line = "word " * 30
    assert long_lines(f"{line}\n| {line}\n```\n{line}\n```\n{line}\n") == [1, 6]
