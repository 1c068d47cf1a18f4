"""A recording shows what commands write, and nothing else."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tools.site.recording import COLUMNS, ROWS, Line, draw, record

SVG = "{http://www.w3.org/2000/svg}"


def rows_of(picture: str) -> list[str]:
    return ["".join(row.itertext()) for row in ET.fromstring(picture).iter(f"{SVG}text")]


def test_rows_appear_at_their_time() -> None:
    picture = draw([Line(1.0, "$ a"), Line(2.5, "b <&> c")])

    assert rows_of(picture) == ["$ a", "b <&> c"]
    delays = [row.get("style") for row in ET.fromstring(picture).iter(f"{SVG}text")]
    assert delays == ["animation-delay:1.00s", "animation-delay:2.50s"]


def test_colours_become_classes_and_other_codes_vanish() -> None:
    picture = draw([Line(0, "\x1b[1;32mgreen\x1b[0m plain\x1b[K \x1b[2mdim\x1b[0m")])

    spans = [(span.get("class"), span.text) for span in ET.fromstring(picture).iter(f"{SVG}tspan")]
    assert spans == [("b c2", "green"), ("c0", "dim")]
    assert rows_of(picture) == ["green plain dim"]


def test_a_long_line_goes_on_in_the_next_row_with_its_colour() -> None:
    picture = draw([Line(0, "\x1b[31m" + "x" * (COLUMNS + 3))])

    assert rows_of(picture) == ["x" * COLUMNS, "xxx"]
    assert [span.get("class") for span in ET.fromstring(picture).iter(f"{SVG}tspan")] == ["c1", "c1"]


def test_more_rows_than_the_screen_has_scroll() -> None:
    picture = draw([Line(min(number, ROWS), "x") for number in range(ROWS + 3)])

    assert re.findall(r"([\d.]+%|to)\{transform:translateY\(([^)]*)\)", picture) == [
        ("99.62%", "-57.0px"),
        ("to", "-57.0px"),
    ]
    assert "to{transform:translateY(0.0px)}" in draw([Line(number, "x") for number in range(ROWS)])


@pytest.mark.process
def test_commands_are_run_in_one_shell_and_in_order(tmp_path: Path) -> None:
    lines = record(["a=1; echo one > file", 'echo "$a"; cat file', "sleep 600 &"], tmp_path)

    assert [line.text.replace("\x1b[32m", "").replace("\x1b[0m", "") for line in lines] == [
        "$ a=1; echo one > file",
        '$ echo "$a"; cat file',
        "1",
        "one",
        "$ sleep 600 &",
    ]
    assert [line.at for line in lines] == sorted(line.at for line in lines)
