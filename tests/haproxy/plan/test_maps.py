"""Entries of maps and of ACL lists change by runtime operations, and by a reload if no command can express them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.haproxy.config.maps import parse_map_file
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import AuxFile, FileKind, Generation, make_file, make_generation
from haptic_trio.haproxy.plan.operations import (
    AddAclEntry,
    AddMapEntry,
    DeleteAclEntry,
    DeleteMapEntry,
    Operation,
    Plan,
    ReplaceAcl,
    ReplaceMap,
    SetMapEntry,
)
from haptic_trio.haproxy.plan.plan import make_plan

HEAD = "defaults\n  mode http\nfrontend web\n  bind 127.0.0.1:1\n  use_backend %[path,map({use})]\n"
MAP = "maps/p.map"
LIST = "lists/p.txt"


def _generation(text: str, *files: AuxFile) -> Generation:
    return make_generation(parse_config(text), files)


def _map_plan(before: str, after: str, use: str = f"{MAP},x") -> Plan:
    text = HEAD.format(use=use)
    old, new = (make_file(FileKind.MAP, MAP, content) for content in (before, after))
    return make_plan(_generation(text, old), _generation(text, new))


@pytest.mark.parametrize(
    ("before", "after", "operations"),
    [
        ("a 1\n", "a 1\nb 2 3\n", [AddMapEntry(MAP, "b", "2 3")]),
        ("a 1\n", "a 2\n", [SetMapEntry(MAP, "a", "2")]),
        ("a 1\nb 2\n", "b 2\n", [DeleteMapEntry(MAP, "a")]),
        ("a 1\nb 2\n", "b 2\na 1\n", []),
        ("a 1\n", "# comment\n\n  a\t1\n", []),
        ("a 1\na 2\n", "a 1\na 3\n", [ReplaceMap(MAP, (("a", "1"), ("a", "3")))]),
        ("a 1\n", "a 1\na 1\n", [ReplaceMap(MAP, (("a", "1"), ("a", "1")))]),
        ("a 1\n #x 2\n", "a 1\n #x 3\n", [ReplaceMap(MAP, (("a", "1"), ("#x", "3")))]),
    ],
)
def test_entries_of_a_map_change_without_a_reload(before: str, after: str, operations: list[Operation]) -> None:
    assert _map_plan(before, after) == Plan(operations=tuple(operations))


def test_more_than_a_hundred_changes_replace_the_map_at_once() -> None:
    content = "".join(f"k{number} v\n" for number in range(100))
    assert len(_map_plan("", content).operations) == 100
    more = content + "k100 v\n"
    assert _map_plan("", more).operations == (ReplaceMap(MAP, parse_map_file(more.encode())),)


def test_no_path_falls_to_a_shorter_one_before_that_has_its_rules() -> None:
    text = HEAD.format(use=f"{MAP},x").replace(MAP, "maps/a.map") + f"    use_backend %[path,map_beg({MAP})]\n"
    # Each path of the first map has a shorter one in the second, which guards it after the change, or before it.
    before = {"maps/a.map": "/a/b guarded\n", MAP: "/a open\n/x guarded\n"}
    after = {"maps/a.map": "/x/y guarded\n", MAP: "/a guarded\n/x open\n"}
    running, desired = (
        _generation(text, *(make_file(FileKind.MAP, path, content) for path, content in files.items()))
        for files in (before, after)
    )
    assert make_plan(running, desired).operations == (
        AddMapEntry("maps/a.map", "/x/y", "guarded"),
        SetMapEntry(MAP, "/a", "guarded"),
        SetMapEntry(MAP, "/x", "open"),
        DeleteMapEntry("maps/a.map", "/a/b"),
    )


def test_a_path_removed_with_a_whole_map_does_not_fall_to_a_shorter_one_either() -> None:
    text = HEAD.format(use="maps/a.map,x") + f"    use_backend %[path,map_beg({MAP})]\n"
    more = "".join(f"/{number} app\n" for number in range(200))
    before = {"maps/a.map": f"/a/b guarded\n{more}", MAP: "/a open\n"}
    after = {"maps/a.map": "/c app\n/c app\n/1 app\n", MAP: ""}
    running, desired = (
        _generation(text, *(make_file(FileKind.MAP, path, content) for path, content in files.items()))
        for files in (before, after)
    )
    first, second, third = make_plan(running, desired).operations
    new = parse_map_file(after["maps/a.map"].encode())
    assert isinstance(first, ReplaceMap)
    assert first.entries[: len(new)] == new
    assert set(first.entries) == {*new, *parse_map_file(before["maps/a.map"].encode())}
    assert (second, third) == (DeleteMapEntry(MAP, "/a"), ReplaceMap("maps/a.map", new))


def test_where_the_order_of_keys_counts_the_map_is_replaced() -> None:
    text = HEAD.replace("map(", "map_reg(")
    running = _generation(text.format(use=MAP), make_file(FileKind.MAP, MAP, "^/a 1\n^/ 2\n"))
    desired = _generation(text.format(use=MAP), make_file(FileKind.MAP, MAP, "^/ 2\n^/a 1\n"))
    assert make_plan(running, desired).operations == (ReplaceMap(MAP, (("^/", "2"), ("^/a", "1"))),)


def test_a_map_that_the_process_does_not_know_is_only_written() -> None:
    assert _map_plan("a 1\n", "a 2\n", use="maps/other.map,x") == Plan()
    text = HEAD.format(use="maps/other.map")
    assert make_plan(_generation(text), _generation(text, make_file(FileKind.MAP, MAP, "a 1\n"))) == Plan()


@pytest.mark.parametrize("after", ["a\n", "a b\0\n", "a b\rc\n", f"a {'v' * 5000}\n"])
def test_entries_that_no_command_can_carry_reload(after: str) -> None:
    (reason,) = _map_plan("a 1\n", after).reasons
    assert reason.startswith(f"map {MAP} changed: ")


def test_a_map_used_for_something_else_reloads() -> None:
    text = "frontend f\n  mode http\n  acl a src -u 9 -f maps/p.map\n"
    old, new = (make_file(FileKind.MAP, MAP, content) for content in ("10.0.0.1\n", "10.0.0.2\n"))
    assert make_plan(_generation(text, old), _generation(text, new)).reloads


def _list_plan(before: str, after: str, *, kind: FileKind = FileKind.FILE) -> Plan:
    text = f"defaults\n  mode http\nfrontend web\n  http-request deny if {{ src -f {LIST} }}\n"
    old, new = (make_file(kind, LIST, content) for content in (before, after))
    return make_plan(_generation(text, old), _generation(text, new))


@pytest.mark.parametrize("kind", [FileKind.FILE, FileKind.MAP])
@pytest.mark.parametrize(
    ("before", "after", "operations"),
    [
        ("a\n", "a\nb c\n", [AddAclEntry(LIST, "b c")]),
        ("a\nb\n", "b\n", [DeleteAclEntry(LIST, "a")]),
        # One that is written otherwise is there before the other one goes.
        (
            "10.0.0.0/8\n",
            "10.0.0.0/255.0.0.0\n",
            [AddAclEntry(LIST, "10.0.0.0/255.0.0.0"), DeleteAclEntry(LIST, "10.0.0.0/8")],
        ),
        ("a\nb\n", "# comment\n\n  b\n\ta", []),
        ("a\n", "a \n", [AddAclEntry(LIST, "a "), DeleteAclEntry(LIST, "a")]),
        # Of a key that is there twice, some versions remove one and some both.
        ("a\nb\na\n", "b\na\n", [ReplaceAcl(LIST, ("b", "a"))]),
        ("a\n", "a\na\n", [ReplaceAcl(LIST, ("a", "a"))]),
        ("a\n #x\n", "a\n", [ReplaceAcl(LIST, ("a",))]),
        ("a\n", "", [DeleteAclEntry(LIST, "a")]),
    ],
)
def test_keys_in_the_list_of_an_acl_change_without_a_reload(
    before: str, after: str, operations: list[Operation], kind: FileKind
) -> None:
    assert _list_plan(before, after, kind=kind) == Plan(operations=tuple(operations))


def test_more_than_a_hundred_changes_replace_a_list_at_once() -> None:
    keys = [f"k{number}" for number in range(101)]
    assert _list_plan("", "\n".join(keys)).operations == (ReplaceAcl(LIST, tuple(keys)),)


@pytest.mark.parametrize("after", ["a\0\n", f"{'v' * 5000}\n"])
def test_keys_that_no_command_can_carry_reload(after: str) -> None:
    assert _list_plan("a\n", after).reasons == (f"file {LIST} changed: an entry cannot be sent as a command",)


def test_a_list_reloads_when_it_comes_or_goes_or_is_used_otherwise_as_well() -> None:
    use = "frontend f\n  mode http\n  http-request deny if {{ src -f {} }}\n"
    text = use.format(LIST)
    without, old, new = (_generation(text, *files) for files in ((), (_list("a\n"),), (_list("b\n"),)))
    assert make_plan(without, new).reasons == (f"file {LIST} added",)
    assert make_plan(old, without).reasons == (f"file {LIST} removed",)
    text += f"  http-request return content-type text/plain file {LIST}\n"
    old, new = _generation(text, _list("a\n")), _generation(text, _list("b\n"))
    assert make_plan(old, new).reasons == (f"file {LIST} changed",)


def _list(content: str) -> AuxFile:
    return make_file(FileKind.FILE, LIST, content)


lists = st.lists(
    st.text("ab# ", min_size=1, max_size=2).map(lambda key: f"a{key}" if key[0] == " " else key), max_size=6
)


@given(lists, lists)
def test_the_operations_turn_one_list_into_the_other(before: list[str], after: list[str]) -> None:
    def content(entries: list[str]) -> str:
        return "".join(f" {key}\n" for key in entries)

    keys = list(before)
    for operation in _list_plan(content(before), content(after)).operations:
        match operation:
            case AddAclEntry(_, key):
                keys.append(key)
            case DeleteAclEntry(_, key):
                # As those versions do it that remove one.
                keys.remove(key)
            case ReplaceAcl(_, replaced):
                keys = list(replaced)
    assert sorted(keys) == sorted(after)


keys = st.text("abc#", min_size=1, max_size=2)
maps = st.lists(st.tuples(keys, st.text("xy", min_size=1, max_size=2)), max_size=6)


@given(maps, maps)
def test_the_operations_turn_one_map_into_the_other(
    before: list[tuple[str, str]], after: list[tuple[str, str]]
) -> None:
    def content(entries: list[tuple[str, str]]) -> str:
        return "".join(f" {key} {value}\n" for key, value in entries)

    entries = list(before)
    for operation in _map_plan(content(before), content(after)).operations:
        match operation:
            case AddMapEntry(_, key, value):
                entries.append((key, value))
            case SetMapEntry(_, key, value):
                entries = [(name, value if name == key else old) for name, old in entries]
            case DeleteMapEntry(_, key):
                entries = [entry for entry in entries if entry[0] != key]
            case ReplaceMap(_, replaced):
                entries = list(replaced)
    first = dict(reversed(entries))
    assert first == dict(reversed(after))
