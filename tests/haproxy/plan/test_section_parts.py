"""Sections with a part of the servers of others: each is between the two, and the last one is the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.haproxy.config.parser import read_section
from haptic_trio.haproxy.model import Section
from haptic_trio.haproxy.plan.section_parts import take_apart, with_servers_of, with_some_servers_of

SERVERS = st.dictionaries(st.sampled_from([f"s{number}" for number in range(8)]), st.integers(1, 9), max_size=8)


def section(servers: dict[str, int], *lines: str) -> Section:
    """Return a backend with *servers* by name, whose addresses end in a number, after *lines*."""
    lines = (*lines, *(f"server {name} 10.0.0.{number}:80" for name, number in servers.items()))
    found = read_section("backend a_app_80\n" + "".join(f"  {line}\n" for line in lines))
    assert found is not None
    return found


def places(one: Section) -> dict[str, str]:
    return {line.words[1]: line.words[2] for line in one.all("server")}


@given(SERVERS, SERVERS, st.integers(1, 4), st.integers(0, 100))
def test_repeated_parts_lead_to_the_servers_of_the_other_section(
    before: dict[str, int], after: dict[str, int], count: int, start: int
) -> None:
    present, other = section(before, "balance random"), section(after, "balance random")
    for _ in range(len(before) + len(after) + 1):
        some = with_some_servers_of(present, other, count, start)
        assert some is not None
        changed = places(present).items() ^ places(some).items()
        assert len({name for name, _ in changed}) <= count
        # A name has its former place or its new one.
        assert places(some).items() <= places(present).items() | places(other).items()
        present = some

    assert places(present) == places(other)


def test_a_new_section_begins_with_some_of_its_servers() -> None:
    some = with_some_servers_of(None, section({"s1": 1, "s2": 2, "s3": 3}, "mode http"), 2, 0)

    assert some is not None
    assert some.text == "backend a_app_80\n  mode http\n  server s1 10.0.0.1:80\n  server s2 10.0.0.2:80\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (section({"s1": 1}, "balance source"), section({"s1": 2}, "balance random")),
        (section({"s1": 1}, "balance source"), section({"s1": 2})),
        (section({"s1": 1}, "server s1 10.0.0.8:80", "default-server check"), section({"s1": 2})),
    ],
)
def test_sections_that_differ_in_more_than_servers_have_no_part_between_them(before: Section, after: Section) -> None:
    assert with_some_servers_of(before, after, 1, 0) is None


def test_a_section_gets_servers_only_with_options_that_it_knows() -> None:
    before, after = section({"s1": 1}, "balance source"), section({"s1": 2, "s2": 3})
    strange = section({"s1": 2}, "server s2 10.0.0.3:80 backup")

    mixed = with_servers_of(before, after)
    assert mixed is not None
    assert places(mixed) == places(after)
    assert mixed.directives[0].words == ("balance", "source")
    assert with_servers_of(before, strange) is None


def test_a_section_whose_servers_do_not_inherit_the_same_is_not_taken_apart() -> None:
    assert take_apart(section({"s1": 1}, "server s0 10.0.0.8:80", "default-server check")) is None
    assert take_apart(section({"s1": 1}, "default-server check")) is not None
