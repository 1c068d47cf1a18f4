"""By which names the console is asked for: no page of another site can have its own name lead here."""

import socket

import pytest

from haptic_trio.console.hosts import Hosts, own_names


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "localhost:9090", "LOCALHOST.:8080", "haptic.localhost", "127.0.0.1", "127.0.0.1:43211",
        "127.8.8.8:1", "[::1]", "[::1]:9090", "10.0.0.7:9090", "[fd00::7]:9090", "console.example.com",
        "Console.Example.com.:443", "admin.internal:9090",
    ],
)  # fmt: skip
def test_own_names_and_addresses_are_admitted(host: str) -> None:
    assert Hosts(own_names("admin.internal:9090", ["console.example.com"])).has(host)


@pytest.mark.parametrize(
    "host",
    [
        "", "evil.example", "evil.example:9090", "localhost.evil.example", "127.0.0.1.evil.example", "notlocalhost",
        "localhost:9090@evil.example", "evil.example/localhost", "localhost, evil.example", "console.example.com.evil",
        "[::1", "[evil.example]", "127.0.0.1:port", "0x7f.1", "2130706433", ":9090", "localhost:",
        "sub.console.example.com",
    ],
)  # fmt: skip
def test_other_names_are_not(host: str) -> None:
    assert not Hosts(own_names("127.0.0.1:9090", ["console.example.com"])).has(host)


def test_machine_is_known_by_its_name() -> None:
    assert Hosts(own_names("0.0.0.0:9090")).has(f"{socket.gethostname()}:9090")
