"""The conversation with one viewer: who does not listen does not keep others out."""

from typing import Any, cast

import msgspec
import trio
from starlette.datastructures import Headers
from starlette.websockets import WebSocket
from trio.testing import MockClock

from haptic_trio.console.stream import SEND_LIMIT, Viewers
from haptic_trio.console.watched import Watched


class Sleeper:
    """A viewer that says who it is, and takes nothing."""

    headers = Headers()

    def __init__(self, token: str) -> None:
        self._hello: str | None = msgspec.json.encode({"hello": 1, "token": token}).decode()
        self.ended = ""

    async def accept(self) -> None:
        """Be connected."""

    async def close(self, _code: int, reason: str) -> None:
        """Receive the reason of a rejection."""
        self.ended = reason

    async def receive_text(self) -> str:
        """Say hello, and nothing more."""
        if self._hello is None:
            await trio.sleep_forever()
        said, self._hello = self._hello, None
        return said or ""

    async def send_text(self, _text: str) -> None:
        """Take nothing."""
        await trio.sleep_forever()


class Nothing:
    """What is watched: nothing."""

    forgotten = 0

    def moment(self) -> dict[str, float]:
        """Return the time."""
        return {"clock": 0.0, "unix": 0.0}

    @property
    def configuration(self) -> "Nothing":
        """Return itself, which has nothing to forget."""
        return self

    def forget(self) -> None:
        """Count."""
        self.forgotten += 1


async def test_a_viewer_that_takes_nothing_makes_room_for_others(autojump_clock: MockClock) -> None:
    watched = Nothing()
    viewers = Viewers(cast("Watched", watched), "the-right-token")
    sleeper: Any = Sleeper("the-right-token")

    await viewers.serve(cast("WebSocket", sleeper))

    assert trio.current_time() == SEND_LIMIT
    assert (viewers.count, watched.forgotten) == (0, 1)


async def test_a_wrong_token_is_reported(autojump_clock: MockClock) -> None:
    sleeper: Any = Sleeper("another-token")

    await Viewers(cast("Watched", Nothing()), "the-right-token").serve(cast("WebSocket", sleeper))

    assert sleeper.ended == "not allowed"
