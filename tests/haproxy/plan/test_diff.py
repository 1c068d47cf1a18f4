import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import FileKind, make_file, make_files
from haptic_trio.haproxy.plan.diff import ConfigDiff, diff_configs, diff_files

BASE = "global\ndefaults\n  mode http\nfrontend f\n  bind :80\nbackend a\n  server s 1.1.1.1:1\nbackend b\n"


def _diff(before: str, after: str) -> ConfigDiff:
    return diff_configs(parse_config(before), parse_config(after))


def test_notation_makes_no_difference() -> None:
    assert _diff(BASE, "# new\n" + BASE.replace("  mode http", "\tmode 'http' # x")).is_empty


def test_added_removed_and_changed_sections_are_distinguished() -> None:
    diff = _diff(BASE, BASE.replace("backend b\n", "backend c\n").replace("1.1.1.1:1", "1.1.1.1:2"))
    assert [one.key for one in diff.added] == [("backend", "c")]
    assert [one.key for one in diff.removed] == [("backend", "b")]
    (change,) = diff.changed
    assert change.running.key == ("backend", "a")
    assert [one.words for one in change.removed] == [("server", "s", "1.1.1.1:1")]
    assert [one.words for one in change.added] == [("server", "s", "1.1.1.1:2")]
    assert not diff.reordered
    assert not change.header_changed


def test_the_order_of_lines_counts() -> None:
    one, other = "  http-request deny if TRUE\n", "  http-request allow if FALSE\n"
    (change,) = _diff(f"frontend f\n{one}{other}", f"frontend f\n{other}{one}").changed
    assert len(change.removed) == len(change.added) == 1


def test_a_changed_header_is_seen() -> None:
    text = "defaults d\ndefaults e\nbackend b from d\n"
    (change,) = _diff(text, text.replace("from d", "from e")).changed
    assert change.header_changed
    assert change.removed == change.added == ()


def test_unnamed_sections_are_compared_in_order() -> None:
    diff = _diff("global\n  maxconn 1\nglobal\n  nbthread 1\n", "global\n  maxconn 1\nglobal\n  nbthread 2\nglobal\n")
    assert len(diff.changed) == len(diff.added) == 1
    assert diff.changed[0].running.directives[0].words == ("nbthread", "1")


@pytest.mark.parametrize(
    ("before", "after", "reordered"),
    [
        ("backend a\nbackend b\n", "backend b\nbackend a\n", False),
        ("frontend f\nbackend b\n", "backend b\nfrontend f\n", False),
        ("defaults\n  mode http\nbackend b\n", "backend b\ndefaults\n  mode http\n", True),
        ("defaults x\nbackend b from x\nbackend c\n", "defaults x\nbackend c\nbackend b from x\n", False),
        ("defaults x\ndefaults y\nbackend b\n", "defaults y\ndefaults x\nbackend b\n", True),
        ("defaults x\nbackend b\ndefaults y\n", "defaults x\ndefaults y\nbackend b\n", True),
        ("defaults x\nbackend b from x\ndefaults y\n", "defaults x\ndefaults y\nbackend b from x\n", False),
        ("global\n  maxconn 1\ndefaults\nbackend b\n", "defaults\nglobal\n  maxconn 1\nbackend b\n", True),
        ("backend a\n.if 1\nbackend b\n.endif\n", "backend a\n.if 1\n'backend' b\n.endif\n", False),
        (".if 1\nbackend a\nbackend b\n.endif\n", ".if 0\nbackend a\nbackend b\n.endif\n", True),
        (".notice x\nbackend a\nbackend b\n", ".notice x\nbackend b\nbackend a\n", True),
    ],
)
def test_order_of_sections_matters_only_if_it_has_a_meaning(before: str, after: str, *, reordered: bool) -> None:
    diff = _diff(before, after)
    assert diff.reordered is reordered
    assert diff.added == diff.removed == ()


lines = st.lists(st.sampled_from([" acl a path /\n", " acl b path /\n", " mode http\n", " retries 1\n"]), max_size=8)


@given(lines, lines)
def test_removing_and_adding_the_differing_lines_leads_from_one_section_to_the_other(
    before: list[str], after: list[str]
) -> None:
    diff = _diff("backend x\n" + "".join(before), "backend x\n" + "".join(after))
    assert diff.is_empty is (before == after)
    for change in diff.changed:
        gone, new = {one.line - 2 for one in change.removed}, {one.line - 2 for one in change.added}
        kept = [line for index, line in enumerate(before) if index not in gone]
        assert kept == [line for index, line in enumerate(after) if index not in new]


def test_sections_of_thousands_of_differing_lines_are_compared_at_once() -> None:
    before = "".join(f"  acl a{number} path /\n" for number in range(3000))
    (change,) = _diff("frontend f\n" + before, "frontend f\n" + before.replace("acl a", "acl b")).changed
    assert len(change.removed) == len(change.added) == 3000


def test_files_differ_by_presence_kind_and_content() -> None:
    same, old = make_file(FileKind.FILE, "same", "x"), make_file(FileKind.FILE, "kind", "x")
    running = make_files((same, old, make_file(FileKind.MAP, "m", "a b\n"), make_file(FileKind.CERT, "gone", "c")))
    desired = make_files(
        (
            make_file(FileKind.FILE, "same", "x"),
            make_file(FileKind.MAP, "kind", "x"),
            make_file(FileKind.MAP, "m", "a c\n"),
            make_file(FileKind.CERT, "new", "c"),
        )
    )
    changes = diff_files(running, desired)
    assert [one.path for one in changes] == ["gone", "kind", "m", "new"]
    assert changes[0].desired is None
    assert changes[3].running is None
