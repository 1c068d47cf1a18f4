"""View of the newest configuration for the console: pages, search and provenance."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from haptic_trio.config.model import Config
from haptic_trio.config.templates import MAIN_TEMPLATE, template_set
from haptic_trio.console.protocol import ConfigLine, ConfigPage
from haptic_trio.errors import HapticError
from haptic_trio.explain.answers import MOST_HITS, to_json
from haptic_trio.explain.requests import RequestMatch, RequestQuestion, match_request
from haptic_trio.explain.resolve import explain
from haptic_trio.explain.search import search
from haptic_trio.explain.site import Site, hidden
from haptic_trio.haproxy.config.parser import ConfigSyntaxError, parse_config
from haptic_trio.haproxy.grammar.keywords import shipped_keywords
from haptic_trio.k8s.store import Stores
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.render import Rendered
from haptic_trio.templating.incremental.provenance import Provenance

T = TypeVar("T")

MOST_LINES = 500
"""Maximum number of lines of a page."""
MOST_SECTIONS = 2000
MOST_FILES = 500


class NotNowError(HapticError):
    """There is no configuration yet, or objects have changed since the last render; retry soon."""


class Source(msgspec.Struct, frozen=True):
    """The running iteration, as far as the console reads it."""

    config: Config
    stores: Stores
    pipeline: Pipeline


class View(msgspec.Struct, frozen=True):
    """A redacted file."""

    path: str
    serial: int
    lines: tuple[str, ...]
    makers: tuple[str, ...]
    """Object of each line, or an empty string."""
    secrets: frozenset[int]
    """1-based numbers of redacted lines."""
    files: tuple[str, ...]


class Configuration:
    """Answers about the newest configuration."""

    def __init__(self, source: Callable[[], Source | None]) -> None:
        self._source = source
        self._view: View | None = None

    def forget(self) -> None:
        """Drop the kept view; called when the last client disconnects."""
        self._view = None

    async def page(self, *, path: str = MAIN_TEMPLATE, offset: int = 0, limit: int = 200, search: str = "") -> Any:
        """Return *limit* lines of the file *path* from the 0-based *offset* on; with *search*, of matching lines.

        The search sees the redacted text. Raises `NotNowError`.
        """
        view = await self.view(path)
        number = range(1, len(view.lines) + 1)
        needle = search.casefold()
        found = [at for at in number if needle in view.lines[at - 1].casefold()] if needle else number
        chosen = found[max(0, offset) :][: max(1, min(limit, MOST_LINES))]
        is_first = path == MAIN_TEMPLATE and not needle and not offset
        return ConfigPage(
            path=path,
            serial=view.serial,
            total=len(found),
            offset=offset,
            lines=tuple(_line(view, at) for at in chosen),
            files=view.files if is_first else (),
            sections=tuple(_line(view, at) for at in section_lines(view.lines)) if is_first else (),
        )

    async def explain(self, target: str) -> Any:
        """Return the explanation of *target*; raises `NotNowError` and `TargetError`."""
        return await self.consult(partial(_explain, target=target))

    async def match(self, question: RequestQuestion) -> RequestMatch:
        """Return what the request of *question* matches; raises `NotNowError` and `TargetError`."""
        return await self.consult(partial(_match, question=question))

    async def search(self, text: str, *, context: int = 0, offset: int = 0, limit: int = MOST_HITS) -> Any:
        """Return *limit* lines of all files that contain *text*, as `search` finds them; raises `NotNowError`."""
        return await self.consult(partial(_search, text=text, context=context, offset=offset, limit=limit))

    async def view(self, path: str = MAIN_TEMPLATE) -> View:
        """Return the newest text of *path*; the view of haproxy.cfg is kept. Raises `NotNowError`."""
        view = await self.consult(partial(_make_view, path=path, known=self._view))
        if path == MAIN_TEMPLATE and view is not self._view:
            self._view = view
        return view

    async def consult(self, ask: Callable[[Source, Rendered, Provenance], T]) -> T:
        """Return the result of *ask*, which runs in a worker thread, on the newest render; raises `NotNowError`."""
        source = self._source()
        if source is None:
            raise NotNowError("no iteration is running, or it is still starting; retry soon")
        answer = await source.pipeline.consult(partial(ask, source))
        if answer is None:
            raise NotNowError("the newest changes are not rendered yet; retry soon")
        return answer


def _line(view: View, at: int) -> ConfigLine:
    return ConfigLine(line=at, text=view.lines[at - 1], made_by=view.makers[at - 1], is_secret=at in view.secrets)


def section_lines(lines: Sequence[str]) -> list[int]:
    """Return the 1-based numbers of the first lines of sections, at most `MOST_SECTIONS`."""
    kinds = shipped_keywords().sections
    # Lines inside a section may be unindented, too.
    found = [at for at, line in enumerate(lines, 1) if line[:1].isalpha() and line.split(None, 1)[0] in kinds]
    return found[:MOST_SECTIONS]


def _make_view(source: Source, rendered: Rendered, provenance: Provenance, *, path: str, known: View | None) -> View:
    if known is not None and (known.path, known.serial) == (path, rendered.serial):
        return known
    if path not in rendered.texts:
        raise NotNowError(f"no file {path!r}")
    site = site_for(source, rendered, provenance)
    lines = site.lines_of(path)
    makers: list[str] = []
    secrets: list[int] = []
    for first, last, origin in site.ranges.between(path, 1, len(lines)):
        makers += [str(origin.subject) if origin is not None else ""] * (last - first + 1)
        if site.is_secret(path, origin):
            secrets += range(first, last + 1)
            lines[first - 1 : last] = [hidden(line) for line in lines[first - 1 : last]]
    return View(
        path=path,
        serial=rendered.serial,
        lines=tuple(lines),
        makers=tuple(makers),
        secrets=frozenset(secrets),
        files=tuple(sorted(rendered.texts)[:MOST_FILES]),
    )


def _explain(source: Source, rendered: Rendered, provenance: Provenance, *, target: str) -> Any:
    return to_json(explain(site_for(source, rendered, provenance, parsed=True), target))


def _match(source: Source, rendered: Rendered, provenance: Provenance, *, question: RequestQuestion) -> RequestMatch:
    return match_request(site_for(source, rendered, provenance, parsed=True), question)


def _search(source: Source, rendered: Rendered, provenance: Provenance, *, text: str, **page: int) -> Any:
    return to_json(search(site_for(source, rendered, provenance), text, **page))


def site_for(source: Source, rendered: Rendered, provenance: Provenance, *, parsed: bool = False) -> Site:
    """Return what explanations of *rendered* need; with *parsed*, also its sections."""
    config = None
    if parsed:
        try:
            config = parse_config(rendered.config.pieces, source=MAIN_TEMPLATE)
        except ConfigSyntaxError:
            config = None
    return Site(
        provenance=provenance,
        texts=rendered.texts,
        files=rendered.files,
        rejections=rendered.rejections,
        warnings=rendered.warnings,
        stores=source.stores,
        plurals={name: watched.resources for name, watched in source.config.watched_resources.items()},
        templates=template_set(source.config).texts,
        context=source.config.templating.extra_context,
        config=config,
        places=source.pipeline.places,
    )
