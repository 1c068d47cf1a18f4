from collections.abc import Callable

import pytest

from haptic_trio.haproxy.runtime.replies import (
    Process,
    UnreadableReplyError,
    parse_list,
    parse_map,
    parse_proc,
    parse_servers_state,
)

Start = Callable[..., Callable[[str], str]]

PROC = """\
#<PID>          <type>          <reloads>       <uptime>        <version>
1201            master          2               0d00h01m28s     2.8.25-5cf5d0683
# workers
1271            worker          0               1d02h03m04s     2.8.25-5cf5d0683
# old workers
1233            worker          1               0d00h00m43s     2.8.25-5cf5d0683
# programs
1244            exporter        0               0d00h00m00s     -
"""


@pytest.mark.haproxy
def test_the_state_of_servers_of_real_haproxy_is_read(start_haproxy: Start) -> None:
    ask = start_haproxy(
        "backend b\n  server s1 127.0.0.1:81 weight 7\n  server s2 [::1]:82 disabled\n"
        "backend c\n  server s1 127.0.0.1:83\n"
    )
    ask("set server c/s1 state drain;set server b/s1 weight 9")
    servers = {(one.backend, one.server): one for one in parse_servers_state(ask("show servers state"))}
    assert list(servers) == [("b", "s1"), ("b", "s2"), ("c", "s1")]
    one, two, three = servers.values()
    assert (one.address, one.port, one.weight, one.initial_weight, one.state) == ("127.0.0.1", 81, 9, 7, "ready")
    assert (two.address, two.port, two.state) == ("::1", 82, "maint")
    assert (three.port, three.state, three.operational_state) == (83, "drain", 2)


@pytest.mark.parametrize("reply", ["", "No such backend.\n", "2\n# be_id\n", "1\n# be_id be_name\n3 b\n"])
def test_another_reply_than_the_state_of_servers_is_rejected(reply: str) -> None:
    with pytest.raises(UnreadableReplyError):
        parse_servers_state(reply)


def test_a_map_reply_keeps_spaces_of_values_and_empty_values() -> None:
    assert parse_map("0x1 k v w\n0x2 empty \n\n") == (("k", "v w"), ("empty", ""))
    assert parse_map("\n") == ()


def test_a_list_reply_keeps_every_blank_of_a_key() -> None:
    assert parse_list("0x1 k v  w \n0x2 k\n\n") == ("k v  w ", "k")
    with pytest.raises(UnreadableReplyError):
        parse_list("Unknown ACL identifier.\n")
    with pytest.raises(UnreadableReplyError):
        parse_map("Unknown map identifier. Please use #<id> or <file>.\n")


def test_processes_are_distinguished() -> None:
    version = "2.8.25-5cf5d0683"
    assert parse_proc(PROC) == (
        Process(1201, "master", 2, 88, version, is_old=False),
        Process(1271, "worker", 0, 93784, version, is_old=False),
        Process(1233, "worker", 1, 43, version, is_old=True),
        Process(1244, "exporter", 0, 0, "-", is_old=False),
    )
