"""List of routes for the console: computed once for each render, searched and paged on request."""

from weakref import ReferenceType, ref

import trio

from haptic_trio.console.configuration import Configuration, NotNowError, Source, site_for
from haptic_trio.console.protocol import RoutePage
from haptic_trio.explain.route_list import Route, RouteState, list_routes
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.render import Rendered
from haptic_trio.templating.incremental.provenance import Provenance

MOST_ROUTES = 500
"""Maximum number of routes of a page."""
PAUSE = 10
"""A list that followers need takes at most one part of so many of the time."""


class Listing:
    """The routes of one render."""

    def __init__(self, pipeline: Pipeline, serial: int, routes: tuple[Route, ...]) -> None:
        self.serial = serial
        self._pipeline: ReferenceType[Pipeline] = ref(pipeline)
        self._routes = routes
        self._words = [_words_of(route) for route in routes]

    def is_of(self, pipeline: Pipeline, serial: int) -> bool:
        """Whether the routes are those of the render *serial* of *pipeline*."""
        return self._pipeline() is pipeline and self.serial == serial

    def page(self, search: str, state: str, offset: int, limit: int) -> RoutePage:
        """Return the routes that contain all words of *search* and have *state*; an empty one is any state."""
        wanted = _shortened(search).casefold().split()
        found = [
            route
            for route, words in zip(self._routes, self._words, strict=True)
            if all(word in words for word in wanted)
        ]
        counts = dict.fromkeys(RouteState, 0)
        for route in found:
            counts[route.state] += 1
        if state:
            found = [route for route in found if route.state == state]
        return RoutePage(
            serial=self.serial,
            total=len(found),
            offset=offset,
            counts={str(name): count for name, count in counts.items() if count},
            routes=tuple(found[offset : offset + limit]),
        )


class Routes:
    """Answers about routes. Costs nothing until the first request; the newest list is kept until `forget`."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._newest: Listing | None = None
        self._computing = trio.Lock()
        self._next = 0.0

    def forget(self) -> None:
        """Drop the list; called when the last client disconnects."""
        self._newest = None

    async def page(
        self, *, search: str = "", state: str = "", offset: int = 0, limit: int = 200, patient: bool = False
    ) -> RoutePage:
        """Return *limit* routes from the 0-based *offset* on, of those that `Listing.page` finds.

        With *patient*, or while changes wait for their render, the list may be
        that of a former render. Raises `NotNowError`.
        """
        listing = await self._listing(patient=patient)
        count = max(1, min(limit, MOST_ROUTES))
        return await trio.to_thread.run_sync(listing.page, search, state, max(0, offset), count)

    async def _listing(self, *, patient: bool) -> Listing:
        async with self._computing:
            known = self._newest
            if known is not None and patient and trio.current_time() < self._next:
                return known
            begun = trio.current_time()
            try:
                listing = await self._configuration.consult(_Lister(known))
            except NotNowError:
                if known is None:
                    raise
                return known
            if listing is not known:
                self._next = trio.current_time() + PAUSE * (trio.current_time() - begun)
            self._newest = listing
            return listing


class _Lister:
    """Returns the routes of a render, or the *known* list if it is of that render."""

    def __init__(self, known: Listing | None) -> None:
        self._known = known

    def __call__(self, source: Source, rendered: Rendered, provenance: Provenance) -> Listing:
        if self._known is not None and self._known.is_of(source.pipeline, rendered.serial):
            return self._known
        routes = list_routes(site_for(source, rendered, provenance, parsed=True))
        return Listing(source.pipeline, rendered.serial, routes)


def _shortened(search: str) -> str:
    """Return *search* without the parts of a URL that routes do not have."""
    head = search.strip()
    return head.partition("://")[2].partition("?")[0].partition("#")[0] if "://" in head else head


def _words_of(route: Route) -> str:
    name = f"{route.namespace}/{route.name}" if route.namespace else route.name
    return f"{route.host}{route.path} {route.kind} {name} {route.backend} {route.state} {route.listener}".casefold()
