from collections.abc import Callable

import pytest

from haptic_trio.dataplane.binary import HaproxyVersion
from haptic_trio.haproxy.plan.capabilities import capabilities_of, commands_in, read_capabilities

HELP = """\
The following commands are valid at this level:
  abort ssl cert <certfile>               : abort a transaction for a certificate file
  add server <bk>/<srv>                   : create a new server
  add ssl crt-list <list> <cert> [opts]*  : add to crt-list file <list> a line <cert> or a payload
  del server <bk>/<srv>                   : remove a server
  del ssl crt-list <list> <cert[:line]>   : delete a line <cert> from crt-list file <list>
  new ssl cert <certfile>                 : create a new certificate file to be used in a crt-list or a directory
  wait {-h|<delay_ms>} cond [args...]     : wait the specified delay or condition (-h to see list)
"""


def test_commands_are_separated_from_their_arguments() -> None:
    assert commands_in(HELP) == [
        *("abort ssl cert", "add server", "add ssl crt-list", "del server", "del ssl crt-list", "new ssl cert", "wait")
    ]


def test_a_command_that_help_does_not_list_is_not_supported() -> None:
    assert not read_capabilities((3, 4), HELP, "").backends
    assert not read_capabilities((3, 4), "", "").servers
    assert read_capabilities((2, 8), HELP, "") == capabilities_of((2, 8))


def test_a_version_before_2_8_gets_no_servers_and_no_certificates() -> None:
    known = read_capabilities((2, 6), HELP, "")
    assert not known.servers
    assert not known.certificates


def test_options_are_those_listed_except_for_singular_ones() -> None:
    known = read_capabilities((3, 2), HELP, "List of keywords supported for dynamic server:\nweight\nid\nnew-one\n\n")
    assert known.server_options == {"weight", "new-one"}


@pytest.mark.haproxy
def test_real_haproxy_has_the_capabilities_of_its_version(
    start_haproxy: Callable[..., Callable[[str], str]], haproxy_version: HaproxyVersion
) -> None:
    ask = start_haproxy("defaults\n  mode http\n  timeout client 1s\nfrontend f\n  bind unix@web\n")
    version = haproxy_version.number
    found, expected = read_capabilities(version, ask("help"), ask("add server help")), capabilities_of(version)
    assert (found.servers, found.backends, found.certificates) == (
        expected.servers,
        expected.backends,
        expected.certificates,
    )
    assert expected.server_options <= found.server_options
