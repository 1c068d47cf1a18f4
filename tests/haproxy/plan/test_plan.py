from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from haptic_trio.chunked import Paged
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import AuxFile, Config, FileKind, Generation, make_file, make_generation
from haptic_trio.haproxy.plan.operations import (
    Operation,
    Plan,
    SetServerAddress,
    SetServerState,
    SetServerWeight,
)
from haptic_trio.haproxy.plan.plan import make_plan


def _generation(text: str, *files: AuxFile) -> Generation:
    return make_generation(parse_config(text), files)


def _plan(before: str, after: str) -> Plan:
    return make_plan(_generation(before), _generation(after))


def _server_plan(before: str, after: str, extra: str = "") -> Plan:
    text = "defaults\n  mode http\nbackend app\n" + extra + "  server a 10.0.0.9:1\n  server {}\n"
    return _plan(text.format(before), text.format(after))


def test_the_first_generation_is_loaded() -> None:
    assert make_plan(None, _generation("global\n")).reasons == ("unknown generation",)


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
    assert _server_plan(before, after).reasons == ("backend app: server 's' changed",)


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


def test_where_conditions_decide_what_servers_inherit_server_lines_reload() -> None:
    text = "defaults d\n.if 1\n  default-server ssl\n.endif\nbackend b from d\n  server s 10.0.0.{}:80\n"
    assert _plan(text.format(1), text.format(2)).reasons == ("backend b: server 's' changed",)


def test_where_conditions_decide_which_sections_there_are_server_lines_reload() -> None:
    text = "global\n.if 1\nbackend b\n.endif\n  server s 10.0.0.{}:80\n"
    assert _plan(text.format(1), text.format(2)).reasons == ("backend b: server 's' changed",)


def test_conditions_in_other_sections_are_no_reason_to_reload() -> None:
    text = "global\n.if version_atleast(3.0)\n  maxconn 1\n.endif\nbackend b\n  server s 10.0.0.{}:80\n"
    assert _plan(text.format(1), text.format(2)).operations == (SetServerAddress("b", "s", "10.0.0.2", 80),)


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
    assert _plan(before, after).reasons == (reason,)


def test_a_reload_takes_in_everything_so_there_are_no_operations_beside_it() -> None:
    text = "backend a\n  server s 10.0.0.{}:80\nbackend b\n  balance {}\n"
    plan = _plan(text.format(1, "first"), text.format(2, "random"))
    assert (plan.operations, plan.reasons) == ((), ("backend b: directive 'balance' changed",))


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


def test_reasons_take_linear_time_and_are_limited() -> None:
    def of(mode: str, first: int) -> str:
        servers = "".join(
            f"  server s{number} 10.0.{number // 250}.{number % 250 + first}:80\n" for number in range(4_000)
        )
        return f"backend app\n  mode {mode}\n{servers}"

    read = 0

    class Counting(tuple[str, ...]):
        __slots__ = ()

        def __getitem__(self, index: Any) -> Any:
            nonlocal read
            read += 1
            return super().__getitem__(index)

    def counting(generation: Generation) -> Generation:
        sections = [
            replace(one, directives=tuple(replace(line, words=Counting(line.words)) for line in one.directives))
            for one in generation.config.sections
        ]
        return replace(generation, config=Config(Paged.of(sections)))

    reasons = make_plan(counting(_generation(of("tcp", 1))), counting(_generation(of("http", 2)))).reasons

    assert reasons[:2] == ("backend app: directive 'mode' changed", "backend app: server 's0' changed")
    assert (len(reasons), reasons[-1]) == (21, "3,981 more")
    assert read < 500_000


def test_a_change_of_very_many_servers_needs_a_reload() -> None:
    def of(first: int, count: int) -> str:
        return "backend app\n  mode http\n" + "".join(
            f"  server s{n} 10.{first}.{n // 250}.{n % 250}:80\n" for n in range(count)
        )

    assert len(_plan(of(1, 10_000), of(2, 10_000)).operations) == 10_000
    assert _plan(of(1, 10_001), of(2, 10_001)).reasons[0] == "servers: more than 10,000 changed"
