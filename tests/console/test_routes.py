"""The list of routes is computed once for each render, and searched by words."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from haptic_trio.console.configuration import Configuration, NotNowError
from haptic_trio.console.routes import Listing, Routes
from haptic_trio.explain.route_list import Route, RouteState
from haptic_trio.pipeline.cycle import Pipeline


class Plumbing:
    """Stands for a pipeline: something that can be referred to weakly."""


def listing(pipeline: Plumbing, serial: int = 1) -> Listing:
    return Listing(
        cast("Pipeline", pipeline),
        serial,
        (
            Route(host="a.test", path="/", match="prefix", kind="Ingress", namespace="shop", name="one", backend="b1"),
            Route(host="a.test", path="/cart", match="exact", kind="Ingress", namespace="shop", name="two"),
            Route(host="b.test", path="/", match="prefix", name="x", state=RouteState.DOWN, reason="no server"),
        ),
    )


@pytest.mark.parametrize(
    ("search", "state", "found", "counts"),
    [
        ("", "", ["a.test/", "a.test/cart", "b.test/"], {"serving": 2, "down": 1}),
        ("A.TEST", "", ["a.test/", "a.test/cart"], {"serving": 2}),
        ("https://a.test/cart?x=1#y", "", ["a.test/cart"], {"serving": 1}),
        ("ingress shop/one", "", ["a.test/"], {"serving": 1}),
        ("test", "down", ["b.test/"], {"serving": 2, "down": 1}),
        ("b1", "", ["a.test/"], {"serving": 1}),
        ("nowhere", "", [], {}),
    ],
)
def test_routes_are_found_by_words_and_state(search: str, state: str, found: list[str], counts: dict[str, int]) -> None:
    page = listing(Plumbing()).page(search, state, 0, 10)

    assert [f"{route.host}{route.path}" for route in page.routes] == found
    assert (page.total, page.counts) == (len(found), counts)


def test_a_page_is_a_part_of_all() -> None:
    page = listing(Plumbing()).page("", "", 1, 1)

    assert [route.path for route in page.routes] == ["/cart"]
    assert (page.total, page.offset) == (3, 1)


class Renders:
    """Stands for the configuration: answers for the render *serial* of a pipeline, or not now."""

    def __init__(self) -> None:
        self.pipeline = Plumbing()
        self.serial = 1
        self.is_busy = False
        self.asked = 0

    async def consult(self, ask: Callable[..., Listing]) -> Listing:
        """Return the list of the newest render; `Routes` computes it only if it does not have it."""
        if self.is_busy:
            raise NotNowError("retry soon")
        known = cast("Any", ask)._known
        if known is not None and known.is_of(self.pipeline, self.serial):
            return ask(SimpleNamespace(pipeline=self.pipeline), SimpleNamespace(serial=self.serial), None)
        self.asked += 1
        await trio.sleep(1)
        return listing(self.pipeline, self.serial)


async def test_a_list_is_computed_once_for_each_render_and_iteration(autojump_clock: trio.testing.MockClock) -> None:
    renders = Renders()
    routes = Routes(cast("Configuration", renders))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(routes.page)
    assert renders.asked == 1
    renders.serial = 2
    assert (await routes.page()).serial == 2
    renders.pipeline = Plumbing()
    await routes.page()
    assert renders.asked == 3

    routes.forget()
    renders.is_busy = True
    with pytest.raises(NotNowError):
        await routes.page()


async def test_followers_cost_a_tenth_of_the_time_at_most(autojump_clock: trio.testing.MockClock) -> None:
    renders = Renders()
    routes = Routes(cast("Configuration", renders))
    await routes.page(patient=True)

    for serial in range(2, 22):
        renders.serial = serial
        await trio.sleep(1)
        await routes.page(patient=True)
    assert renders.asked == 3

    # A request has the newest one, and while changes wait for their render the former one.
    assert (await routes.page()).serial == 21
    renders.is_busy = True
    assert (await routes.page()).serial == 21
