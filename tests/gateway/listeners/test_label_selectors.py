"""Label selectors of Gateways: the labels that each of them covers."""

from typing import Any

import pytest

from haptic_trio.gateway.listeners.label_selectors import selects

LABELS = {"team": "shop", "stage": "prod"}


def where(operator: str, key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, True),
        ({"matchLabels": {"team": "shop"}}, True),
        ({"matchLabels": {"team": "shop", "stage": "test"}}, False),
        (where("In", "team", "shop", "bank"), True),
        (where("In", "tier", "shop"), False),
        (where("NotIn", "team", "bank"), True),
        (where("NotIn", "tier", "bank"), True),
        (where("Exists", "team"), True),
        (where("DoesNotExist", "team"), False),
        (where("Unknown", "team"), False),
        ({"matchLabels": {"team": "shop"}, **where("Exists", "tier")}, False),
        (None, False),
        ("team=shop", False),
    ],
)
def test_a_selector_covers_labels(selector: Any, expected: bool) -> None:
    assert selects(selector, LABELS) is expected


def test_an_object_without_labels_is_covered_by_what_demands_none() -> None:
    assert selects({}, None)
    assert selects(where("DoesNotExist", "team"), None)
    assert not selects({"matchLabels": {"team": "shop"}}, None)
