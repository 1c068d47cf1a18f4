"""A line chart as a picture: figures over the number of objects, which has a logarithmic scale."""

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

import msgspec

WIDTH: Final = 720
HEIGHT: Final = 300
LEFT, RIGHT, TOP, BOTTOM = 64, 84, 78, 46
"""Space beside the plot: for the axes, for the last value of each line, and for title and legend."""
LINE: Final = 15
"""Least distance of two texts below each other."""
LETTER: Final = 6.6
STEPS: Final = (1, 2, 2.5, 5, 10)
MOST_TICKS: Final = 6
DASH: Final = ' stroke-dasharray="5 4"'

_LIGHT: Final = {
    "panel": "#ffffff", "text": "#1f2328", "faint": "#59636e", "grid": "#d8dee4",
    "c0": "#0b62b0", "c1": "#b8450b", "c2": "#0a7a4f", "c3": "#8a3f9e", "c4": "#59636e",
}  # fmt: skip
_DARK: Final = {
    "panel": "#161b22", "text": "#e6edf3", "faint": "#9198a1", "grid": "#30363d",
    "c0": "#6cb6ff", "c1": "#ff9d66", "c2": "#57d18f", "c3": "#d9a3ec", "c4": "#9198a1",
}  # fmt: skip
# The panel has a background of its own, so the picture is readable on a page of any colour.
_HEAD: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" \
aria-labelledby="title description">
<title id="title">{title}</title>
<desc id="description">{description}</desc>
<style>
svg{{{light}}}
@media (prefers-color-scheme:dark){{svg{{{dark}}}}}
text{{font:12px system-ui,"Segoe UI",Helvetica,Arial,sans-serif;fill:var(--text)}}
.title{{font-size:15px;font-weight:600}}.axis{{fill:var(--faint)}}.grid{{stroke:var(--grid);stroke-width:1}}
.line{{fill:none;stroke-width:2}}.middle{{text-anchor:middle}}.end{{text-anchor:end}}
</style>
<rect width="{width}" height="{height}" rx="6" fill="var(--panel)"/>
<text class="title" x="16" y="26">{title}</text>
"""


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]
    """Number of objects, and figure; the numbers ascend."""
    is_floor: bool = False
    """Drawn with dashes."""


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Curves of one unit."""

    title: str
    unit: str
    objects: str
    """Name of what the horizontal axis counts."""
    curves: Sequence[Curve]


def draw_chart(chart: Chart) -> str:
    """Return the SVG text of *chart*; raises ValueError if there is no point."""
    points = [point for curve in chart.curves for point in curve.points]
    if not points:
        raise ValueError(f"{chart.title}: no figures")
    scale = _Scale([x for x, _ in points], [y for _, y in points])
    head = _HEAD.format(
        width=WIDTH, height=HEIGHT, title=escape(chart.title), description=escape(_describe(chart)),
        light=_properties(_LIGHT), dark=_properties(_DARK),
    )  # fmt: skip
    parts = [
        head,
        *_grid(chart, scale),
        *_legend(chart.curves),
    ]
    for number, curve in enumerate(chart.curves):
        parts += _line(curve, number, scale)
    parts += _last_values(chart.curves, scale)
    return "".join(parts) + "</svg>\n"


class _Scale:
    """Position of figures in the picture."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        self.xs = sorted(set(xs))
        step = _step(max(ys))
        self.ticks = [step * number for number in range(math.ceil(max(ys) / step * 1.0001) + 1)]
        self._low, self._high = math.log10(self.xs[0]), math.log10(self.xs[-1])

    def x(self, value: float) -> float:
        """Return the horizontal position; that of the middle if there is one number only."""
        span = self._high - self._low
        share = (math.log10(value) - self._low) / span if span else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return the vertical position, which grows downwards."""
        return HEIGHT - BOTTOM - value / self.ticks[-1] * (HEIGHT - TOP - BOTTOM)


def _step(highest: float) -> float:
    """Return the distance of the lines of the grid: 1, 2, 2.5 or 5 times a power of ten."""
    highest = highest or 1.0
    power = 10.0 ** math.floor(math.log10(highest / MOST_TICKS))
    return power * next(step for step in STEPS if power * step * MOST_TICKS >= highest)


def shown(value: float) -> str:
    """Return *value* with three digits at least, and without a fraction from 100 up."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}" if value < 1 else f"{value:.3g}"


def _text(words: str, x: float, y: float, kind: str, colour: str = "") -> str:
    style = f' style="fill:{colour}"' if colour else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{style}>{escape(words)}</text>\n'


def _grid(chart: Chart, scale: _Scale) -> Iterator[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for tick in scale.ticks:
        y = scale.y(tick)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>\n'
        yield _text(shown(tick), LEFT - 8, y + 4, "axis end")
    for number in scale.xs:
        x = scale.x(number)
        yield f'<path class="grid" d="M{x:.1f} {bottom}v5"/>\n'
        yield _text(f"{number:,.0f}", x, bottom + 19, "axis middle")
    yield _text(chart.objects, (LEFT + right) / 2, HEIGHT - 8, "axis middle")
    yield _text(chart.unit, LEFT - 8, TOP - 12, "axis end")


def _legend(curves: Sequence[Curve]) -> Iterator[str]:
    x = float(16)
    for number, curve in enumerate(curves):
        dash = DASH if curve.is_floor else ""
        yield f'<path class="line" stroke="{_colour(number)}"{dash} d="M{x:.1f} 44h22"/>\n'
        yield _text(curve.name, x + 28, 48, "name")
        x += 28 + len(curve.name) * LETTER + 16


def _line(curve: Curve, number: int, scale: _Scale) -> Iterator[str]:
    places = [(scale.x(x), scale.y(y)) for x, y in curve.points]
    if not places:
        return
    dash = DASH if curve.is_floor else ""
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    yield f'<path class="line" stroke="{_colour(number)}"{dash} d="M{path}"/>\n'
    for (x, y), (objects, figure) in zip(places, curve.points, strict=True):
        text = escape(f"{curve.name}, {objects:,.0f}: {shown(figure)}")
        circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{_colour(number)}">'
        yield f"{circle}<title>{text}</title></circle>\n"


def _last_values(curves: Sequence[Curve], scale: _Scale) -> Iterator[str]:
    """Yield the last figure of each curve, from the highest down, none above another."""
    ends = sorted(
        (scale.y(curve.points[-1][1]), number, curve.points[-1]) for number, curve in enumerate(curves) if curve.points
    )
    last = -math.inf
    for rank, (y, number, (x, figure)) in enumerate(ends):
        # The texts below this one need their place in the plot, too.
        lowest = HEIGHT - BOTTOM - LINE * (len(ends) - 1 - rank)
        place = max(last + LINE, min(y, lowest))
        last = place
        yield _text(shown(figure), scale.x(x) + 9, place + 4, "value", _colour(number))


def _describe(chart: Chart) -> str:
    """Return the figures as text, for those who cannot see the picture."""
    curves = (
        f"{curve.name}: " + ", ".join(f"{shown(figure)} at {objects:,.0f}" for objects, figure in curve.points)
        for curve in chart.curves
    )
    return f"In {chart.unit}, over {chart.objects}. {'; '.join(curves)}."


def _properties(colours: Mapping[str, str]) -> str:
    return ";".join(f"--{name}:{colour}" for name, colour in colours.items())


def _colour(number: int) -> str:
    return f"var(--c{number % 5})"
