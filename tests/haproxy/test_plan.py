import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.haproxy.maps import parse_map_file
from haptic_trio.haproxy.model import AuxFile, FileKind, Generation, make_file, make_generation
from haptic_trio.haproxy.operations import (
    AddMapEntry,
    DeleteMapEntry,
    Operation,
    Plan,
    ReplaceMap,
    SetMapEntry,
    SetServerAddress,
    SetServerState,
    SetServerWeight,
)
from haptic_trio.haproxy.parser import parse_config
from haptic_trio.haproxy.plan import make_plan

HEAD = "defaults\n  mode http\nfrontend web\n  bind 127.0.0.1:1\n  use_backend %[path,map({use})]\n"
MAP = "maps/p.map"


def _generation(text: str, *files: AuxFile) -> Generation:
    return make_generation(parse_config(text), files)


def _plan(before: str, after: str) -> Plan:
    return make_plan(_generation(before), _generation(after))


def _server_plan(before: str, after: str, extra: str = "") -> Plan:
    text = "defaults\n  mode http\nbackend app\n" + extra + "  server a 10.0.0.9:1\n  server {}\n"
    return _plan(text.format(before), text.format(after))


def _map_plan(before: str, after: str, use: str = f"{MAP},x") -> Plan:
    text = HEAD.format(use=use)
    old, new = (make_file(FileKind.MAP, MAP, content) for content in (before, after))
    return make_plan(_generation(text, old), _generation(text, new))


def test_the_first_generation_is_loaded() -> None:
    assert make_plan(None, _generation("global\n")) == Plan(reasons=("first generation",))


def test_an_identical_generation_needs_nothing() -> None:
    assert _plan("backend b\n", "backend b\n") == Plan()


def test_a_change_of_comments_needs_nothing() -> None:
    assert _plan("backend b\n", "# hello\nbackend 'b' # x\n") == Plan()


@pytest.mark.parametrize(
    ("before", "after", "operations"),
    [
        ("s 10.0.0.1:80", "s 10.0.0.2:80", [SetServerAddress("app", "s", "10.0.0.2", 80)]),
        ("s 10.0.0.1:80 check", "s 10.0.0.1:81 check", [SetServerAddress("app", "s", "10.0.0.1", 81)]),
        ("s 10.0.0.1:80", "s [2001:DB8::1]:80", [SetServerAddress("app", "s", "2001:db8::1", 80)]),
        ("s 10.0.0.1:80 weight 5", "s 10.0.0.1:80 weight 0", [SetServerWeight("app", "s", 0)]),
        ("s 10.0.0.1:80 weight 5", "s 10.0.0.1:80", [SetServerWeight("app", "s", 1)]),
        ("s 10.0.0.1:80", "s 10.0.0.1:80 weight 256", [SetServerWeight("app", "s", 256)]),
        ("s 10.0.0.1:80", "s 10.0.0.1:80 disabled", [SetServerState("app", "s", "maint")]),
        ("s 10.0.0.1:80 disabled check", "s 10.0.0.1:80 check", [SetServerState("app", "s", "ready")]),
        ("s 10.0.0.1:80 disabled", "s 10.0.0.1:80 disabled enabled", [SetServerState("app", "s", "ready")]),
        ("s 10.0.0.1:80 enabled", "s 10.0.0.1:80", []),
        ("s 10.0.0.1:80 weight 5 check", "s 10.0.0.1:80 check weight 5", []),
        (
            "s 10.0.0.1:80 inter 1s weight 1",
            "s 10.0.0.2:80 inter 1s weight 2 disabled",
            [
                SetServerAddress("app", "s", "10.0.0.2", 80),
                SetServerWeight("app", "s", 2),
                SetServerState("app", "s", "maint"),
            ],
        ),
    ],
)
def test_address_weight_and_state_of_a_server_need_no_reload(
    before: str, after: str, operations: list[Operation]
) -> None:
    assert _server_plan(before, after) == Plan(operations=tuple(operations))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("s 10.0.0.1:80", "s example.org:80"),
        ("s 10.0.0.1:80", "s 10.0.0.1"),
        ("s 10.0.0.1:80", "s 10.0.0.1:+80"),
        ("s 10.0.0.1:80", "s 10.0.0.1:0"),
        ("s 10.0.0.1:80", "s 10.0.0.256:80"),
        ("s 10.0.0.1:80", "s unix@/x"),
        ("s 10.0.0.1:80 resolvers r", "s 10.0.0.2:80 resolvers r"),
        ("s 10.0.0.1:80 init-addr none", "s 10.0.0.2:80 init-addr none"),
        ("s 10.0.0.1:80 track app/a", "s 10.0.0.1:80 track app/a disabled"),
        ("s 10.0.0.1:80 weight 1", "s 10.0.0.1:80 weight 300"),
        ("s 10.0.0.1:80", 's "$ADDRESS"'),
        ('s 10.0.0.1:80 cookie "$A"', 's 10.0.0.2:80 cookie "$A"'),
        ("s 10.0.0.1:80 source 1.1.1.1", "s 10.0.0.2:80 source 1.1.1.1"),
    ],
)
def test_everything_else_on_a_server_line_reloads_and_the_server_is_named(before: str, after: str) -> None:
    assert _server_plan(before, after) == Plan(reasons=("backend app: server 's' changed",))


@pytest.mark.parametrize(
    ("extra", "before", "after"),
    [
        ("  balance static-rr\n", "weight 1", "weight 2"),
        ("  balance source\n", "weight 1", "weight 2"),
        ("  balance uri\n  hash-type map-based\n", "weight 1", "weight 2"),
        ("  default-server disabled\n", "enabled", ""),
        ("  default-server disabled\n", "", "enabled"),
        ("  disabled\n", "weight 1", "weight 2"),
    ],
)
def test_what_the_section_says_of_its_servers_is_heeded(extra: str, before: str, after: str) -> None:
    assert _server_plan(f"s 10.0.0.1:80 {before}", f"s 10.0.0.1:80 {after}", extra).reloads


@pytest.mark.parametrize("extra", ["  balance leastconn\n", "  balance source\n  hash-type consistent\n"])
def test_weights_change_where_the_algorithm_takes_them(extra: str) -> None:
    plan = _server_plan("s 10.0.0.1:80 weight 1", "s 10.0.0.1:80 weight 2", extra)
    assert plan.operations == (SetServerWeight("app", "s", 2),)


@pytest.mark.parametrize(
    ("head", "reloads"),
    [
        ("defaults\n  balance source\nbackend app\n", True),
        ("defaults x\n  balance source\ndefaults y from x\nbackend app from y\n", True),
        ("defaults x\n  balance source\ndefaults\nbackend app\n", False),
        ("defaults x\n  balance source\ndefaults y from x\n  balance random\nbackend app from y\n", False),
        ("defaults\n  balance source\n  hash-type consistent\nbackend app\n", False),
    ],
)
def test_an_inherited_algorithm_is_heeded(head: str, *, reloads: bool) -> None:
    text = head + "  server s 10.0.0.1:80 weight {}\n"
    assert _plan(text.format(1), text.format(2)).reloads is reloads


def test_servers_of_a_listen_section_change_alike() -> None:
    text = "listen l\n  bind 127.0.0.1:1\n  server s 10.0.0.{}:80\n"
    assert _plan(text.format(1), text.format(2)).operations == (SetServerAddress("l", "s", "10.0.0.2", 80),)


def test_servers_of_peers_sections_reload() -> None:
    text = "peers p\n  bind 127.0.0.1:1\n  server s 10.0.0.{}:80\n"
    assert _plan(text.format(1), text.format(2)).reasons == ("peers p: server 's' changed",)


def test_where_conditions_decide_what_is_read_server_lines_reload() -> None:
    text = "backend b\n.if 1\n  server s 10.0.0.{}:80\n.endif\n"
    assert _plan(text.format(1), text.format(2)).reasons == ("backend b: server 's' changed",)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("", "backend api\n", "backend api added"),
        ("backend api\n", "", "backend api removed"),
        ("backend b\n", "backend b\n  balance leastconn\n", "backend b: directive 'balance' added"),
        ("backend b\n  balance first\n", "backend b\n", "backend b: directive 'balance' removed"),
        (
            "backend b\n  balance first\n",
            "backend b\n  balance leastconn\n",
            "backend b: directive 'balance' changed",
        ),
        ("global\n  maxconn 1\n", "global\n  maxconn 2\n", "global: directive 'maxconn' changed"),
        ("frontend f\n  acl a path /\n", "frontend f\n  acl a path /b\n", "frontend f: acl 'a' changed"),
        (
            "frontend f\n  mode http\n  acl a path /\n",
            "frontend f\n  acl a path /\n  mode http\n",
            "frontend f: acl 'a' moved",
        ),
        ("defaults d\nbackend b\n", "defaults d\nbackend b from d\n", "backend b: header changed"),
        ("defaults d\nbackend b\n", "backend b\ndefaults d\n", "order of sections changed"),
    ],
)
def test_each_reason_names_section_and_line(before: str, after: str, reason: str) -> None:
    assert _plan(before, after) == Plan(reasons=(reason,))


def test_a_reload_takes_in_everything_so_there_are_no_operations_beside_it() -> None:
    text = "backend a\n  server s 10.0.0.{}:80\nbackend b\n  balance {}\n"
    plan = _plan(text.format(1, "first"), text.format(2, "random"))
    assert plan == Plan(reasons=("backend b: directive 'balance' changed",))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (FileKind.CERT, "certificate x/y"),
        (FileKind.CRT_LIST, "crt-list x/y"),
        (FileKind.FILE, "file x/y"),
    ],
)
def test_files_reload_when_they_come_change_or_go(kind: FileKind, reason: str) -> None:
    text = "global\n"
    none, old = _generation(text), _generation(text, make_file(kind, "x/y", "1"))
    new = _generation(text, make_file(kind, "x/y", "2"))
    assert make_plan(none, new).reasons == (f"{reason} added",)
    assert make_plan(old, new).reasons == (f"{reason} changed",)
    assert make_plan(old, none).reasons == (f"{reason} removed",)


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
    text = "frontend f\n  mode http\n  acl a src -f maps/p.map\n"
    old, new = (make_file(FileKind.MAP, MAP, content) for content in ("10.0.0.1\n", "10.0.0.2\n"))
    assert make_plan(_generation(text, old), _generation(text, new)).reloads


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


server_lines = st.builds(
    " ".join,
    st.tuples(
        st.sampled_from(["10.0.0.1:80", "10.0.0.2:80", "[::1]:80", "host:80"]),
        st.sampled_from(["", "weight 1", "weight 9"]),
        st.sampled_from(["", "disabled", "enabled"]),
        st.sampled_from(["", "check", "check inter 1s"]),
    ),
)


@given(server_lines, server_lines)
def test_a_plan_never_has_both_reasons_and_operations_and_is_empty_for_no_change(before: str, after: str) -> None:
    plan = _server_plan(f"s {before}", f"s {after}")
    assert not (plan.reasons and plan.operations)
    assert before != after or plan == Plan()
