"""The list of routes, of which one page at a time comes from the controller."""

from collections.abc import Callable
from typing import Any, Final

from haptic_trio.cli.terminal.known import Known
from haptic_trio.cli.terminal.tabs import route_row
from haptic_trio.cli.terminal.walker import Walker
from haptic_trio.explain.route_list import RouteState

PAGE: Final = 100
_MARGIN: Final = 20
"""Rows before the end of the page from which the next one is requested."""


class RoutePages:
    """Search, state filter, and the page around the focus. *follow* renews the subscription."""

    most_backends = 100

    def __init__(self, known: Known, follow: Callable[[], None], moved: Callable[[int], None]) -> None:
        self.search = ""
        self.state = ""
        self.walker = Walker(self._move)
        self._known = known
        self._follow = follow
        self._moved = moved
        self._offset = 0
        self._backends: list[str] = []

    @property
    def wanted(self) -> dict[str, Any]:
        """The part of the subscription that selects the page, and the live figures of its backends."""
        page = {"search": self.search, "state": self.state, "offset": self._offset, "limit": PAGE}
        return {**page, "backends": self._backends}

    def take(self) -> None:
        """Show the page that has arrived, and follow the figures of its backends."""
        page = self._known.routes or {"routes": ()}
        backends = dict.fromkeys(name for one in page["routes"] for name in one["backend"].split(", ") if name)
        known, self._backends = self._backends, list(backends)[: self.most_backends]
        self.refresh()
        if known != self._backends:
            self._follow()

    def refresh(self) -> None:
        """Show the newest figures."""
        page = self._known.routes
        if page is not None:
            rows = [route_row(one, self._known) for one in page["routes"]]
            self.walker.show(rows, offset=page["offset"], total=page["total"])

    def restart(self) -> None:
        """Request the first page."""
        self._offset = 0
        self.walker.restart()
        self._follow()

    def next_state(self) -> None:
        """Filter by the next state; after the last one, show all."""
        states = ["", *(str(state) for state in RouteState if state is not RouteState.SERVING), str(RouteState.SERVING)]
        self.state = states[(states.index(self.state) + 1) % len(states)]
        self.restart()

    def _move(self, position: int) -> None:
        self._moved(position)
        first, last = self._offset, self._offset + PAGE
        if (position < first + _MARGIN and first > 0) or (position >= last - _MARGIN and last < self.walker.total):
            self._offset = max(0, position - PAGE // 2)
            self._follow()
