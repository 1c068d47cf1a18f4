"""A flame graph as a picture: how wide a function is says how often it was on a stack."""

import zlib
from collections.abc import Iterator, Mapping
from html import escape

import msgspec

WIDTH = 1600
ROW = 17
MARGIN = 10
TITLE = 30
LETTER = 6.6
"""Pixels that a letter takes."""
LEAST = 0.4
"""Pixels below which a function is left out."""

Stacks = Mapping[tuple[str, ...], int]

_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">
<style>text {{ font: 11px monospace; }} rect {{ stroke: white; stroke-width: 0.5; }}</style>
<rect width="{width}" height="{height}" fill="white"/>
<text x="{margin}" y="20" style="font-size: 14px">{title}: {total} samples</text>
"""
_BOX = """\
<g><title>{name}: {count} ({share:.1%})</title><rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{high}" \
fill="{colour}"/><text x="{inner:.1f}" y="{base}">{text}</text></g>
"""


class _Node(msgspec.Struct):
    name: str
    count: int = 0
    children: "dict[str, _Node]" = {}


def draw_flame(stacks: Stacks, *, title: str) -> str:
    """Return the SVG text of *stacks*: functions, the outermost first, and how often each stack was seen."""
    root = _Node("all")
    for stack, count in stacks.items():
        node = root
        node.count += count
        for name in stack:
            node = node.children.setdefault(name, _Node(name))
            node.count += count
    scale = (WIDTH - 2 * MARGIN) / max(1, root.count)
    boxes = list(_boxes(root, MARGIN, 0, scale, root.count))
    depth = max((level for level, _text in boxes), default=0)
    height = TITLE + (depth + 1) * ROW + MARGIN
    head = _HEAD.format(width=WIDTH, height=height, margin=MARGIN, title=escape(title), total=root.count)
    return head + "".join(text for _level, text in boxes) + "</svg>\n"


def _boxes(node: _Node, x: float, level: int, scale: float, total: int) -> Iterator[tuple[int, str]]:
    """Yield the boxes of *node* and of what it called, each with its level: the outermost on top."""
    wide = node.count * scale
    if wide < LEAST:
        return
    y = TITLE + level * ROW
    letters = int((wide - 4) / LETTER)
    text = _BOX.format(
        name=escape(node.name),
        count=node.count,
        share=node.count / max(1, total),
        x=x,
        y=y,
        wide=wide,
        high=ROW - 1,
        colour=_colour(node.name),
        inner=x + 2,
        base=y + 12,
        text=escape(node.name[:letters]) if letters > 2 else "",
    )
    yield level, text
    for child in sorted(node.children.values(), key=lambda child: child.name):
        yield from _boxes(child, x, level + 1, scale, total)
        x += child.count * scale


def _colour(name: str) -> str:
    """Return the same warm colour for the same module each time; modules of haptic-trio are redder."""
    module = name.partition(" ")[0]
    shade = zlib.crc32(module.encode()) % 60
    return f"rgb(250,{130 + shade},{60 + shade})" if "/" in module else f"rgb(225,{190 + shade},{110 + shade})"
