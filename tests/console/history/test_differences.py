"""The difference of two texts turns the older one into the newer one, whatever chunks they share."""

from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.chunked import Page, Paged, Piece, Shelf
from haptic_trio.console.history import differences
from haptic_trio.console.history.differences import (
    LONGEST,
    MOST_DIFFERING,
    MOST_STEPS,
    Budget,
    Difference,
    Line,
    Text,
    compare,
    compare_texts,
)
from haptic_trio.templating.values.subjects import Origin, Subject

LINES = st.lists(st.sampled_from("abcdefgh"), max_size=12)
CHUNK = st.text("ab\n", max_size=4)


def lines(*texts: str) -> list[Line]:
    """Return lines with these texts."""
    return [Line(text) for text in texts]


def text(paged: Paged[Piece], secret: str = "") -> Text:
    """Return a version in which the pieces with *secret* derive from a Secret."""
    return Text(
        paged,
        {
            page: frozenset(at for at, piece in enumerate(page.items) if secret and secret in piece.text)
            for page in paged.pages
        },
    )


def applied(found: Difference, before: list[str]) -> list[str]:
    """Return *before* with the difference *found*."""
    gone = {line.line for line in found.lines if line.sign == "-"}
    came = {line.line: line.text for line in found.lines if line.sign == "+"}
    kept = iter([one for number, one in enumerate(before, 1) if number not in gone])
    length = len(before) - len(gone) + len(came)
    return [came[number] if number in came else next(kept) for number in range(1, length + 1)]


@given(LINES, LINES)
def test_difference_turns_the_former_into_the_newer(before: list[str], after: list[str]) -> None:
    found = compare(lines(*before), lines(*after))

    assert applied(found, before) == after
    assert (found.added, found.removed) == tuple(sum(one.sign == sign for one in found.lines) for sign in "+-")


@given(st.lists(CHUNK, max_size=12), st.lists(st.tuples(st.integers(0, 11), CHUNK), max_size=4), st.integers(1, 3))
def test_chunks_need_not_end_where_lines_end(chunks: list[str], changes: list[tuple[int, str]], size: int) -> None:
    pieces = [Piece(one) for one in chunks if one]
    before = Paged(Page(tuple(pieces[at : at + size])) for at in range(0, len(pieces), size))
    pages = list(before.pages)
    for at, changed in changes:
        if pages and changed:
            pages[at % len(pages)] = Page((Piece(changed),))
    after = Paged(pages)

    found = compare_texts(text(before), text(after))

    assert applied(found, split(before)) == split(after)


def split(paged: Paged[Piece]) -> list[str]:
    """Return the lines of *paged*."""
    whole = "".join(piece.text for piece in paged).split("\n")
    return whole if whole[-1] else whole[:-1]


def test_only_chunks_that_are_not_shared_are_read() -> None:
    shelf = Shelf((number, Piece(f"line {number}\n")) for number in range(1000))
    before = shelf.paged()
    shelf.put(500, Piece("another\n", Origin("web", Subject("Ingress", "default", "web"), "t", 1)))
    after = shelf.paged()
    # Other pages are not classified, so their lines cannot be read.
    near = {page: frozenset[int]() for paged in (before, after) for page in paged.pages[6:9]}

    found = compare_texts(Text(before, near), Text(after, near))

    assert [(one.sign, one.line, one.text, one.made_by) for one in found.lines] == [
        ("-", 501, "line 500", ""),
        ("+", 501, "another", "Ingress default/web"),
    ]


def test_a_line_with_a_part_of_a_secret_is_redacted_as_a_whole() -> None:
    before = Paged.of([Piece("a\n")])
    after = Paged.of([Piece("a\n"), Piece("auth "), Piece("hunter2"), Piece(" end\n"), Piece("b\n")])

    found = compare_texts(text(before), text(after, "hunter2"))

    shown = [one.text for one in found.lines]
    assert shown[0].startswith("secret, digest ")
    assert shown[1:] == ["b"]


def test_difference_of_everything_is_counted_only() -> None:
    found = compare(lines(*map(str, range(MOST_DIFFERING + 1))), lines("other"))

    assert (found.added, found.removed, found.lines) == (1, MOST_DIFFERING + 1, ())


def test_makers_of_lines_that_are_counted_only_are_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """To name them for a change in every backend took 0.1 s beside the deployment of this change."""
    shelf = Shelf((number, Piece(f"line {number}\n")) for number in range(MOST_DIFFERING + 100))
    before = shelf.paged()
    for number in range(50, MOST_DIFFERING + 80):
        shelf.put(number, Piece(f"changed {number}\nand another\n"))
    after = shelf.paged()
    monkeypatch.setattr(differences, "_line", pytest.fail)

    found = compare_texts(text(before), text(after))

    assert (found.added, found.removed, found.lines) == (2 * (MOST_DIFFERING + 30), MOST_DIFFERING + 30, ())


def test_a_long_line_is_cut() -> None:
    found = compare([], lines("x" * 5000))

    assert len(found.lines[0].text) == LONGEST + 1


def test_lines_that_are_repeated_very_often_take_little_processor_time() -> None:
    """A tenant may have a backend with thousands of equal lines; it took a minute to compare these."""
    before, after = ["a", "b"] * 900, ["b", *["a", "a"] * 900]

    began = thread_time()
    found = compare(lines(*before), lines(*after))

    assert thread_time() - began < 5
    assert found.added - found.removed == len(after) - len(before)


def test_lines_that_each_backend_repeats_are_not_searched() -> None:
    def backends(*servers: int) -> list[str]:
        return [
            line for number, at in enumerate(servers) for line in (f"backend {number}", "  mode http", f"  server {at}")
        ]

    budget = Budget()
    found = compare(lines(*backends(*range(500))), lines(*backends(9, *range(1, 499), 9)), budget=budget)

    assert [(one.sign, one.line, one.text) for one in found.lines] == [
        ("-", 3, "  server 0"),
        ("+", 3, "  server 9"),
        ("-", 1500, "  server 499"),
        ("+", 1500, "  server 9"),
    ]
    assert MOST_STEPS - budget.steps < 100


def test_all_ranges_of_two_versions_share_the_steps_of_the_search() -> None:
    budget = Budget()
    budget.steps = 10

    found = [compare(lines(*"abab"), lines(*"bxaxb"), budget=budget) for _ in range(3)]

    assert [one.removed for one in found] != [found[0].removed] * 3
    assert found[-1].removed == 3
