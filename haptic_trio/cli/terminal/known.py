"""State of the controller as the console has sent it."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import trio

from haptic_trio.dataplane.figures import BackendFigures

MOST_EVENTS = 1000


class Known:
    """The newest message of each topic. Values are as in the JSON form of the protocol."""

    def __init__(self) -> None:
        self.state: dict[str, Any] | None = None
        self.routes: dict[str, Any] | None = None
        self.certificates: dict[str, Any] | None = None
        self.tasks: dict[str, Any] | None = None
        self.channels: Sequence[dict[str, Any]] = ()
        self.stores: Sequence[dict[str, Any]] = ()
        self.diff: dict[str, Any] | None = None
        self.processes: Mapping[str, dict[str, Any]] = {}
        self.figures: Mapping[str, BackendFigures] = {}
        """Live figures by backend."""
        self.events: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        self.seen = 0
        """Number of the last event."""
        self._moment = {"clock": trio.current_time(), "unix": time.time()}
        self._received = trio.current_time()

    def welcome(self, message: Mapping[str, Any]) -> None:
        """Take the first *message* of a connection; a controller that was started again numbers events from 1."""
        self._set_moment(message["now"])
        self.events.clear()
        self.seen = 0

    def take(self, message: Mapping[str, Any]) -> None:
        """Take a *message* of the subscription; unknown topics, of a newer controller, are ignored."""
        value = message.get("value")
        match message["kind"]:
            case "now":
                self._set_moment(message["value"])
            case "events":
                self.events.extend(message["value"])
                self.seen = self.events[-1]["number"] if self.events else self.seen
            case "live":
                self.processes = {one["instance"]: one for one in message["value"]["processes"]}
                self.figures = {
                    one["name"]: msgspec.convert(one, BackendFigures) for one in message["value"]["backends"]
                }
            case "state":
                self.state = value
            case "routes":
                self.routes = value
            case "certificates":
                self.certificates = value
            case "tasks":
                self.tasks = value
            case "channels":
                self.channels = value or ()
            case "stores":
                self.stores = value or ()
            case "diff":
                self.diff = value

    @property
    def clock(self) -> float:
        """The controller's clock now."""
        return float(self._moment["clock"]) + trio.current_time() - self._received

    @property
    def unix(self) -> float:
        """The time of day now, in seconds since 1970, as the controller has it."""
        return float(self._moment["unix"]) + trio.current_time() - self._received

    def time_of_day(self, at: float | None) -> str:
        """Return the local time of day of the clock time *at*."""
        if at is None:
            return ""
        return time.strftime("%H:%M:%S", time.localtime(self._moment["unix"] + at - self._moment["clock"]))

    def _set_moment(self, moment: dict[str, float]) -> None:
        self._moment = moment
        self._received = trio.current_time()
