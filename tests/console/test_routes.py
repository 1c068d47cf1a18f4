"""The list of routes is searched by words and by state."""

import pytest

from haptic_trio.console.routes import Listing
from haptic_trio.explain.route_list import Route, RouteState


def listing() -> Listing:
    return Listing(
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
    page = listing().page(1, search, state, 0, 10)

    assert [f"{route.host}{route.path}" for route in page.routes] == found
    assert (page.total, page.counts) == (len(found), counts)


def test_a_page_is_a_part_of_all() -> None:
    page = listing().page(1, "", "", 1, 1)

    assert [route.path for route in page.routes] == ["/cart"]
    assert (page.total, page.offset) == (3, 1)
