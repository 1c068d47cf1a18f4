"""The flame graph."""

import xml.etree.ElementTree as ET

from tools.bench.figures.flame import MARGIN, WIDTH, draw_flame

SVG = "{http://www.w3.org/2000/svg}"


def widths(text: str) -> dict[str, float]:
    found = {}
    for group in ET.fromstring(text).iter(f"{SVG}g"):
        title, box = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None
        assert box is not None
        assert title.text is not None
        found[title.text.partition(":")[0]] = float(box.attrib["width"])
    return found


def test_a_function_is_as_wide_as_it_was_often_on_a_stack() -> None:
    drawn = widths(draw_flame({("main", "render"): 3, ("main", "parse"): 1}, title="a <b>"))

    whole = WIDTH - 2 * MARGIN
    assert drawn == {"all": whole, "main": whole, "render": whole * 0.75, "parse": whole * 0.25}


def test_names_are_text_and_nothing_seen_is_an_empty_picture() -> None:
    assert "lib <lambda>" in widths(draw_flame({("lib <lambda>",): 1}, title="t"))
    assert widths(draw_flame({}, title="t")) == {"all": 0.0} or widths(draw_flame({}, title="t")) == {}
