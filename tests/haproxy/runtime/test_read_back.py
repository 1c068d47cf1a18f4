"""Differences between a process and its generation: detection, distinction from changes by HAProxy itself, repair."""

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.dataplane.binary import HaproxyVersion
from haptic_trio.haproxy.config.maps import parse_map_file
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import FileKind, Generation, make_file, make_generation
from haptic_trio.haproxy.plan.capabilities import Capabilities, capabilities_of, read_capabilities
from haptic_trio.haproxy.plan.operations import (
    AddServer,
    DeleteBackend,
    DeleteServer,
    Operation,
    ReplaceMap,
    SetServerAddress,
    SetServerState,
    SetServerWeight,
)
from haptic_trio.haproxy.runtime.differences import Kind, count_kinds, reload_reasons, repair_operations
from haptic_trio.haproxy.runtime.read_back import Differences, ReadBack
from haptic_trio.haproxy.runtime.replies import UnreadableReplyError, parse_servers_state
from tests.haproxy.carrying_out import carry_out
from tests.haproxy.conftest import running_haproxy

Ask = Callable[[str], str]

CA = trustme.CA()
LTS = capabilities_of((2, 8))
KINDS = {"map": FileKind.MAP, "list": FileKind.CRT_LIST, "pem": FileKind.CERT, "txt": FileKind.FILE}


@cache
def pem(name: str, number: int = 1) -> bytes:
    """Return one of the certificates for a name."""
    return CA.issue_cert(name, common_name=str(number)).private_key_and_cert_chain_pem.bytes()


def build(text: str, files: Mapping[str, bytes] | None = None) -> Generation:
    """Return the generation of *text* and *files*."""
    found = [make_file(KINDS[path.rpartition(".")[2]], path, content) for path, content in (files or {}).items()]
    return make_generation(parse_config(text), found)


HEAD = "defaults d\n  mode http\n  timeout connect 1s\n  timeout client 1s\n  timeout server 1s\n"
STATE = "1\n# be_name srv_name srv_addr srv_port srv_uweight srv_iweight srv_admin_state srv_op_state\n"


class FakeProcess:
    """A process with servers and maps that carries out commands."""

    def __init__(self, servers: Mapping[tuple[str, str], Sequence[object]], entries: Sequence[tuple[str, str]]) -> None:
        self.servers = {name: list(values) for name, values in servers.items()}
        self.entries = tuple(entries)

    def __call__(self, question: str) -> str:
        match question.split()[:2]:
            case ["show", "servers"]:
                rows = (
                    f"{backend} {name} {a} {p} {w} 1 {s} 2\n" for (backend, name), (a, p, w, s) in self.servers.items()
                )
                return STATE + "".join(rows)
            case ["show", "backend"]:
                return "# name\napp\n"
            case ["show", "map"]:
                return "".join(f"0x1 {key} {value}\n" for key, value in self.entries)
        raise AssertionError(question)

    def do(self, operation: Operation) -> None:
        match operation:
            case SetServerAddress(backend, server, address, port):
                self.servers[backend, server][:2] = [address, port]
            case SetServerWeight(backend, server, weight):
                self.servers[backend, server][2] = weight
            case SetServerState(backend, server, state):
                self.servers[backend, server][3] = {"ready": 0, "drain": 8, "maint": 1}[state]
            case AddServer(backend, server, address, options):
                assert (backend, server) not in self.servers
                host, _, number = address.rpartition(":")
                weight = int(options[options.index("weight") + 1]) if "weight" in options else 1
                self.servers[backend, server] = [host, int(number), weight, 1]
            case DeleteServer(backend, server):
                del self.servers[backend, server]
            case ReplaceMap(_, entries):
                self.entries = entries
            case _:
                raise AssertionError(operation)


def find_differences(generation: Generation, ask: Ask, capabilities: Capabilities = LTS) -> Differences:
    """Compare the process that *ask* asks with *generation*."""
    reader = ReadBack(generation, capabilities)
    return reader.compare([ask(question) for question in reader.questions])


SITE = build(
    HEAD
    + "frontend f from d\n  bind 127.0.0.1:1\n  use_backend %[path,map(maps/p.map)]\n"
    + "backend app from d\n  default-server weight 4\n"
    + "".join(f"  server s{number} 10.0.0.{number}:80\n" for number in range(1, 4))
    + "  server s4 10.0.0.4:80 weight 9 disabled\n",
    {"maps/p.map": b"/a app\n/b app\n"},
)
AS_MEANT = {("app", f"s{number}"): (f"10.0.0.{number}", 80, 4, 0) for number in range(1, 4)}
AS_MEANT["app", "s4"] = ("10.0.0.4", 80, 9, 5)
ENTRIES = parse_map_file(SITE.files["maps/p.map"].content)

# Flags that HAProxy sets itself (inherited, resolution) are added to those set by commands.
states = st.tuples(
    st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.9"]),
    st.sampled_from([80, 81]),
    st.sampled_from([0, 4, 9]),
    st.builds(int.__or__, st.sampled_from([0, 1, 5, 8]), st.sampled_from([0, 2, 4, 16, 32])),
)
processes = st.dictionaries(st.sampled_from([*AS_MEANT, ("app", "x"), ("app", "y")]), states)
maps = st.lists(st.tuples(st.sampled_from(["/a", "/b", "/c"]), st.sampled_from(["app", "x"])), max_size=4)


@given(processes, maps)
def test_after_the_repair_nothing_differs(
    servers: Mapping[tuple[str, str], Sequence[object]], entries: Sequence[tuple[str, str]]
) -> None:
    process = FakeProcess({**AS_MEANT, **servers}, entries)
    found = find_differences(SITE, process)
    assert reload_reasons(found.findings) == ()
    for operation in (*repair_operations(found.findings), *found.left_over):
        process.do(operation)
    assert find_differences(SITE, process) == Differences()
    assert set(process.servers) == set(AS_MEANT)


@given(st.sets(st.sampled_from(sorted(AS_MEANT)), min_size=1, max_size=3))
def test_servers_that_are_missing_are_added(names: set[tuple[str, str]]) -> None:
    process = FakeProcess({name: state for name, state in AS_MEANT.items() if name not in names}, ENTRIES)
    found = find_differences(SITE, process)
    assert count_kinds(found.findings) == {"server": len(names)}
    for operation in repair_operations(found.findings):
        process.do(operation)
    assert find_differences(SITE, process) == Differences()


def test_leftovers_are_no_difference() -> None:
    process = FakeProcess({**AS_MEANT, ("app", "gone"): ("10.0.0.9", 80, 1, 1)}, ENTRIES)
    assert find_differences(SITE, process) == Differences(left_over=(DeleteServer("app", "gone"),))


def test_equal_addresses_in_another_notation_are_no_difference() -> None:
    generation = build(HEAD + "backend app from d\n  server s [::ffff:1.2.3.4]:80\n")
    process = FakeProcess({("app", "s"): ("::ffff:1.2.3.4", 80, 1, 0)}, ())
    assert ipaddress.ip_address("::ffff:1.2.3.4") == ipaddress.ip_address("::ffff:102:304")
    assert find_differences(generation, process) == Differences()


@pytest.mark.parametrize(
    "section",
    [
        "  server s host.example:80 weight 2 disabled\n",
        "  server s 10.0.0.1:80 resolvers r weight 2 disabled\n",
        "  server s 10.0.0.1:80 init-addr none weight 2 disabled\n",
        "  server s 10.0.0.9:80 agent-check agent-port 9\n",
        "  default-server agent-check agent-port 9\n  server s 10.0.0.9:80 weight 7\n",
        "  load-server-state-from-file global\n  server s 10.0.0.1:80\n",
        "  disabled\n  server s 10.0.0.1:80\n",
        "  server-template s 3 10.0.0.1:80\n",
        '  server s "$ADDRESS"\n',
        '  server "$NAME" 10.0.0.1:80\n',
        ".if 1\n  server other 10.0.0.1:80\n.endif\n",
    ],
)
def test_values_that_the_configuration_does_not_set_are_not_compared(section: str) -> None:
    generation = build(f"{HEAD}backend app from d\n{section}")
    assert find_differences(generation, FakeProcess({("app", "s"): ("10.0.0.9", 80, 2, 5)}, ())).findings == ()


@pytest.mark.parametrize(
    ("section", "state", "reason"),
    [
        ("  balance static-rr\n  server s 10.0.0.1:80\n", ("10.0.0.1", 80, 0, 0), "server app/s changed"),
        ("  balance source\n  server s 10.0.0.1:80\n  server t 10.0.0.2:80\n", None, "server app/s removed"),
    ],
)
def test_what_no_command_puts_right_is_a_reason_to_reload(
    section: str, state: tuple[object, ...] | None, reason: str
) -> None:
    generation = build(f"{HEAD}backend app from d\n{section}")
    servers = {("app", "t"): ("10.0.0.2", 80, 1, 0)} if state is None else {("app", "s"): state}
    assert reload_reasons(find_differences(generation, FakeProcess(servers, ())).findings) == (f"drift: {reason}",)


def test_a_backend_that_is_missing_or_too_many_is_found() -> None:
    process = FakeProcess({("app", "s"): ("10.0.0.1", 80, 1, 0)}, ())
    other = build(HEAD + "backend other from d\n  server s 10.0.0.1:80\n")
    on_lts, on_newest = find_differences(other, process), find_differences(other, process, capabilities_of((3, 4)))
    assert {one.what for one in on_lts.findings} == {"backend app added", "backend other removed"}
    assert len(reload_reasons(on_lts.findings)) == 2
    assert reload_reasons(on_newest.findings) == ()
    unused = FakeProcess({("app", "s"): ("10.0.0.1", 80, 1, 1)}, ())
    found = find_differences(build(HEAD), unused, capabilities_of((3, 4)))
    assert found == Differences((), (DeleteServer("app", "s"), DeleteBackend("app")))


def test_a_map_that_rules_write_to_is_the_process_s_own() -> None:
    text = HEAD + "frontend f from d\n  bind 127.0.0.1:1\n  http-request set-map(maps/p.map) %[path] app\n"
    text += "  http-request set-var(txn.x) path,map(maps/p.map)\n"
    reader = ReadBack(build(text, {"maps/p.map": b"/a app\n"}), LTS)
    assert not [question for question in reader.questions if "map" in question]


def test_an_answer_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(UnreadableReplyError):
        find_differences(SITE, lambda _question: "Permission denied\n")


WHOLE = (
    HEAD
    + """\
resolvers r
  nameserver n 127.0.0.1:5353
peers p
  bind 127.0.0.1:{port}
  server local 127.0.0.1:{port}
frontend f from d
  bind unix@{directory}/web ssl crt-list ssl/l.list
  use_backend %[path,map(maps/p.map)]
  http-request set-var(txn.x) path,map_reg(maps/r.map)
  acl known src -f lists/x.txt
  http-request deny if known {{ path -i -m beg -f lists/y.txt -f maps/z.map }}
listen li from d
  bind unix@{directory}/other
  server s1 [::1]:80
backend app from d
  default-server weight 4 inter 1h
  server s1 127.0.0.1:1
  server s2 localhost:2 weight 5
  server s3 127.0.0.3:3 disabled
  server s4 127.0.0.3:3 weight 0 check
  server s5 127.0.0.3:3 track app/s4
  server s6 host.example:3 resolvers r init-addr none
  server s7 127.0.0.1
  server s8 *:80
  server s9 unix@/x
  server s10 127.0.0.1:80 slowstart 1h check
  server-template t 3 127.0.0.9:99
backend fixed from d
  balance static-rr
  server s1 127.0.0.1:1
backend off from d
  disabled
  server s1 127.0.0.1:1 weight 3
"""
)
FILES = {
    "maps/p.map": b"/a app\n/b  fixed \n#c\n",
    "lists/x.txt": b"# known\n10.0.0.1\n  10.0.1.0/24\n",
    "lists/y.txt": b"/a b \n/c\n/a b \n",
    "maps/z.map": b"/a 1\n\n",
    "maps/r.map": b"^/a 1\n^/ 2\n^/b 1\n",
    "ssl/l.list": b"ssl/a.pem\nssl/b.pem [alpn h2,http/1.1] b.test *.b.test !c.b.test\n",
    "ssl/a.pem": pem("a.test"),
    "ssl/b.pem": pem("b.test"),
}


@contextmanager
def process_of(binary: Path, text: str, files: Mapping[str, bytes]) -> Iterator[tuple[Ask, Generation]]:
    """Run HAProxy on a text, in which its directory and a free port may be named."""
    built: list[Generation] = []

    def write(directory: Path) -> tuple[str, Mapping[str, bytes]]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            filled = text.format(directory=directory, port=probe.getsockname()[1])
        built.append(build(filled, files))
        return filled, files

    with running_haproxy(binary, write) as (ask, _):
        yield ask, built[0]


def capabilities_at(ask: Ask, version: HaproxyVersion) -> Capabilities:
    return read_capabilities(version.number, ask("help"), ask("add server help"))


TAMPERING = [
    ("set server app/s1 addr 127.0.0.77 port 9", Kind.SERVER),
    ("set server app/s4 weight 9", Kind.SERVER),
    ("set server app/s2 state drain", Kind.SERVER),
    ("set server app/s3 state ready", Kind.SERVER),
    ("set server app/s5 state maint", Kind.SERVER),
    ("disable server app/s10;del server app/s10", Kind.SERVER),
    ("add server app/new 127.0.0.1:9;enable server app/new", Kind.SERVER),
    ("del map maps/p.map /a;add map maps/p.map /z app", Kind.MAP),
    ("add map maps/r.map ^/c 3", Kind.MAP),
    ("add acl lists/x.txt 10.0.0.2", Kind.ACL),
    ("clear acl lists/y.txt", Kind.ACL),
    ("del acl maps/z.map /a\\ 1", Kind.ACL),
    ("del ssl crt-list ssl/l.list ssl/b.pem", Kind.CRT_LIST),
    ("del ssl cert ssl/b.pem", Kind.CERTIFICATE),
    (f"set ssl cert ssl/a.pem <<\n{pem('a.test', 2).decode()}\n", None),
    ("commit ssl cert ssl/a.pem", Kind.CERTIFICATE),
]


@pytest.mark.haproxy
def test_a_process_as_it_should_be_has_no_differences_and_one_that_was_tampered_with_is_put_right(
    haproxy_binary: Path, haproxy_version: HaproxyVersion
) -> None:
    with process_of(haproxy_binary, WHOLE, FILES) as (ask, generation):
        capabilities = capabilities_at(ask, haproxy_version)
        assert find_differences(generation, ask, capabilities) == Differences()
        wanted: dict[str, int] = {}
        for command, kind in TAMPERING:
            ask(command)
            if kind is not None:
                wanted[kind.value] = wanted.get(kind.value, 0) + 1
        found = find_differences(generation, ask, capabilities)
        assert reload_reasons(found.findings) == ()
        assert count_kinds(found.findings) == wanted
        assert carry_out(ask, repair_operations(found.findings)) == ()
        assert find_differences(generation, ask, capabilities) == Differences()


@pytest.mark.haproxy
def test_backends_are_put_right_where_the_process_can_add_them(
    haproxy_binary: Path, haproxy_version: HaproxyVersion
) -> None:
    text = HEAD + "backend a from d\n  server s 127.0.0.1:1\nbackend b from d\n  server s 127.0.0.1:1\n"
    with process_of(haproxy_binary, text, {}) as (ask, generation):
        capabilities = capabilities_at(ask, haproxy_version)
        if not capabilities.backends:
            pytest.skip(f"HAProxy {haproxy_version.text} does not add backends; 3.4 does")
        for command in (
            "disable server a/s;del server a/s;unpublish backend a;del backend a",
            "add backend c from d mode http;publish backend c",
            "add server c/s 127.0.0.1:1;enable server c/s",
        ):
            ask(command)
        found = find_differences(generation, ask, capabilities)
        assert {one.what for one in found.findings} == {"backend a removed", "backend c added"}
        assert carry_out(ask, repair_operations(found.findings)) == ()
        assert find_differences(generation, ask, capabilities) == Differences()


@pytest.mark.haproxy
def test_what_checks_and_agents_find_out_is_not_a_difference(
    haproxy_binary: Path, haproxy_version: HaproxyVersion
) -> None:
    with answering_agent(b"drain 50%\n") as agent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        text = HEAD + "backend b from d\n"
        text += f"  server down 127.0.0.1:{closed.getsockname()[1]} check inter 1ms fall 1\n"
        text += f"  server told 127.0.0.1:1 weight 8 agent-check agent-port {agent} agent-inter 1ms\n"
        text += "  server follows 127.0.0.1:1 track b/down\n"
        with process_of(haproxy_binary, text, {}) as (ask, generation):
            while True:
                down, reported, _ = parse_servers_state(ask("show servers state b"))
                if not down.operational_state and reported.weight == 4 and reported.forced == "drain":
                    break
            assert find_differences(generation, ask, capabilities_at(ask, haproxy_version)) == Differences()


@contextmanager
def answering_agent(answer: bytes) -> Iterator[int]:
    """Answer on a port of the loopback interface as agents do."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                connection, _ = listener.accept()
                with connection:
                    try:
                        connection.sendall(answer)
                    except OSError:
                        continue

        def run() -> None:
            try:
                serve()
            except OSError:
                return

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
