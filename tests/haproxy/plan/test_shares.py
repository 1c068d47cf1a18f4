"""Shares of namespaces in a deployment: a namespace with very many changed servers delays no other one."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import Generation, make_generation
from haptic_trio.haproxy.plan.capabilities import capabilities_of
from haptic_trio.haproxy.plan.operations import AddServer, Operation, SetServerAddress
from haptic_trio.haproxy.plan.plan import make_plan
from haptic_trio.haproxy.plan.shares import owner_of, share_room
from haptic_trio.haproxy.plan.split import split_plan

NEWEST = capabilities_of((3, 4))


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("shop_web_80", "shop"),
        ("gateway::shop_web_80", "shop"),
        ("clients::shop_web", "shop"),
        ("gateway::shop_web_80::HTTPRoute_shop_route::mark", "shop"),
        ("no-route", "no-route"),
    ],
)
def test_the_namespace_is_in_the_name_of_a_section(name: str, owner: str) -> None:
    [section] = parse_config(f"backend {name}\n  mode http\n").sections

    assert owner_of(section) == owner


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 500), max_size=20), st.integers(0, 300))
def test_no_namespace_gets_more_than_its_share_while_another_one_wants_more(wanted: dict[str, int], room: int) -> None:
    shares = share_room(wanted, room)

    assert shares.keys() == wanted.keys()
    assert sum(shares.values()) == min(room, sum(wanted.values()))
    for owner, share in shares.items():
        assert share <= wanted[owner]
        if share < wanted[owner]:
            assert share + 1 >= max(shares.values())


def many_servers(backend: str, first: int, count: int) -> str:
    lines = (f"  server s{number} 10.{first}.{number // 250}.{number % 250}:80\n" for number in range(count))
    return f"backend {backend}\n  mode http\n" + "".join(lines)


def of_backends(sizes: Mapping[str, int], first: int) -> Generation:
    """Return a generation with a backend for each name, whose servers have addresses of network *first*."""
    text = "".join(many_servers(name, first, size) for name, size in sizes.items())
    return make_generation(parse_config(text), [])


def changed_backends(operations: Iterable[Operation]) -> list[str]:
    """Return the backends of *operations*, in order, each once in a row."""
    return [name for name, _ in groupby(one.backend for one in operations if isinstance(one, SetServerAddress))]


def test_a_namespace_with_very_many_changes_keeps_no_other_one_waiting() -> None:
    sizes = {f"attacker_app{number}_80": 20 for number in range(300)} | {"victim_web_80": 3, "other_web_80": 5}
    running, desired = of_backends(sizes, 1), of_backends(sizes, 2)

    found = split_plan(running, desired, room=250)

    assert (found.reasons, found.is_partial, len(found.operations)) == ((), True, 250)
    # Smallest namespace first.
    assert changed_backends(found.operations)[:2] == ["victim_web_80", "other_web_80"]
    # What is recorded as running is what runs: the plan to it has these operations.
    assert found.effective is not None
    assert set(make_plan(running, found.effective).operations) == set(found.operations)


def test_namespaces_with_many_changes_share_the_room() -> None:
    sizes = {f"{namespace}_app{number}_80": 1 for namespace in ("a", "gateway::b") for number in range(200)}
    running, desired = of_backends(sizes, 1), of_backends(sizes, 2)

    found = split_plan(running, desired, room=100)

    begins = Counter(name.partition("_")[0] for name in changed_backends(found.operations))
    assert begins == {"a": 50, "gateway::b": 50}


@pytest.mark.parametrize("sizes", [{"a_big_80": 700}, {"a_one_80": 300, "a_two_80": 180, "b_web_80": 90}])
def test_repeated_partial_splits_lead_to_the_desired_generation(sizes: Mapping[str, int]) -> None:
    running, desired = of_backends(sizes, 1), of_backends({name: size + 40 for name, size in sizes.items()}, 2)
    counts = []
    while running.id != desired.id:
        found = split_plan(running, desired, NEWEST, room=100)
        assert found.reasons == ()
        assert found.effective is not None
        counts.append(len({(one.backend, one.server) for one in found.operations if isinstance(one, AddServer)}))
        counts[-1] += sum(isinstance(one, SetServerAddress) for one in found.operations)
        assert found.is_partial is (found.effective.id != desired.id)
        running = found.effective

    assert max(counts) == 100
    assert sum(counts) == sum(sizes.values()) + 40 * len(sizes)


def test_a_backend_that_changes_all_the_time_keeps_no_other_one_of_its_namespace_waiting() -> None:
    sizes = {f"a_app{number}_80": 10 for number in range(20)}
    running, seen = of_backends(sizes, 1), set[str]()
    for first in range(2, 202):
        found = split_plan(running, of_backends(sizes, first), room=10)
        assert found.effective is not None
        seen |= set(changed_backends(found.operations))
        running = found.effective

    assert seen == sizes.keys()


def test_a_reload_that_a_namespace_needs_is_found_while_another_one_has_very_many_changes() -> None:
    sizes = {f"attacker_app{number}_80": 20 for number in range(300)}
    before, after = (
        make_generation(parse_config(of_backends(sizes, first).text + f"backend victim_web_80\n  {line}\n"), [])
        for first, line in ((1, "balance source"), (2, "balance leastconn"))
    )

    found = split_plan(before, after, room=250)

    assert found.is_partial
    assert found.reasons == ("backend victim_web_80: directive 'balance' changed",)


def test_a_backend_whose_servers_cannot_be_changed_one_after_the_other_is_taken_alone() -> None:
    def of(first: int, web: int) -> Generation:
        # `default-server` after a server: not all inherit the same.
        text = many_servers("a_app_80", first, 300) + "  default-server maxconn 3\n" + many_servers("a_web_80", web, 20)
        return make_generation(parse_config(text), [])

    running, desired = of(1, 1), of(2, 2)
    steps = []
    while running.id != desired.id:
        found = split_plan(running, desired, room=100)
        assert found.effective is not None
        steps.append(tuple(sorted(changed_backends(found.operations))))
        running = found.effective

    assert sorted(steps) == [("a_app_80",), ("a_web_80",)]


def test_a_change_of_very_many_servers_needs_a_reload_and_goes_on_before_it() -> None:
    sizes = {f"a_app{number}_80": 1_000 for number in range(11)}

    found = split_plan(of_backends(sizes, 1), of_backends(sizes, 2), room=250)

    assert (found.is_partial, len(found.operations)) == (True, 250)
    assert found.reasons == ("servers: more than 10,000 changed",)
