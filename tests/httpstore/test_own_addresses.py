"""Addresses of this machine's interfaces are as forbidden as its loopback, however they are written and found."""

import socket
from ipaddress import ip_network

import pytest
import trio

from haptic_trio.httpstore.addresses import Zone, zone_of
from haptic_trio.httpstore.content import FetchError
from haptic_trio.httpstore.fetching import Fetcher
from haptic_trio.httpstore.own_addresses import is_own_address
from haptic_trio.httpstore.request import FetchPolicy, make_request
from haptic_trio.httpstore.transport import Dialer
from tests.support.traffic.web import Page, serving_pages

FORBIDDEN = "the host's address is one of this machine"


def own_address() -> str:
    """Return the address by which this machine reaches others; a loopback address if it has no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            return "127.0.0.2"
        return str(probe.getsockname()[0])


class Visitors:
    """A listener at an address, and how many have come."""

    def __init__(self, address: str) -> None:
        self._socket = socket.create_server((address, 0))
        self._socket.setblocking(False)
        self.address = address
        self.port: int = self._socket.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}/"

    def count(self) -> int:
        """Return how many have connected; closes the listener."""
        count = 0
        with self._socket:
            try:
                while True:
                    self._socket.accept()[0].close()
                    count += 1
            except BlockingIOError:
                return count


async def failure_of(url: str, policy: FetchPolicy, dialer: Dialer | None = None) -> str:
    request = make_request(url, {"retries": 0}, policy, lambda _namespace, _name: None)
    with trio.fail_after(10), pytest.raises(FetchError) as caught:
        await Fetcher(policy, dialer=dialer, jitter=lambda: 1.0).fetch(request, None)
    return caught.value.reason


def test_kernel_knows_which_addresses_are_its_own() -> None:
    assert is_own_address(own_address())
    assert is_own_address("127.0.0.1")
    assert not is_own_address("198.51.100.1")
    assert not is_own_address("2001:db8::1")
    assert not is_own_address("no address")


def test_address_within_another_one_counts_as_well() -> None:
    def is_own(address: str) -> bool:
        return address == "10.0.0.7"

    found = {
        text: zone_of(text, is_own=is_own) for text in ("10.0.0.7", "::ffff:10.0.0.7", "64:ff9b::a00:7", "10.0.0.8")
    }
    assert found == {
        "10.0.0.7": Zone.FORBIDDEN,
        "::ffff:10.0.0.7": Zone.FORBIDDEN,
        "64:ff9b::a00:7": Zone.FORBIDDEN,
        "10.0.0.8": Zone.PRIVATE,
    }
    assert zone_of("10.0.0.7", (ip_network("10.0.0.0/8"),), is_own=is_own) is Zone.PRIVATE


async def test_own_address_is_not_connected_to() -> None:
    visitors = Visitors(own_address())

    assert FORBIDDEN in await failure_of(visitors.url, FetchPolicy())
    assert visitors.count() == 0


async def test_redirect_to_an_own_address_is_not_followed() -> None:
    visitors = Visitors(own_address())
    policy = FetchPolicy(allowed_networks=(ip_network("127.0.0.1/32"),))
    async with serving_pages() as web:
        web.pages["/"] = Page(status=302, headers={"location": visitors.url})

        assert FORBIDDEN in await failure_of(web.url("/"), policy)
    assert visitors.count() == 0


async def test_name_that_leads_to_an_own_address_is_not_connected_to() -> None:
    visitors = Visitors(own_address())

    async def resolve(_host: str, _port: int) -> tuple[str, ...]:
        await trio.lowlevel.checkpoint()
        return (visitors.address,)

    dialer = Dialer((), resolve=resolve)
    assert FORBIDDEN in await failure_of(f"http://lists.example.com:{visitors.port}/", FetchPolicy(), dialer)
    assert visitors.count() == 0


async def test_address_that_becomes_an_own_one_gets_no_request() -> None:
    """Between the look at the address and the connection."""
    answers = iter([False, True])
    visitors = Visitors("127.0.0.1")

    async def resolve(_host: str, _port: int) -> tuple[str, ...]:
        await trio.lowlevel.checkpoint()
        return ("10.0.0.7",)

    async def connect(_address: str, port: int) -> trio.abc.Stream:
        return await trio.open_tcp_stream("127.0.0.1", port)

    dialer = Dialer((), resolve=resolve, connect=connect, is_own=lambda _address: next(answers))
    assert FORBIDDEN in await failure_of(f"http://lists.example.com:{visitors.port}/", FetchPolicy(), dialer)
    assert visitors.count() == 1


async def test_administrator_can_allow_an_own_address() -> None:
    own = own_address()
    policy = FetchPolicy(allowed_networks=(ip_network(f"{own}/32"),))
    async with serving_pages(host=own) as web:
        web.text("/", "here\n")
        request = make_request(web.url("/"), {"retries": 0}, policy, lambda _namespace, _name: None)

        content = await Fetcher(policy, jitter=lambda: 1.0).fetch(request, None)

    assert content is not None
    assert content.text == "here\n"
