"""Each namespace has a share of the hosts that a line of a crt-list excludes from a wildcard."""

from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.gateway.listeners.exclusions import Exclusion, Room, choose

ROOM = Room(hosts=20, size=200, share_hosts=5, share_size=50)
GROUP = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)), max_size=4)


def owned(namespace: str, count: int, length: int = 5) -> tuple[str, list[str]]:
    return namespace, [f"{namespace}{number}".ljust(length, "x") for number in range(count)]


def test_each_namespace_has_its_share_whatever_others_have() -> None:
    hosts = choose([[owned("a", 500)], [owned("b", 3), owned("c", 500)]], ROOM)

    assert len(hosts) == 20
    assert set(owned("b", 3)[1]) < set(hosts)
    assert set(owned("c", 5)[1]) < set(hosts)
    assert set(owned("a", 12)[1]) < set(hosts)


def test_room_beyond_the_shares_is_given_in_turn() -> None:
    hosts = choose([[owned("a", 500), owned("b", 9)]], ROOM)

    assert {name: sum(host.startswith(name) for host in hosts) for name in "ab"} == {"a": 11, "b": 9}


def test_long_hosts_count_by_their_length() -> None:
    hosts = choose([[owned("a", 500, length=40), owned("b", 5, length=8)]], ROOM)

    assert set(owned("b", 5, length=8)[1]) < set(hosts)
    assert sum(len(host) + 2 for host in hosts) <= ROOM.size


def test_shares_that_do_not_fit_are_reported() -> None:
    exclusion = Exclusion(ROOM)

    assert exclusion.add_shares([owned(name, 500) for name in "abcd"])
    assert exclusion.add_shares([])
    assert not exclusion.add_shares([owned("e", 1)])
    assert len(exclusion.hosts) == ROOM.hosts


@given(st.lists(GROUP, min_size=1, max_size=2))
def test_a_line_is_never_too_long_and_has_all_hosts_that_fit(groups: list[list[tuple[int, int]]]) -> None:
    found = [
        [owned(f"{letter}{number}-", count, length) for number, (count, length) in enumerate(group)]
        for letter, group in zip("ab", groups, strict=False)
    ]
    every = {host for group in found for _, hosts in group for host in hosts}

    hosts = choose(found, ROOM)

    size = sum(len(host) + 2 for host in hosts)
    assert len(set(hosts)) == len(hosts) <= ROOM.hosts
    assert size <= ROOM.size
    assert set(hosts) <= every
    fits = len(every) <= ROOM.hosts and sum(len(host) + 2 for host in every) <= ROOM.size
    assert (set(hosts) == every) == fits
