"""The intersection of two host names matches the hosts that both names match."""

from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.gateway.hostnames import ANY, covers, intersection, is_hostname, specificity, wider

LABELS = st.sampled_from(["a", "b", "c-d", "xn--e"])
NAMES = st.lists(LABELS, min_size=1, max_size=5).map(".".join)
HOSTNAMES = st.one_of(st.just(ANY), NAMES, NAMES.map("*.".__add__))


def stands_for(pattern: str, host: str) -> bool:
    """Whether *pattern* covers the host name of a request, as the API words it."""
    if pattern == ANY:
        return True
    if not pattern.startswith("*."):
        return pattern == host
    labels, suffix = host.split("."), pattern[2:].split(".")
    return len(labels) > len(suffix) and labels[-len(suffix) :] == suffix


@given(HOSTNAMES, HOSTNAMES, NAMES)
def test_the_intersection_matches_the_hosts_that_both_match(one: str, other: str, host: str) -> None:
    common = intersection(one, other)

    both = stands_for(one, host) and stands_for(other, host)
    assert both == (common is not None and stands_for(common, host))


@given(HOSTNAMES, HOSTNAMES)
def test_the_intersection_does_not_depend_on_the_order(one: str, other: str) -> None:
    assert intersection(one, other) == intersection(other, one)


@given(NAMES)
def test_wider_names_cover_a_name_and_become_less_specific(host: str) -> None:
    names = list(wider(host))

    assert all(stands_for(name, host) and covers(name, host) for name in names)
    assert len(names) == host.count(".")
    ranks = [specificity(name) for name in (host, *names, ANY)]
    assert ranks == sorted(ranks, reverse=True)


@given(HOSTNAMES)
def test_every_name_of_the_strategies_is_one(hostname: str) -> None:
    assert hostname == ANY or is_hostname(hostname)


def test_invalid_host_names_are_rejected() -> None:
    for text in ("", "*", "*.", "a..b", "-a", "a|b", "a b", "A", "*.*.a", "a.*", "x" * 64, ".".join(["abc"] * 64)):
        assert not is_hostname(text), text
