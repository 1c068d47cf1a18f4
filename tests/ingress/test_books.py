"""Register of the Ingresses of a host: contests follow each change, at the cost of the change."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from haptic_trio.ingress.books import Contested, HostBook
from haptic_trio.ingress.served import Age, Served, Vendors, served_by
from tests.support.kubernetes import ingress, path, rule

HOST = "shop.test"
VENDORS = Vendors({})
CHANGES = st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc"), st.sampled_from(["/a", "/b"])), max_size=40)


class Counted(str):
    """A namespace that counts how often it is compared."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__ne__(self, other)

    __hash__ = str.__hash__


def claim(age: Age, *paths: str) -> Served:
    return replace(served_by(ingress("x", rule(HOST, *(path(one, "web") for one in paths))), VENDORS), age=age)


def contest_of(ages: list[Age]) -> Contested | None:
    """Return the contest among *ages*, by all of them."""
    if not ages:
        return None
    holder = min(ages)
    rivals = [age for age in ages if age[1] != holder[1]]
    return Contested(holder, min(rivals)) if rivals else None


@given(CHANGES)
def test_contests_are_those_of_the_present_ingresses(changes: list[tuple[int, str, str]]) -> None:
    book = HostBook(HOST)
    present: dict[Age, str] = {}
    for number, namespace, where in changes:
        age = (f"2026-01-0{number}", namespace, "x")
        if age in present:
            book.change(claim(age, present.pop(age)), is_there=False)
        else:
            present[age] = where
            book.change(claim(age, where), is_there=True)

        found = {one: contest_of([age for age, own in present.items() if own == one]) for one in ("/a", "/b")}
        assert book.contests == {one: contest for one, contest in found.items() if contest is not None}
        firsts = {namespace: min(age for age in present if age[1] == namespace) for _, namespace, _ in present}
        assert book.firsts == sorted(firsts.values())


def comparisons(number: int) -> int:
    """Return how often namespaces are compared while *number* Ingresses for one path come and go."""
    book = HostBook(HOST)
    claims = [claim((f"{one:05}", Counted("a"), "x"), "/a") for one in range(number)]
    Counted.comparisons = 0
    for is_there in (True, False):
        for one in claims:
            book.change(one, is_there=is_there)
    assert not book.firsts
    return Counted.comparisons


def test_a_path_that_very_many_ingresses_have_costs_each_change_the_same() -> None:
    assert comparisons(800) <= 5 * comparisons(200)
