"""The first lines of sections."""

from haptic_trio.console.configuration import section_lines


def test_a_line_at_the_margin_begins_a_section_only_by_its_word() -> None:
    lines = ["global", "maxconn 1", "", "# frontend x", "frontend web from plain", "http-request deny", "cache small"]

    assert section_lines(lines) == [1, 5, 7]
