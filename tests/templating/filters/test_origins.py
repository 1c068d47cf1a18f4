"""Origins of CORS in lists, and patterns for them."""

import pytest

from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.filters.origins import Origins, origin_pattern, origins

SHOP = "https://shop.example.com"


def test_a_pattern_has_labels_and_ports_for_its_wildcards() -> None:
    assert origin_pattern("https://*.example.com") == r"-- '^https://([a-z0-9-]+\.)+example\.com$'"
    assert origin_pattern("HTTP://A.example.com:*") == r"-- '^http://a\.example\.com:[0-9]+$'"


@pytest.mark.parametrize("value", ["*.example.com", "https://a.example.com/path", "", "https://a b", "https://a\nb"])
def test_a_pattern_of_no_origin_is_rejected(value: str) -> None:
    with pytest.raises(EmitError, match="origin_pattern: the value is not an origin"):
        origin_pattern(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f" {SHOP} ,, http://b:80", Origins(False, [SHOP, "http://b:80"], [])),
        (f"shop, {SHOP}, b:80", Origins(False, [SHOP], ["shop", "b:80"])),
        ("shop, *", Origins(True, [], [])),
    ],
    ids=str,
)
def test_a_list_is_divided_into_usable_and_unusable_entries(value: str, expected: Origins) -> None:
    assert origins(value) == expected
    assert all(origin_pattern(entry) for entry in expected.usable)


@pytest.mark.parametrize("value", ["", " ,", "shop", "*.example.com, https://a/b"])
def test_a_list_without_an_origin_is_rejected(value: str) -> None:
    with pytest.raises(EmitError, match="origins: the value is not an origin"):
        origins(value)
