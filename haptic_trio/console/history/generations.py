"""History of the configuration: what each of the last generations changed in haproxy.cfg, kept without viewers."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec
import trio

from haptic_trio.chunked import Page, Paged, Piece
from haptic_trio.config.templates import MAIN_TEMPLATE
from haptic_trio.console.configuration import Source, site_for
from haptic_trio.console.history.differences import Text, compare_texts
from haptic_trio.console.protocol import DiffPage, GenerationView
from haptic_trio.errors import HapticError
from haptic_trio.explain.site import Site
from haptic_trio.messages import ConfigPrepared, ConfigValidated, DeploymentCompleted
from haptic_trio.pipeline.render import Rendered
from haptic_trio.templating.incremental.provenance import Provenance

MOST_GENERATIONS = 20
MOST_OBJECTS = 10
PIECES_AT_ONCE = 500
"""Pieces of the text that are read before a render has its turn: a few milliseconds."""
READ_PAUSE = 0.05
"""Seconds between two such parts, which compete with renders for the interpreter."""
DELAY = 0.25
"""Maximum of seconds before a change is read: its deployment, of some milliseconds, has the interpreter first."""
BURST = 5
"""Records that need not wait for each other."""
INTERVAL = 2.0
"""Seconds from one record to the next, after a burst: a record costs as much CPU time as a change."""
_NONE: frozenset[int] = frozenset()


class Consult(Protocol):
    """See `Configuration.consult`."""

    def __call__(self, ask: Callable[[Source, Rendered, Provenance], Text | None], /) -> Awaitable[Text | None]:
        """Return the result of *ask* on the newest render; raises a `HapticError` if that is not known now."""


class UnknownGenerationError(HapticError):
    """The generation is not among the last ones; permanent."""


class History:
    """Changes of the last generations.

    Keeps `MOST_GENERATIONS` differences of at most 500 lines, and the chunks
    of the newest generation, which are those of the renderer. Redacted when a
    generation is recorded: the origin of a line is unknown later.
    """

    def __init__(self, consult: Consult, *, clock: Callable[[], float] = trio.current_time) -> None:
        self._consult = consult
        self._clock = clock
        self._newest: Text | None = None
        self._secrets: dict[Page[Piece], frozenset[int]] = {}
        """Of pages that were read: the pieces that derive from a Secret."""
        self._kept: deque[tuple[GenerationView, DiffPage]] = deque(maxlen=MOST_GENERATIONS)
        self._count = 0
        self._correlation = ""
        self._changed = trio.Event()
        self._deployed = trio.Event()

    def observe(self, event: msgspec.Struct) -> None:
        """Take note of a new generation; never blocks."""
        if isinstance(event, ConfigPrepared | ConfigValidated):
            self._correlation = event.correlation
            self._changed.set()
        if isinstance(event, ConfigPrepared):
            self._deployed = trio.Event()
        elif isinstance(event, DeploymentCompleted):
            self._deployed.set()

    async def run(self) -> None:
        """Record generations until cancelled. While changes follow closely, an entry may cover several of them."""
        room, at = float(BURST), self._clock()
        while True:
            await self._changed.wait()
            if self._newest is not None:
                with trio.move_on_after(DELAY):
                    await self._deployed.wait()
            self._changed = trio.Event()
            await self.record()
            now = self._clock()
            room, at = min(BURST, room + (now - at) / INTERVAL) - 1, now
            if room < 1:
                await trio.sleep((1 - room) * INTERVAL)

    async def record(self) -> None:
        """Record the newest generation if its haproxy.cfg differs from that of the newest entry."""
        correlation = self._correlation
        try:
            while (text := await self._consult(self._read)) is None:  # noqa: ASYNC110 - there is no event
                await trio.sleep(READ_PAUSE)
        except HapticError:
            # Objects have changed meanwhile. The next generation, which has this change as well, is recorded.
            return
        former, self._newest = self._newest, text
        if former is None:
            self._count = 1
            return
        if former.paged.pages == text.paged.pages:
            return
        found = await trio.to_thread.run_sync(compare_texts, former, text)
        if not found.added and not found.removed:
            return
        self._count += 1
        objects = tuple(dict.fromkeys(line.made_by for line in found.lines if line.made_by))
        entry = GenerationView(
            number=self._count,
            at=self._clock(),
            correlation=correlation,
            added=found.added,
            removed=found.removed,
            objects=objects[:MOST_OBJECTS],
        )
        page = DiffPage(
            before=self._count - 1,
            after=self._count,
            added=found.added,
            removed=found.removed,
            lines=found.lines,
        )
        self._kept.append((entry, page))

    def generations(self) -> tuple[GenerationView, ...]:
        """Return the kept generations, oldest first."""
        return tuple(entry for entry, _ in self._kept)

    def diff(self, number: int = 0) -> DiffPage:
        """Return what the generation *number* changed; of the newest one with 0. Raises `UnknownGenerationError`."""
        if not number:
            if self._kept:
                return self._kept[-1][1]
            return DiffPage(before=0, after=self._count, added=0, removed=0, lines=())
        for entry, page in self._kept:
            if entry.number == number:
                return page
        known = f"{self._kept[0][0].number} to {self._kept[-1][0].number}" if self._kept else "none"
        raise UnknownGenerationError(f"no difference of generation {number} is kept (kept: {known})")

    def _read(self, source: Source, rendered: Rendered, provenance: Provenance) -> Text | None:
        """Return the text; None if it has many new pages, a part of which was read. No task can render meanwhile."""
        paged: Paged[Piece] = rendered.config.pieces
        self._secrets = {page: self._secrets[page] for page in paged.pages if page in self._secrets}
        unread = [page for page in paged.pages if page not in self._secrets]
        known = self._known_pieces() if unread else {}
        site = site_for(source, rendered, provenance)
        room = PIECES_AT_ONCE
        for page in unread:
            if room <= 0:
                return None
            self._secrets[page], asked = _secrets_in(site, page, known)
            room -= asked
        return Text(paged, self._secrets)

    def _known_pieces(self) -> dict[int, bool]:
        """Return whether each piece of the pages that are gone derives from a Secret, by the identity of the piece."""
        if self._newest is None:
            return {}
        gone = ((page, secrets) for page, secrets in self._newest.secrets.items() if page not in self._secrets)
        return {id(piece): at in secrets for page, secrets in gone for at, piece in enumerate(page.items)}


def _secrets_in(site: Site, page: Page[Any], known: Mapping[int, bool]) -> tuple[frozenset[int], int]:
    """Return the pieces of *page* that derive from a Secret, and for how many that was not *known*."""
    found, asked = [], 0
    for at, piece in enumerate(page.items):
        is_secret = known.get(id(piece))
        if is_secret is None:
            is_secret, asked = site.is_secret(MAIN_TEMPLATE, piece.origin), asked + 1
        if is_secret:
            found.append(at)
    return frozenset(found) if found else _NONE, asked
