"""Entries of maps change in an order in which no request meets a less specific entry than before and after."""

from itertools import permutations

import pytest

from haptic_trio.haproxy.plan.operations import (
    AddAclEntry,
    AddMapEntry,
    DeleteMapEntry,
    Operation,
    ReplaceMap,
    SetMapEntry,
)
from haptic_trio.haproxy.plan.steps import Phase, Step, order_steps

EXACT, PREFIX, RULES = "maps/exact.map", "maps/prefix.map", "maps/rules.map"
KEYS = (
    # Other entries refer to it.
    (RULES, "HTTPRoute/web/r/1"),
    (PREFIX, "a.test|/admin/x/"),
    (EXACT, "a.test|/admin"),
    (PREFIX, "a.test|/admin/"),
    (EXACT, "a.test|/"),
    (PREFIX, "a.test|/"),
    (PREFIX, "a.test|"),
    (PREFIX, "*.b.test|/a/long/path/"),
    (EXACT, "*.b.test|/"),
    (PREFIX, "*.test|/a/long/path/"),
    (PREFIX, "*|/a/longer/path/"),
    (PREFIX, "*|"),
)
SAMPLES = [order for number, order in enumerate(permutations(KEYS[:7])) if number % 500 == 0]


@pytest.mark.parametrize("keys", [(*sample[::-1], *KEYS[:6:-1]) for sample in SAMPLES])
def test_new_entries_come_before_less_specific_ones_and_removed_ones_after(keys: tuple[tuple[str, str], ...]) -> None:
    added: list[Step] = [(Phase.ROUTE, AddMapEntry(path, key, "app")) for path, key in keys]
    removed: list[Step] = [(Phase.UNROUTE, DeleteMapEntry(path, key)) for path, key in keys]

    assert [(one.map, one.key) for one in order_steps(added) if isinstance(one, AddMapEntry)] == [*KEYS]
    assert [(one.map, one.key) for one in order_steps(removed) if isinstance(one, DeleteMapEntry)] == [*KEYS[::-1]]


def test_beside_a_whole_map_the_entries_of_each_map_stay_together() -> None:
    whole = ReplaceMap(EXACT, (("a.test|/", "app"),))
    first, second, third = (AddMapEntry(PREFIX, key, "app") for key in ("a.test|/x/", "a.test|/", "*|/"))
    rule = AddMapEntry(RULES, "HTTPRoute/web/r/1", "b")
    steps: list[Step] = [(Phase.ROUTE, one) for one in (third, second, first, whole, rule)]

    assert order_steps(steps) == (rule, whole, first, second, third)


def test_other_operations_keep_their_order_within_a_phase() -> None:
    operations: tuple[Operation, ...] = (
        AddAclEntry("lists/b", "x"),
        AddAclEntry("lists/a", "y"),
        SetMapEntry(PREFIX, "*|/", "app"),
        SetMapEntry(EXACT, "a.test|/", "app"),
    )
    steps = [(Phase.REROUTE if isinstance(one, SetMapEntry) else Phase.ROUTE, one) for one in operations]

    assert order_steps(steps[::-1]) == (operations[1], operations[0], operations[3], operations[2])
