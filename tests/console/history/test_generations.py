"""Differences of the last generations are kept without viewers, and their number is bounded."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from haptic_trio.chunked import Paged, Piece, Shelf
from haptic_trio.console.configuration import NotNowError
from haptic_trio.console.history import generations
from haptic_trio.console.history.differences import Text
from haptic_trio.console.history.generations import MOST_GENERATIONS, History, UnknownGenerationError
from haptic_trio.messages import ConfigPrepared, Phases, Reason
from tests.support.components.endpoints import generation


class Configuration:
    """A configuration that is changed line by line."""

    def __init__(self) -> None:
        self.shelf = Shelf((number, Piece(f"line {number}\n")) for number in range(1000))
        self.is_behind = False

    async def consult(self, _ask: Callable[..., Any]) -> Text:
        """Return the present text."""
        await trio.lowlevel.checkpoint()
        if self.is_behind:
            raise NotNowError("not rendered yet")
        paged: Paged[Piece] = self.shelf.paged()
        return Text(paged, {page: frozenset() for page in paged.pages})

    def change(self, line: int, text: str) -> None:
        """Replace a line."""
        self.shelf.put(line, Piece(text + "\n"))


def prepared(correlation: str) -> ConfigPrepared:
    """Return the message about a new generation."""
    return ConfigPrepared(correlation=correlation, reason=Reason.CHANGED, generation=generation("a"), phases=Phases())


async def test_the_last_generations_are_kept() -> None:
    configuration = Configuration()
    history = History(configuration.consult)
    await history.record()
    for number in range(MOST_GENERATIONS + 5):
        configuration.change(7, f"change {number}")
        await history.record()
        # Nothing has changed since.
        await history.record()

    kept = history.generations()
    assert [one.number for one in kept] == list(range(7, 7 + MOST_GENERATIONS))
    assert (kept[0].added, kept[0].removed) == (1, 1)
    assert [(one.sign, one.text) for one in history.diff(7).lines] == [("-", "change 4"), ("+", "change 5")]
    assert history.diff() == history.diff(kept[-1].number)
    with pytest.raises(UnknownGenerationError, match="kept: 7 to 26"):
        history.diff(6)


async def test_many_changes_that_follow_closely_share_entries(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    configuration = Configuration()
    reads: list[float] = []

    async def run_here(compare: Callable[..., Any], *texts: Text) -> Any:
        await trio.lowlevel.checkpoint()
        return compare(*texts)

    async def consult(ask: Callable[..., Any]) -> Text:
        reads.append(trio.current_time())
        return await configuration.consult(ask)

    history = History(consult)
    # This clock does not wait for threads.
    monkeypatch.setattr(trio.to_thread, "run_sync", run_here)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(history.run)
        for number in range(100):
            configuration.change(7, f"change {number}")
            history.observe(prepared(f"1-{number}"))
            await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    await history.record()

    # The first five, and then one in each two of ten seconds.
    assert 9 <= len(reads) <= 12
    assert history.diff().lines[-1].text == "change 99"


async def test_a_generation_that_cannot_be_read_is_part_of_the_next_entry() -> None:
    configuration = Configuration()
    history = History(configuration.consult)
    await history.record()
    assert history.diff().before == 0
    configuration.change(7, "one")
    configuration.is_behind = True
    await history.record()
    assert history.generations() == ()
    configuration.change(8, "other")
    configuration.is_behind = False
    await history.record()

    assert [one.text for one in history.diff().lines if one.sign == "+"] == ["one", "other"]


async def test_a_change_of_every_line_is_read_in_parts_between_which_renders_have_their_turn(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    read: list[int] = []
    configuration = Configuration()

    def is_secret(_path: str, _origin: object) -> bool:
        read[-1] += 1
        return False

    async def consult(ask: Callable[..., Any]) -> Any:
        await trio.lowlevel.checkpoint()
        read.append(0)
        rendered = SimpleNamespace(config=SimpleNamespace(pieces=configuration.shelf.paged()))
        return ask(None, rendered, None)

    monkeypatch.setattr(generations, "site_for", lambda *_: SimpleNamespace(is_secret=is_secret))
    history = History(consult)
    await history.record()
    for number in range(1000):
        configuration.change(number, "changed")
    read.clear()
    await history.record()

    assert sum(read) == 1000
    assert max(read) < 1000
    assert (history.generations()[-1].added, history.generations()[-1].removed) == (1000, 1000)
    # A page that was read is not read again.
    read.clear()
    configuration.change(7, "one")
    await history.record()
    assert len(read) == 1
    assert read[0] < 1000
