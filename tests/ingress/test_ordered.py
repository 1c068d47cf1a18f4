"""The items of each namespace and the first ones are what a complete sort of all items gives."""

from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.ingress.ordered import ByNamespace

ITEMS = st.tuples(st.sampled_from("abc"), st.integers(0, 5))


@given(st.lists(ITEMS))
def test_lists_and_first_items_are_those_of_a_complete_sort(toggled: list[tuple[str, int]]) -> None:
    book, present = ByNamespace[tuple[int]](), set[tuple[str, int]]()
    for namespace, number in toggled:
        present ^= {(namespace, number)}
        book.change(namespace, (number,), is_there=(namespace, number) in present)
        lists = {one: sorted((item,) for owner, item in present if owner == one) for one, _ in present}
        assert book.lists == lists
        assert book.firsts == sorted(items[0] for items in lists.values())
