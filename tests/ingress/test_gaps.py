"""Of each host with gaps, one Ingress names them, and it decides as the plainest definition does."""

import tracemalloc
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptic_trio.ingress import gaps
from haptic_trio.ingress.classes import class_of
from haptic_trio.ingress.gaps import gaps_of
from haptic_trio.ingress.served import ANY, HOSTS_INDEX, Served, served_by
from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.k8s.store import Store
from tests.ingress.test_owners import HOSTS, OWN, VENDORS, Remembering, ingresses
from tests.support.kubernetes import ingress, path, rule


def found_in(lookup: Any, served: list[Served], *, is_open: bool) -> dict[str, bool]:
    lookups = {"ingressesByHost": lookup}
    found = [gap for one in served for gap in gaps_of(one, lookups, OWN, VENDORS, is_open_to_catch_all=is_open)]
    goes_on = {gap.host: gap.goes_on for gap in found}
    assert len(goes_on) == len(found)
    return goes_on


def plainly(served: list[Served], *, is_open: bool) -> dict[str, bool]:
    def owner(host: str) -> str:
        return min((one.age for one in served if one.serves(host)), default=("", "", ""))[1]

    found = {}
    for host in HOSTS:
        own = owner(host)
        is_whole = any("" in one.routes.get(host, ()) for one in served if one.age[1] == own)
        wildcard = "" if host.startswith("*") else owner("*.example")
        goes_on = is_open or owner(ANY) == own
        if own and not is_whole and wildcard != own and not (host.startswith("*") and goes_on):
            found[host] = goes_on
    return found


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(ingresses(), min_size=1, max_size=12),
    st.lists(st.tuples(st.booleans(), ingresses()), max_size=8),
    st.booleans(),
    st.sampled_from(["", "one", "two"]),
)
def test_gaps_are_those_of_a_complete_read_after_each_change(
    before: list[Resource], changes: Any, is_open: bool, everywhere: str
) -> None:
    store = Store("ingressesByHost", [HOSTS_INDEX])
    if everywhere:
        store.upsert(ingress("every", rule(None, path("/x", "web")), namespace=everywhere))
    for one in before:
        store.upsert(one)
    remembering = Remembering(store)
    for is_there, one in [(True, before[0]), *changes]:
        if is_there:
            store.upsert(one)
        else:
            store.delete(ref_of(one))

        served = [served_by(one, VENDORS) for one in store.list() if class_of(one) == "haptic"]
        expected = plainly(served, is_open=is_open)
        assert found_in(remembering, served, is_open=is_open) == expected
        assert found_in(store, served, is_open=is_open) == expected


def test_former_ingresses_do_not_stay_in_memory() -> None:
    labels, number = 4_000, 50
    tracemalloc.start()
    try:
        for version in range(number):
            store = Store("ingressesByHost", [HOSTS_INDEX])
            one = ingress(f"a{version}", rule(f"a{version}.test", path(f"/{version}{'x' * 200_000}", "web")))
            one["metadata"]["labels"] = {f"label-{version}-{label}": "" for label in range(labels)}
            store.upsert(one)
            assert found_in(store, [served_by(one, VENDORS)], is_open=False)
            if not version:
                first, _ = tracemalloc.get_traced_memory()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < first * number / 2


def test_a_host_that_many_large_ingresses_share_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Mock(wraps=gaps._read_summary)
    monkeypatch.setattr(gaps, "_read_summary", read)
    store = Store("ingressesByHost", [HOSTS_INDEX])
    for number in range(60):
        store.upsert(ingress(f"a{number}", rule("a.example", path(f"/{number}{'x' * 100_000}", "web"))))
    served = [served_by(one, VENDORS) for one in store.list()]

    assert found_in(store, served, is_open=False) == {"a.example": False}
    assert [call.args[1] for call in read.call_args_list].count("a.example") == 1
