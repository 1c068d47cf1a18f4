import itertools
import xml.etree.ElementTree as ET

import pytest

from tools.bench.figures.chart import BOTTOM, HEIGHT, LINE, TOP, Chart, Curve, draw_chart, shown

SVG = "{http://www.w3.org/2000/svg}"


def chart(*curves: Curve) -> Chart:
    return Chart(title="Time & cost", unit="ms", objects="Ingresses", curves=curves)


def texts(picture: ET.Element, kind: str) -> list[str]:
    return [text.text or "" for text in picture.iter(f"{SVG}text") if kind in (text.get("class") or "").split()]


def test_a_chart_has_axes_a_legend_and_its_figures_as_text() -> None:
    first = Curve(name="endpoint", points=[(100, 7.0), (1000, 8.04), (10_000, 8.5)])
    floor = Curve(name="floor <hand>", points=[(100, 1.0), (10_000, 2.0)], is_floor=True)

    picture = ET.fromstring(draw_chart(chart(first, floor)))

    assert [title.text for title in picture.findall(f"{SVG}title")] == ["Time & cost"]
    assert picture.findtext(f"{SVG}desc") == (
        "In ms, over Ingresses. endpoint: 7 at 100, 8.04 at 1,000, 8.5 at 10,000; floor <hand>: 1 at 100, 2 at 10,000."
    )
    assert texts(picture, "middle") == ["100", "1,000", "10,000", "Ingresses"]
    assert texts(picture, "end") == ["0", "2", "4", "6", "8", "10", "ms"]
    assert texts(picture, "name") == ["endpoint", "floor <hand>"]
    assert texts(picture, "value") == ["8.5", "2"]
    dashed = [path.get("stroke") for path in picture.iter(f"{SVG}path") if path.get("stroke-dasharray")]
    assert dashed == ["var(--c1)"] * 2


def test_numbers_of_objects_have_a_logarithmic_scale() -> None:
    drawn = draw_chart(chart(Curve(name="one", points=[(100, 1.0), (1000, 1.0), (10_000, 1.0)])))

    circles = [float(circle.get("cx") or 0) for circle in ET.fromstring(drawn).iter(f"{SVG}circle")]
    assert circles[1] - circles[0] == pytest.approx(circles[2] - circles[1])


def test_the_values_beside_close_lines_do_not_cover_each_other() -> None:
    close = [Curve(name=str(number), points=[(10, 100.0), (20, 0.01 * number)]) for number in range(4)]

    picture = ET.fromstring(draw_chart(chart(*close)))

    places = [float(text.get("y") or 0) for text in picture.iter(f"{SVG}text") if text.get("class") == "value"]
    assert all(after - before >= LINE for before, after in itertools.pairwise(places))
    assert places[0] > TOP
    assert places[-1] <= HEIGHT - BOTTOM + LINE


def test_both_themes_have_a_background_and_colours() -> None:
    drawn = draw_chart(chart(Curve(name="one", points=[(10, 1.0)])))

    light, dark = drawn.partition("prefers-color-scheme:dark")[::2]
    for name in ("panel", "text", "grid", "c0"):
        assert f"--{name}:#" in light
        assert f"--{name}:#" in dark


def test_a_chart_without_figures_is_an_error() -> None:
    with pytest.raises(ValueError, match="Time & cost: no figures"):
        draw_chart(chart(Curve(name="one", points=[])))


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.0123, "0.012"), (2.5, "2.5"), (4.464, "4.46"), (31.25, "31.2"), (4463.9, "4,464")]
)
def test_figures_have_few_digits(value: float, text: str) -> None:
    assert shown(value) == text
