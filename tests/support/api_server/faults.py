"""Faults of the in-process API server that a test can switch on."""

from dataclasses import dataclass, field

import trio

from tests.support.api_server.state import StatusError


@dataclass
class Faults:
    """Faults that are in force; all off at first."""

    forbidden: set[str] = field(default_factory=set)
    """Plurals that are forbidden to read: 403."""
    throttled: int = 0
    """How many requests are answered with 429."""
    retry_after: int = 1
    """Seconds that those should wait."""
    failing: int = 0
    """How many requests are answered with `failure`."""
    failure: int = 500
    delay: float = 0.0
    """Seconds before each answer."""
    hanging: bool = False
    """Requests are taken and not answered."""
    expire_pages: int = 0
    """How many continuations of a list are answered with 410."""
    expire_watches: int = 0
    """How many watches are answered with 410, whatever they ask for."""
    expired_status: bool = False
    """Say 410 as the HTTP status; else as an event of the watch."""
    list_streaming: bool = True
    """Know `sendInitialEvents`; else answer it with `list_streaming_rejection`."""
    list_streaming_rejection: int = 422
    """422 where the feature is off; 500 where it is on and the etcd behind is too old for it."""
    ignores_list_streaming: bool = False
    """Take `sendInitialEvents` for an unknown parameter, as servers before 1.27 do."""
    partial_metadata: bool = True
    """Leave out all but the metadata where that is asked for; else answer with whole objects."""
    unreadable: set[str] = field(default_factory=set)
    """Names of objects that cannot be read one by one: 403."""
    silent: bool = False
    """Watches are opened and send neither events nor bookmarks."""

    async def before_probe(self) -> None:
        """Wait or raise as other requests do, before the readiness is answered; counts as none of them."""
        if self.hanging:
            await trio.sleep_forever()
        if self.failing:
            raise StatusError(self.failure, "InternalError", "told to fail")

    async def before(self, plural: str, *, is_continued: bool = False) -> None:
        """Wait or raise as configured before a request about *plural* is answered; empty if it is about no kind."""
        if self.delay:
            await trio.sleep(self.delay)
        if self.hanging:
            await trio.sleep_forever()
        if self.throttled:
            self.throttled -= 1
            message = "the server has received too many requests"
            raise StatusError(429, "TooManyRequests", message, retry_after=self.retry_after)
        if self.failing:
            self.failing -= 1
            raise StatusError(self.failure, "InternalError", "told to fail")
        if plural in self.forbidden:
            raise StatusError(403, "Forbidden", f"{plural} is forbidden: User cannot list resource")
        if is_continued and self.expire_pages:
            self.expire_pages -= 1
            raise StatusError(410, "Expired", "The provided continue parameter is too old")
