"""Files are read by pages around the focus; a late answer does not replace what was chosen since."""

from collections.abc import Awaitable, Callable
from typing import Any

import trio
import trio.testing

from haptic_trio.cli.terminal.files import PAGE, Files


class Lines:
    """A controller with a file of *total* lines, whose answers wait while *gate* is not set."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.offsets: list[int] = []
        self.gate = trio.Event()
        self.gate.set()
        self.started: list[Callable[[], Awaitable[None]]] = []
        self.files = Files(self.ask, shown=lambda: None, moved=lambda _position: None, start=self.started.append)

    async def ask(self, topic: str, **arguments: Any) -> Any:
        """Return lines, or one hit."""
        await self.gate.wait()
        if topic == "diff":
            return {"before": 1, "after": 2, "added": 1, "removed": 0, "lines": [{"sign": "+", "line": 3, "text": "x"}]}
        if topic == "search":
            line = {"path": "maps/a.map", "line": 4, "text": "hit", "is_secret": True}
            return {"text": "x", "count": 1, "hits": [{"line": line, "made_by": {"object": None}}]}
        offset = arguments["offset"]
        self.offsets.append(offset)
        numbers = range(offset + 1, min(offset + PAGE, self.total) + 1)
        lines = [{"line": number, "text": f"line {number}"} for number in numbers]
        return {"path": arguments["path"], "total": self.total, "offset": offset, "lines": lines, "files": ["a", "b"]}


async def test_moving_near_the_end_of_the_page_reads_the_next_one() -> None:
    lines = Lines(1000)
    await lines.files.load()

    lines.files.walker.set_focus(PAGE - 10)
    (load,) = lines.started
    await load()

    assert lines.offsets == [0, PAGE - 10 - PAGE // 2]
    assert lines.files.walker.row is not None
    assert lines.files.walker.row.key == f"haproxy.cfg:{PAGE - 9}"


async def test_a_late_page_does_not_replace_a_search() -> None:
    lines = Lines(10)
    lines.gate = trio.Event()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lines.files.load)
        nursery.start_soon(lines.files.search, "x")
        await trio.testing.wait_all_tasks_blocked()
        lines.gate.set()

    assert lines.files.walker.row is not None
    assert lines.files.walker.row.key == "maps/a.map:4"
    await lines.files.search("")
    assert lines.files.walker.total == 10


async def test_the_last_change_is_a_card() -> None:
    card = await Lines(1).files.change()

    assert [line.plain for line in card.lines(80)] == ["1 lines added, 0 removed", "+     3 x"]
