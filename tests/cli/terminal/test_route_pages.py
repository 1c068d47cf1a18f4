"""The page of routes follows the focus; the subscription changes only if it must."""

from collections.abc import Iterable
from typing import Any

from haptic_trio.cli.terminal.known import Known
from haptic_trio.cli.terminal.route_pages import PAGE, RoutePages
from tests.cli.terminal.console import route


class Pages:
    """Routes of a controller with *total* of them, and the number of subscriptions."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.known = Known()
        self.followed = 0
        self.pages = RoutePages(self.known, self._follow, lambda _position: None)

    def _follow(self) -> None:
        self.followed += 1

    def answer(self) -> None:
        """Deliver the page that is wanted."""
        offset = self.pages.wanted["offset"]
        self._deliver(offset, (route(number) for number in range(offset, min(offset + PAGE, self.total))))

    def _deliver(self, offset: int, routes: Iterable[dict[str, Any]]) -> None:
        value = {"serial": 1, "total": self.total, "offset": offset, "counts": {}, "routes": list(routes)}
        self.known.take({"kind": "routes", "value": value})
        self.pages.take()


async def test_moving_near_the_end_of_the_page_requests_the_one_around_the_focus() -> None:
    pages = Pages(1000)
    pages.answer()
    assert pages.followed == 1
    assert len(pages.pages.wanted["backends"]) == PAGE
    pages.answer()
    # The same page again: its backends are followed already.
    assert pages.followed == 1

    pages.pages.walker.set_focus(50)
    assert pages.followed == 1
    pages.pages.walker.set_focus(PAGE - 5)
    assert pages.pages.wanted["offset"] == PAGE - 5 - PAGE // 2
    pages.answer()
    assert pages.pages.walker.row is not None
    assert pages.pages.walker.row.key.startswith(f"host{PAGE - 5}.test/")
    pages.pages.walker.set_focus(0)
    assert pages.pages.wanted["offset"] == 0


async def test_states_follow_each_other_and_begin_at_the_top() -> None:
    pages = Pages(1000)
    pages.answer()
    pages.pages.walker.set_focus(500)

    seen = []
    for _ in range(6):
        pages.pages.next_state()
        seen.append(pages.pages.wanted["state"])

    assert seen == ["degraded", "down", "quarantined", "conflict", "serving", ""]
    assert (pages.pages.walker.focus, pages.pages.wanted["offset"]) == (0, 0)
