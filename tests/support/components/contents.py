"""Servers that a test speaks for: contents by URL, without a network."""

from collections.abc import Mapping

import msgspec
import trio

from haptic_trio.httpstore.content import Content, FetchError
from haptic_trio.httpstore.entry import ContentMemory
from haptic_trio.httpstore.events import ContentEvent
from haptic_trio.httpstore.request import FetchPolicy, FetchRequest, make_request
from haptic_trio.httpstore.store import HttpStore

POLICY = FetchPolicy()


class Servers:
    """Gives what `texts` holds for a URL; fails with its reason if that is an error. Takes `seconds` each time."""

    def __init__(self, texts: Mapping[str, str | FetchError] | None = None, *, seconds: float = 0.0) -> None:
        self.texts = dict(texts or {})
        self.seconds = seconds
        self.asked: list[str] = []
        self.most = 0
        self._busy = 0
        self._news = trio.Event()

    async def fetch(self, request: FetchRequest, known: Content | None) -> Content | None:
        """See `Fetcher.fetch`."""
        # What it is when the fetch begins.
        answer = self.texts.get(request.url, FetchError("the server answered 404"))
        self.asked.append(request.url)
        self._busy += 1
        self.most = max(self.most, self._busy)
        self._news.set()
        self._news = trio.Event()
        try:
            await trio.sleep(self.seconds)
        finally:
            self._busy -= 1
        if isinstance(answer, FetchError):
            raise FetchError(answer.reason, answer.hint)
        content = Content.of(answer)
        return None if known is not None and known.digest == content.digest else content

    async def wait_asked(self, number: int) -> None:
        """Return once *number* fetches have begun, all in all."""
        while len(self.asked) < number:
            await self._news.wait()


class Kept:
    """A store over such servers, and the events that it has recorded."""

    def __init__(self, servers: Servers, *, policy: FetchPolicy = POLICY, memory: ContentMemory | None = None) -> None:
        self.servers = servers
        self.happened: list[ContentEvent] = []
        self.store = HttpStore(policy, servers, report=self.happened.append, memory=memory)
        self.changes, self._changed = [], trio.Event()

    changes: list[tuple[str, ...]]

    async def run(self) -> None:
        """Run the store."""
        await self.store.run(self._take)

    async def _take(self, labels: tuple[str, ...]) -> None:
        await trio.lowlevel.checkpoint()
        self.changes.append(labels)
        self._changed.set()
        self._changed = trio.Event()

    async def wait_changed(self, number: int = 1) -> None:
        """Return once there are *number* changes, all in all."""
        while len(self.changes) < number:
            await self._changed.wait()

    async def want(self, *requests: FetchRequest) -> None:
        """Have an answer for *requests*."""
        await self.store.fetch_wanted({request.key: request for request in requests})

    async def refresh(self) -> None:
        """Fetch everything again, now."""
        async with trio.open_nursery() as nursery:
            for entry in self.store._entries.values():
                nursery.start_soon(self.store._refresh, entry)

    def text(self, request: FetchRequest) -> str | None:
        """Return what templates get for *request*; the reason if that is none, in brackets."""
        offer = self.store.offers().find(request)
        if offer is None:
            return None
        return offer.text if isinstance(offer, Content) else f"[{offer.reason}]"

    def accept(self) -> None:
        """Accept everything that is offered."""
        self.store.accept(self.store.pending())

    def reported(self, kind: type[msgspec.Struct]) -> list[msgspec.Struct]:
        """Return what has happened of *kind*."""
        return [one for one in self.happened if isinstance(one, kind)]


def request_of(url: str, **options: object) -> FetchRequest:
    """Return a request with *options*."""
    return make_request(url, options, POLICY, lambda _namespace, _name: None)
