from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.pages import PAGE_SIZE, Page, Paged, Shelf, differences


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400), st.integers()), max_size=600))
def test_shelf_holds_what_a_dictionary_would_in_order_of_keys(steps):
    shelf: Shelf[int, int] = Shelf()
    model: dict[int, int] = {}
    for is_put, key, value in steps:
        if is_put:
            shelf.put(key, value)
            model[key] = value
        else:
            shelf.remove(key)
            model.pop(key, None)
    assert list(shelf.paged()) == [value for _, value in sorted(model.items())]
    assert len(shelf) == len(shelf.paged()) == len(model)


@given(st.integers(1, 2000), st.data())
def test_change_of_one_item_replaces_one_page_or_splits_it(count, data):
    shelf = Shelf((key, str(key)) for key in range(0, 2 * count, 2))
    before = shelf.paged()
    key = data.draw(st.integers(0, 2 * count))
    shelf.put(key, "new")
    after = shelf.paged()
    assert len(set(after.pages) - set(before.pages)) in {1, 2}
    removed, added = differences(before, after)
    assert "new" in added
    assert set(before) - set(removed) <= set(after)
    assert max(len(removed), len(added)) <= 2 * PAGE_SIZE + 1


def test_same_item_put_again_keeps_the_page():
    item = "x"
    shelf = Shelf([(1, item)])
    before = shelf.paged()
    shelf.put(1, item)
    assert shelf.paged().pages == before.pages


def test_summary_is_computed_once_for_each_page_and_function():
    calls: list[tuple[int, ...]] = []

    def total(items: tuple[int, ...]) -> int:
        calls.append(items)
        return sum(items)

    shared = Page((1, 2))
    assert Paged([shared, Page((3,))]).summaries(total) == [3, 3]
    assert Paged([Page((4,)), shared]).summaries(total) == [4, 3]
    assert calls == [(1, 2), (3,), (4,)]


def test_pages_without_items_are_left_out():
    assert len(Paged([Page(()), Page((1,))]).pages) == 1
    assert list(Paged.of(range(5))) == [0, 1, 2, 3, 4]
