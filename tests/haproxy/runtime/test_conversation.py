"""Conversations with a process that answers what the test says, and with a real one."""

import socket
from collections.abc import Callable, Mapping
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.haproxy.plan.commands import MAX_BATCH, MAX_COMMAND_BYTES, RuntimeCommandError, UnsendableError
from haptic_trio.haproxy.plan.operations import (
    AddCrtListEntry,
    AddServer,
    DeleteBackend,
    DeleteCrtListEntry,
    DeleteServer,
    Operation,
    ReplaceAcl,
    ReplaceMap,
    SetServerAddress,
    SetServerState,
    SetServerWeight,
    StoreCertificate,
    StoreTrust,
)
from haptic_trio.haproxy.runtime import conversation
from haptic_trio.haproxy.runtime.conversation import MOVE_ATTEMPTS, Pause, converse, make_batches, retry_removals
from haptic_trio.haproxy.runtime.replies import parse_list, parse_servers_state
from tests.haproxy.carrying_out import carry_out, hold

SECRET = b"-----BEGIN PRIVATE KEY-----\nsecret\n\n-----END PRIVATE KEY-----\n"


class Process:
    """Answers commands from a table by their beginnings, and remembers them."""

    def __init__(self, replies: Mapping[str, str] = {}) -> None:
        self.received: list[str] = []
        self._replies = replies

    def __call__(self, request: str) -> str:
        line, found, payload = request.partition("<<\n")
        commands = line.rstrip("\n").split(";")
        commands[-1] += found + payload
        self.received += commands
        return "".join(self._reply(command) + "\n" for command in commands)

    def _reply(self, command: str) -> str:
        return next((reply + "\n" for start, reply in self._replies.items() if command.startswith(start)), "")


@given(
    st.lists(st.integers(1, MAX_COMMAND_BYTES).map(lambda size: "x" * size) | st.just("add server b/s 1.1.1.1:1"))
    | st.lists(st.just("short"), max_size=3 * MAX_BATCH)
)
def test_batches_keep_the_order_and_the_limits(commands: list[str]) -> None:
    batches = list(make_batches(commands))
    assert [command for batch in batches for command in batch] == commands
    for batch in batches:
        assert 0 < len(batch) <= MAX_BATCH
        assert len(batch) == 1 or sum(len(command) + 1 for command in batch) <= MAX_COMMAND_BYTES
        assert len({command.startswith("add server") for command in batch}) == 1


def test_batches_use_the_whole_limit() -> None:
    assert len(list(make_batches(["set server app/one weight 5"] * (10 * MAX_BATCH)))) == 10


def test_unsendable_operations_are_rejected_before_the_first_command() -> None:
    process = Process()
    with pytest.raises(UnsendableError):
        carry_out(process, [SetServerWeight("b", "s", 1), StoreCertificate("a.pem", b"\0")])
    assert process.received == []


def test_a_rejected_server_is_not_made_ready() -> None:
    process = Process({"add server": "Already exists a server with the same name in backend."})
    with pytest.raises(RuntimeCommandError, match="Already exists"):
        carry_out(process, [AddServer("b", "s", "10.0.0.1:1"), SetServerState("b", "s", "ready")])
    assert process.received == ["add server b/s 10.0.0.1:1"]


def test_objects_still_in_use_become_leftovers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "REMOVAL_INTERVAL", 0.0)
    process = Process(
        {
            "del server b/two": "Server still has connections attached to it, cannot remove it.",
            "del server": "Server deleted.",
            "del backend": "Only a backend without server can be deleted.",
        }
    )
    left = carry_out(process, [DeleteServer("b", "one"), DeleteServer("b", "two"), DeleteBackend("b")])
    assert left == (DeleteServer("b", "two"), DeleteBackend("b"))
    assert process.received[:2] == ["set server b/one state maint", "set server b/two state maint"]
    assert process.received.count("del server b/one") == 1
    assert process.received.count("del server b/two") == conversation.REMOVAL_ATTEMPTS
    assert hold(process, retry_removals(left)) == left
    assert hold(Process({"del server": "Server deleted."}), retry_removals(left)) == ()


def test_servers_are_retired_and_deleted_in_one_batch() -> None:
    process = Process({"del server": "Server deleted.", "del backend": "Backend deleted."})
    requests: list[str] = []

    def ask(request: str) -> str:
        requests.append(request)
        return process(request)

    assert hold(ask, converse([DeleteServer("b", "s"), DeleteBackend("b")])) == ()
    assert requests == ["set server b/s state maint;del server b/s;del backend b\n"]


def test_deleting_a_server_that_rules_name_is_an_error() -> None:
    process = Process({"del server": "This server cannot be removed at runtime due to other configuration elements"})
    with pytest.raises(RuntimeCommandError, match="configuration elements"):
        carry_out(process, [DeleteServer("b", "s")])


@pytest.mark.parametrize(
    ("operation", "kind"), [(StoreCertificate("a.pem", SECRET), "cert"), (StoreTrust("ca-file", "a.pem", SECRET), "ca")]
)
def test_rejected_content_aborts_its_transaction_and_is_not_in_the_error(operation: Operation, kind: str) -> None:
    process = Process({"set ssl": "unable to load certificate"})
    with pytest.raises(RuntimeCommandError) as caught:
        carry_out(process, [operation])
    assert process.received[-1].startswith(f"abort ssl {kind}")
    assert "secret" not in str(caught.value)
    assert "secret" in process.received[0]


def test_the_oldest_of_several_entries_is_removed() -> None:
    several = (
        "found the certificate 'a.pem' in several entries, please specify a line number preceded by colons (12, 5)!"
    )
    process = Process(
        {
            "del ssl crt-list l a.pem:5": "Entry 'a.pem' deleted in crtlist 'l'!",
            "del ssl crt-list": f"Can't delete the entry: {several}",
        }
    )
    carry_out(process, [DeleteCrtListEntry("l", "a.pem")])
    assert process.received == ["del ssl crt-list l a.pem", "del ssl crt-list l a.pem:5"]


@pytest.mark.parametrize(
    "operation",
    [
        AddCrtListEntry("l", "a.pem\n\nshow version"),
        StoreCertificate("a.pem", b"x\r\n\r\nshow version\r\n"),
        DeleteCrtListEntry("l", "a:5"),
        DeleteServer("b", "s\nx"),
    ],
)
def test_no_value_of_an_operation_becomes_a_command(operation: Operation) -> None:
    process = Process(
        {"add ssl": "Success!", "set ssl": "Transaction created for certificate a.pem!", "commit": "Success!"}
    )
    try:
        carry_out(process, [operation])
    except UnsendableError:
        assert process.received == []
    assert all("\n\n" not in command.rstrip("\n") for command in process.received)


@pytest.mark.haproxy
def test_a_server_in_use_is_deleted_once_its_connection_ends(
    start_haproxy: Callable[..., Callable[[str], str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    web = tmp_path_factory.mktemp("w") / "web"
    with socket.create_server(("127.0.0.1", 0)) as target:
        port = target.getsockname()[1]
        ask = start_haproxy(
            "defaults\n  mode tcp\n  timeout connect 1s\n  timeout client 9s\n  timeout server 9s\n"
            f"frontend f\n  bind unix@{web}\n  default_backend b\n"
            f"backend b\n  server one 127.0.0.1:{port}\n"
        )
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(web))
            client.sendall(b"hello")
            accepted, _ = target.accept()
            with accepted:
                assert accepted.recv(5) == b"hello"
                left = carry_out(ask, [DeleteServer("b", "one")])
                assert left == (DeleteServer("b", "one"),)
                # What uses it goes on, and nothing new comes to it.
                client.sendall(b"again")
                assert accepted.recv(5) == b"again"
                (server,) = parse_servers_state(ask("show servers state b"))
                assert server.state == "maint"
        while left:
            left = hold(ask, retry_removals(left))
        assert "one" not in ask("show servers state b")


@pytest.mark.haproxy
def test_a_transaction_that_fails_is_discarded(start_haproxy: Callable[..., Callable[[str], str]]) -> None:
    ask = start_haproxy(
        "defaults\n  mode http\n  timeout client 1s\nfrontend f\n  bind unix@web\n"
        "  http-request set-var(txn.x) path,map(m.map)\n",
        {"m.map": b"a 1\n"},
    )
    with pytest.raises(UnsendableError):
        carry_out(ask, [ReplaceMap("m.map", (("b", "1"), ("c", "x\ny")))])
    assert "a 1" in ask("show map m.map")


@pytest.mark.haproxy
def test_a_list_is_replaced_as_a_whole_or_not_at_all(start_haproxy: Callable[..., Callable[[str], str]]) -> None:
    ask = start_haproxy(
        "defaults\n  mode http\n  timeout client 1s\nfrontend f\n  bind unix@web\n"
        "  http-request deny if { src -f x.txt }\n",
        {"x.txt": b"10.0.0.1\n10.0.0.1\n"},
    )
    before = ask("show acl x.txt")
    for keys in (("10.0.0.2", "host.invalid"), ("10.0.0.2", "x\ny")):
        with pytest.raises((RuntimeCommandError, UnsendableError)):
            carry_out(ask, [ReplaceAcl("x.txt", keys)])
        assert ask("show acl x.txt") == before
    many = tuple(f"10.0.{number >> 8}.{number & 255}" for number in range(3000))
    assert carry_out(ask, [ReplaceAcl("x.txt", many)]) == ()
    assert parse_list(ask("show acl x.txt")) == many


CHANGED = "IP changed from '10.0.0.1' to '10.0.0.2' by 'stats socket command'"


def places(*servers: str) -> str:
    """Return a reply to `show servers state b`, of servers written as `name address port`."""
    columns = "# be_name srv_name srv_addr srv_port srv_uweight srv_iweight srv_admin_state srv_op_state"
    return "\n".join(["1", columns, *(f"b {server} 1 1 0 2" for server in servers)])


def test_a_moved_server_is_awaited() -> None:
    talk = converse([SetServerAddress("b", "s", "2001:DB8::1", 80), SetServerAddress("b", "gone", "10.0.0.2", 80)])
    assert len(cast("list[str]", next(talk))) == 2
    assert talk.send((CHANGED, CHANGED)) == ["show servers state b"]
    assert isinstance(talk.send((places("s 10.0.0.1 80", "other - 0"),)), Pause)
    assert talk.send(()) == ["show servers state b"]
    with pytest.raises(StopIteration) as stop:
        talk.send((places("s 2001:db8::1 80", "other - 0"),))
    assert stop.value.value == ()


def test_waiting_for_a_moved_server_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MOVE_INTERVAL", 0)
    process = Process({"set server": CHANGED, "show servers state": places("s 10.0.0.1 80")})
    assert carry_out(process, [SetServerAddress("b", "s", "10.0.0.2", 80)]) == ()
    assert len(process.received) == 1 + MOVE_ATTEMPTS


def test_a_removed_backend_is_not_awaited() -> None:
    process = Process({"set server": CHANGED, "show servers state": "Can't find backend."})
    assert carry_out(process, [SetServerAddress("b", "s", "10.0.0.2", 80)]) == ()
    assert len(process.received) == 2
