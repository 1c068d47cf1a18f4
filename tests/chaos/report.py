"""Tables of experiments and measurements."""

from collections.abc import Sequence
from typing import Final

from tests.chaos.world import World

ROW: Final = "chaos-row"
HEADINGS: Final = ("experiment", "HAProxy", "faults", "requests", "cut", "outage", "lost", "wrong", "recovery", "seed")
_NOTES: Final = """
cut: connections to a process when it was killed or replaced, and kept connections that were closed before a request
outage: requests while no HAProxy was alive
lost: requests without an answer, or with another status than 200, which an instance could have answered
recovery: seconds from the end of a fault until every instance had the newest changes, median and longest
"""


def row_of(name: str, version: str, world: World, seed: int) -> list[str]:
    """Return the figures of an experiment."""
    clients = world.clients
    dark = sum(loss.is_within(world.dark) for loss in clients.lost)
    times = sorted(world.recoveries)
    recovery = f"{times[len(times) // 2]:.1f}, {times[-1]:.1f}" if times else "-"
    cut = len(clients.lost) - len(world.lost) - dark + clients.closed
    counts = (len(times), clients.requests, cut, dark, len(world.lost), len(clients.wrong))
    return [name, version, *map(str, counts), recovery, str(seed)]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return *rows* below `HEADINGS`, aligned, with notes."""
    lines = [HEADINGS, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    return "\n".join(_aligned(line, widths) for line in lines) + "\n" + _NOTES


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    cells = [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
    return "  ".join(cells)


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return *rows* below *headings* as a Markdown table of numbers."""
    lines = [headings, ["---:"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
