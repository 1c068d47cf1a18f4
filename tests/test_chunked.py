import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.chunked import PAGE_SIZE, Page, Paged, Shelf, Splice, changed_items, differences, spliced, stretches


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400), st.integers()), max_size=600))
def test_shelf_holds_what_a_dictionary_would_in_order_of_keys(steps: list[tuple[bool, int, int]]) -> None:
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
def test_change_of_one_item_replaces_one_page_or_splits_it(count: int, data: st.DataObject) -> None:
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


def test_same_item_put_again_keeps_the_page() -> None:
    item = "x"
    shelf = Shelf([(1, item)])
    before = shelf.paged()
    shelf.put(1, item)
    assert shelf.paged().pages == before.pages


def test_summary_is_computed_once_for_each_page_and_function() -> None:
    calls: list[tuple[int, ...]] = []

    def total(items: tuple[int, ...]) -> int:
        calls.append(items)
        return sum(items)

    shared = Page((1, 2))
    assert Paged([shared, Page((3,))]).summaries(total) == [3, 3]
    assert Paged([Page((4,)), shared]).summaries(total) == [4, 3]
    assert calls == [(1, 2), (3,), (4,)]


def test_pages_without_items_are_left_out() -> None:
    assert len(Paged([Page(()), Page((1,))]).pages) == 1
    assert list(Paged.of(range(5))) == [0, 1, 2, 3, 4]


edits = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(0, 200)), max_size=5)


@given(st.integers(0, 700), edits)
def test_spliced_has_the_other_items_and_shares_the_other_pages(count: int, steps: list[tuple[int, int, int]]) -> None:
    items = list(range(count))
    splices: list[Splice[int]] = []
    expected: list[int] = []
    at = 0
    for skipped, removed, added in steps:
        start = min(count, at + skipped)
        end = min(count, start + removed)
        splices.append(Splice(start, end - start, tuple(range(10_000, 10_000 + added))))
        expected += items[at:start] + list(splices[-1].added)
        at = end
    before = Paged.of(items)
    after = spliced(before, splices)
    assert list(after) == expected + items[at:]
    assert [after[index] for index in (0, -1)] == [expected[0], list(after)[-1]] if expected else True
    touched = sum(len(splice.added) + splice.removed for splice in splices) + 2 * PAGE_SIZE * len(splices)
    assert len(set(before.pages) - set(after.pages)) <= touched // PAGE_SIZE + 2 * len(splices)


@pytest.mark.parametrize("splices", [[Splice(5, 1, ())], [Splice(2, 1, ()), Splice(1, 1, ())], [Splice(1, -1, ())]])
def test_splices_that_do_not_fit_are_rejected(splices: list[Splice[int]]) -> None:
    with pytest.raises(ValueError, match="splice"):
        spliced(Paged.of(range(5)), splices)


pages = st.lists(st.sampled_from([Page((number,)) for number in range(6)]), unique=True)


@given(pages, pages)
def test_stretches_lead_from_one_sequence_to_the_other(one: list[Page[int]], other: list[Page[int]]) -> None:
    before, after = Paged(one), Paged(other)
    found = stretches(before, after)
    shared = [page for page in one if page in other]
    assert (found is None) is (shared != [page for page in other if page in one])
    rebuilt: list[Page[int]] = []
    at = 0
    for stretch in found or ():
        assert stretch.at == stretch.page >= at
        rebuilt += one[at : stretch.page]
        assert tuple(one[stretch.page : stretch.page + len(stretch.before)]) == stretch.before
        assert not set(stretch.before) & set(other)
        rebuilt += stretch.after
        at = stretch.page + len(stretch.before)
    assert found is None or rebuilt + one[at:] == other


def test_an_item_beyond_the_end_is_an_error() -> None:
    assert Paged.of("abc")[-3] == "a"
    for index in (3, -4):
        with pytest.raises(IndexError):
            Paged.of("abc")[index]


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=600))
def test_changed_items_are_those_that_one_sequence_alone_has(places: list[tuple[bool, bool]]) -> None:
    items = [object() for _ in places]
    before = [item for item, (is_before, _) in zip(items, places, strict=True) if is_before]
    after = [item for item, (_, is_after) in zip(items, places, strict=True) if is_after]

    assert changed_items(before, after) == (
        [item for item in before if item not in after],
        [item for item in after if item not in before],
    )
