"""The session with one viewer: one that does not read does not keep others out."""

from typing import Any, cast

import msgspec
import trio
from starlette.datastructures import Headers
from starlette.websockets import WebSocket
from trio.testing import MockClock

from haptic_trio.console.stream import LIVE_INTERVAL, SEND_LIMIT, Viewers
from haptic_trio.console.watched import Watched


class Sleeper:
    """A viewer that says who it is, and takes nothing."""

    headers = Headers()

    def __init__(self, token: str, *messages: str) -> None:
        self.messages = [msgspec.json.encode({"hello": 1, "token": token}).decode(), *messages]
        self.ended = ""
        self.received: list[str] = []

    async def accept(self) -> None:
        """Be connected."""

    async def close(self, _code: int, reason: str) -> None:
        """Receive the reason of a rejection."""
        self.ended = reason

    async def receive_text(self) -> str:
        """Say hello, send the messages, and nothing more."""
        if not self.messages:
            await trio.sleep_forever()
        return self.messages.pop(0)

    async def send_text(self, _text: str) -> None:
        """Take nothing."""
        await trio.sleep_forever()


class Talker(Sleeper):
    """A viewer that takes what it is sent."""

    async def send_text(self, text: str) -> None:
        """Take it."""
        self.received.append(text)


class Nothing:
    """What is watched: nothing."""

    forgotten = 0

    def moment(self) -> dict[str, float]:
        """Return the time."""
        return {"clock": 0.0, "unix": 0.0}

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


async def test_json_with_very_many_levels_ends_the_conversation() -> None:
    viewers = Viewers(cast("Watched", Nothing()), "the-right-token")
    deep = '{"x":' + "[" * 20_000
    stranger: Any = Sleeper("another-token")
    stranger.messages = [deep]
    known: Any = Talker("the-right-token", deep)

    with trio.fail_after(5):
        await viewers.serve(cast("WebSocket", stranger))
        await viewers.serve(cast("WebSocket", known))

    assert stranger.ended == "not allowed"
    assert viewers.count == 0


async def test_a_wrong_token_is_reported(autojump_clock: MockClock) -> None:
    sleeper: Any = Sleeper("another-token")

    await Viewers(cast("Watched", Nothing()), "the-right-token").serve(cast("WebSocket", sleeper))

    assert sleeper.ended == "not allowed"


class Figures(Nothing):
    """What is watched: live figures, which are counted."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    @property
    def live(self) -> "Figures":
        """Return itself, which has the figures."""
        return self

    async def read(self, backends: tuple[str, ...]) -> int:
        """Count."""
        self.asked.append(backends)
        return len(self.asked)


async def test_live_figures_are_read_at_intervals_and_for_viewers_alone(autojump_clock: MockClock) -> None:
    watched = Figures()
    follow = '{"follow": ["live"], "interval": 0.2, "backends": ["web"]}'
    talker: Any = Talker("the-right-token", follow)

    with trio.move_on_after(5 * LIVE_INTERVAL - 0.1):
        await Viewers(cast("Watched", watched), "the-right-token").serve(talker)
    await trio.sleep(100)

    assert watched.asked == [("web",)] * 5


class Channels(Nothing):
    """What is watched: channels, whose reads are counted."""

    reads = 0

    def channels(self) -> int:
        """Count."""
        self.reads += 1
        return 0


async def test_a_topic_that_a_subscription_names_thousands_of_times_is_read_once(autojump_clock: MockClock) -> None:
    watched = Channels()
    follow = msgspec.json.encode({"follow": ["channels"] * 5_000, "interval": 1}).decode()
    talker: Any = Talker("the-right-token", follow)

    with trio.move_on_after(9.5):
        await Viewers(cast("Watched", watched), "the-right-token").serve(talker)

    assert 0 < watched.reads < 20


async def test_a_subscription_to_an_unknown_topic_is_rejected(autojump_clock: MockClock) -> None:
    talker: Any = Talker("the-right-token", '{"follow": ["events", "queues"], "id": 7}')

    with trio.move_on_after(1):
        await Viewers(cast("Watched", Nothing()), "the-right-token").serve(talker)

    (rejection,) = [message for message in map(msgspec.json.decode, talker.received) if message["kind"] == "rejected"]
    assert rejection == {"kind": "rejected", "id": 7, "message": "unknown topics to follow: 'queues'"}
