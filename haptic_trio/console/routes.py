"""List of routes for the console: computed once for each render, searched and paged on request."""

import trio

from haptic_trio.console.configuration import Configuration, Source, site_for
from haptic_trio.console.per_render import PerRender
from haptic_trio.console.protocol import RoutePage
from haptic_trio.explain.route_list import Route, RouteState, list_routes
from haptic_trio.pipeline.render import Rendered
from haptic_trio.templating.incremental.provenance import Provenance

MOST_ROUTES = 500
"""Maximum number of routes of a page."""


class Listing:
    """The routes of one render."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self._routes = routes
        self._words = [_words_of(route) for route in routes]

    def page(self, serial: int, search: str, state: str, offset: int, limit: int) -> RoutePage:
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
            serial=serial,
            total=len(found),
            offset=offset,
            counts={str(name): count for name, count in counts.items() if count},
            routes=tuple(found[offset : offset + limit]),
        )


class Routes:
    """Answers about routes."""

    def __init__(self, configuration: Configuration) -> None:
        self._listing = PerRender(configuration, _list)

    def forget(self) -> None:
        """Drop the list; called when the last client disconnects."""
        self._listing.forget()

    async def page(
        self, *, search: str = "", state: str = "", offset: int = 0, limit: int = 200, patient: bool = False
    ) -> RoutePage:
        """Return *limit* routes from the 0-based *offset* on, of those that `Listing.page` finds.

        For *patient* and `NotNowError`, see `PerRender.get`.
        """
        newest = await self._listing.get(patient=patient)
        count = max(1, min(limit, MOST_ROUTES))
        return await trio.to_thread.run_sync(newest.value.page, newest.serial, search, state, max(0, offset), count)


def _list(source: Source, rendered: Rendered, provenance: Provenance) -> Listing:
    return Listing(list_routes(site_for(source, rendered, provenance, parsed=True)))


def _shortened(search: str) -> str:
    """Return *search* without the parts of a URL that routes do not have."""
    head = search.strip()
    return head.partition("://")[2].partition("?")[0].partition("#")[0] if "://" in head else head


def _words_of(route: Route) -> str:
    name = f"{route.namespace}/{route.name}" if route.namespace else route.name
    return f"{route.host}{route.path} {route.kind} {name} {route.backend} {route.state} {route.listener}".casefold()
