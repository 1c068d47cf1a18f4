"""The difference of two views of a configuration turns the older view into the newer one."""

from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.console.configuration import MOST_DIFFERING, View, compare, section_lines

LINES = st.lists(st.sampled_from("abcd"), max_size=12)


def view(serial: int, *lines: str) -> View:
    """Return a view of these lines."""
    return View(
        path="haproxy.cfg", serial=serial, lines=lines, makers=("",) * len(lines), secrets=frozenset(), files=()
    )


@given(LINES, LINES)
def test_difference_turns_the_former_into_the_newer(before: list[str], after: list[str]) -> None:
    page = compare(view(1, *before), view(2, *after))

    gone = {line.line for line in page.lines if line.sign == "-"}
    came = {line.line: line.text for line in page.lines if line.sign == "+"}
    kept = iter([text for number, text in enumerate(before, 1) if number not in gone])
    assert [came[number] if number in came else next(kept) for number in range(1, len(after) + 1)] == after
    assert next(kept, None) is None
    assert (page.added, page.removed) == (len(came), len(gone))


def test_difference_of_everything_is_counted_only() -> None:
    page = compare(view(1, *map(str, range(MOST_DIFFERING + 1))), view(2, "other"))

    assert (page.added, page.removed, page.lines) == (1, MOST_DIFFERING + 1, ())


def test_a_line_at_the_margin_begins_a_section_only_by_its_word() -> None:
    lines = ["global", "maxconn 1", "", "# frontend x", "frontend web from plain", "http-request deny", "cache small"]

    assert section_lines(lines) == [1, 5, 7]
