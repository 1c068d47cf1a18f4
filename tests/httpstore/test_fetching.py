"""Fetches from real servers on the loopback interface; names and public addresses are mapped to it."""

import gzip
import socket
import ssl
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from typing import Any

import pytest
import trio
import trustme
from trio.testing import MockClock

from haptic_trio.httpstore.content import Content, FetchError
from haptic_trio.httpstore.fetching import MOST_REDIRECTS, Fetcher
from haptic_trio.httpstore.request import FetchPolicy, FetchRequest, make_request
from haptic_trio.httpstore.transport import Dialer, connect_address
from tests.support.traffic.web import Page, Web, serving_pages

LOOPBACK = (ip_network("127.0.0.1/32"),)
POLICY = FetchPolicy(allowed_networks=LOOPBACK, max_bytes=10_000)


def request_of(url: str, policy: FetchPolicy = POLICY, **options: Any) -> FetchRequest:
    return make_request(url, {"retries": 0, **options}, policy, lambda _namespace, _name: None)


async def fetch(url: str, known: Content | None = None, policy: FetchPolicy = POLICY, **options: Any) -> Content | None:
    with trio.fail_after(10):
        return await Fetcher(policy, jitter=lambda: 1.0).fetch(request_of(url, policy, **options), known)


async def text_of(url: str, **options: Any) -> str:
    content = await fetch(url, **options)
    assert content is not None
    return content.text


async def failure_of(url: str, fetcher: Fetcher | None = None, policy: FetchPolicy = POLICY, **options: Any) -> str:
    with trio.fail_after(10), pytest.raises(FetchError) as caught:
        await (fetcher or Fetcher(policy, jitter=lambda: 1.0)).fetch(request_of(url, policy, **options), None)
    return caught.value.reason


class Names:
    """DNS and a network of a test's own: every address leads to the loopback interface, and is remembered."""

    def __init__(self, **names: list[tuple[str, ...]]) -> None:
        self._answers: dict[str, Iterator[tuple[str, ...]]] = {
            name.replace("_", "."): iter(answers) for name, answers in names.items()
        }
        self.connected: list[str] = []

    async def resolve(self, host: str, _port: int) -> tuple[str, ...]:
        await trio.lowlevel.checkpoint()
        return next(self._answers[host])

    async def connect(self, address: str, port: int) -> trio.abc.Stream:
        self.connected.append(address)
        return await connect_address("127.0.0.1", port)

    def fetcher(self, policy: FetchPolicy = POLICY) -> Fetcher:
        dialer = Dialer(policy.allowed_networks, resolve=self.resolve, connect=self.connect)
        return Fetcher(policy, dialer=dialer, jitter=lambda: 1.0)


async def test_a_blank_content_is_a_failure_if_it_must_not_be_empty() -> None:
    async with serving_pages() as web:
        web.text("/", "\ufeff \r\n")

        assert await text_of(web.url("/")) == " \r\n"
        assert await failure_of(web.url("/"), empty=False) == "the content is empty"


async def test_content_comes_with_what_it_is_recognised_by() -> None:
    async with serving_pages() as web:
        web.text("/deny.txt?list=1", "\ufeffgrün\n", etag='"one"', last_modified="Sat, 21 Nov 2026 10:00:00 GMT")
        first = await fetch(web.url("/deny.txt?list=1"), headers={"x-mine": "yes"}, auth={"token": "abc"})
        assert first is not None

        assert (first.text, first.etag) == ("grün\n", '"one"')
        assert await fetch(web.url("/deny.txt?list=1"), first) is None
        web.text("/deny.txt?list=1", "blau\n", etag='"two"')
        second = await fetch(web.url("/deny.txt?list=1"), first)

    assert second is not None
    assert (second.text, second.size) == ("blau\n", 5)
    headers = [asked.headers for asked in web.asked]
    assert (headers[0]["x-mine"], headers[0]["authorization"]) == ("yes", "Bearer abc")
    assert headers[1]["if-none-match"] == '"one"'
    assert headers[1]["if-modified-since"] == "Sat, 21 Nov 2026 10:00:00 GMT"


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (Page(status=404), "the server answered 404"),
        (Page(status=304), "the server answered 304"),
        (Page(status=204), "the server answered 204"),
        (Page(body=b"x" * 10_001), "larger than 10000 bytes"),
        (Page(body=gzip.compress(b"x" * 10_001), headers={"content-encoding": "gzip"}), "larger than 10000 bytes"),
        (Page(body=gzip.compress(b"x" * 50_000_000), headers={"content-encoding": "gzip"}), "larger than 10000"),
        (Page(body=gzip.compress(b"x")[:-5], headers={"content-encoding": "gzip"}), "ends too early"),
        (Page(body=b"no gzip", headers={"content-encoding": "gzip"}), "gzip is broken"),
        (Page(body=gzip.compress(b"x") * 2, headers={"content-encoding": "gzip"}), "something follows"),
        (Page(body=b"x", headers={"content-encoding": "br"}), "an encoding that it was not asked for"),
        (Page(body=b"\xff\xfe"), "not valid text in the charset"),
        (Page(body=b"x", headers={"content-type": "text/plain; charset=utf-7"}), "charset is neither"),
    ],
)
async def test_other_answers_are_not_contents(page: Page, reason: str) -> None:
    async with serving_pages() as web:
        web.pages["/"] = page

        assert reason in await failure_of(web.url("/"))


async def test_content_of_the_largest_size_is_taken_plain_or_compressed() -> None:
    async with serving_pages() as web:
        web.pages["/plain"] = Page(body=b"x" * 10_000)
        web.pages["/gzip"] = Page(body=gzip.compress(b"x" * 10_000), headers={"content-encoding": "gzip"})
        web.pages["/latin"] = Page(body=b"gr\xfcn", headers={"content-type": 'text/plain; charset="ISO-8859-1"'})

        assert await text_of(web.url("/plain")) == await text_of(web.url("/gzip")) == "x" * 10_000
        assert await text_of(web.url("/latin")) == "grün"


async def test_size_is_bounded_without_a_content_length() -> None:
    async with serving_pages() as web:
        web.pages["/"] = Page(body=b"x" * 1_000_000, headers={"content-length": "1000000"})

        assert "larger" in await failure_of(web.url("/"))


async def test_redirects_are_followed_within_an_origin_with_all_headers() -> None:
    async with serving_pages() as web:
        web.pages["/old"] = Page(status=301, headers={"location": "new?a=b#c"})
        web.text("/new?a=b", "here")

        assert await text_of(web.url("/old"), auth={"token": "abc"}) == "here"
        assert [asked.headers["authorization"] for asked in web.asked] == ["Bearer abc"] * 2


async def test_other_origins_get_no_credentials_and_no_headers() -> None:
    async with serving_pages() as web, serving_pages() as other:
        web.pages["/"] = Page(status=302, headers={"location": other.url("/there")})
        other.text("/there", "there")

        assert await text_of(web.url("/"), auth={"token": "abc"}, headers={"x-key": "abc"}) == "there"
        assert "abc" not in str(other.asked)


async def test_redirects_do_not_go_on_forever() -> None:
    async with serving_pages() as web:
        web.pages["/"] = Page(status=307, headers={"location": "/"})

        assert "more than 5 redirects" in await failure_of(web.url("/"))
        assert len(web.asked) == MOST_REDIRECTS + 1


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("https://127.0.0.1/", "from http to https"),
        ("file:///etc/passwd", "not an HTTP URL"),
        ("http://me:s3cret@127.0.0.1/", "not an HTTP URL"),
        ("http://elsewhere.example.com/", "not allowed"),
        ("", "not an HTTP URL"),
    ],
)
async def test_redirects_to_elsewhere_are_rejected(location: str, reason: str) -> None:
    policy = FetchPolicy(allowed_networks=LOOPBACK, allowed_hosts=("127.0.0.1",))
    async with serving_pages() as web:
        web.pages["/"] = Page(status=302, headers={"location": location})

        assert reason in await failure_of(web.url("/"), policy=policy)


async def test_this_machine_is_not_connected_to_unless_that_is_allowed() -> None:
    async with serving_pages() as web:
        web.text("/", "secret")
        for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
            reason = await failure_of(f"http://{host}:{web.port}/", policy=FetchPolicy())
            assert "of this machine, its link or its cloud" in reason

        assert web.asked == []


async def test_name_that_leads_elsewhere_the_second_time_is_not_followed() -> None:
    names = Names(lists_example_com=[("127.0.0.1",), ("127.0.0.2",), ("169.254.169.254", "127.0.0.1")])
    fetcher = names.fetcher()
    async with serving_pages() as web:
        web.text("/", "list")
        url = f"http://lists.example.com:{web.port}/"
        assert await fetcher.fetch(request_of(url), None) is not None

        assert "of this machine" in await failure_of(url, fetcher)
        assert names.connected == ["127.0.0.1"]
        # Of several addresses, only those that may be used are.
        assert await fetcher.fetch(request_of(url), None) is not None
        assert names.connected == ["127.0.0.1", "127.0.0.1"]
        assert {asked.headers["host"] for asked in web.asked} == {f"lists.example.com:{web.port}"}


async def test_public_server_cannot_redirect_to_a_private_address() -> None:
    names = Names(
        public_example_com=[("8.8.8.8",)] * 3, private_example_com=[("10.0.0.1",)] * 2, also_example_com=[("9.9.9.9",)]
    )
    fetcher = names.fetcher()
    async with serving_pages() as web:
        private = f"http://private.example.com:{web.port}/"
        public = f"http://public.example.com:{web.port}"
        web.pages["/"] = Page(status=302, headers={"location": f"{private}list"})
        web.pages["/twice"] = Page(status=302, headers={"location": f"http://also.example.com:{web.port}/"})
        web.text("/list", "list")

        assert "redirects to a private address" in await failure_of(f"{public}/", fetcher)
        assert "redirects to a private address" in await failure_of(f"{public}/twice", fetcher)
        assert names.connected == ["8.8.8.8", "8.8.8.8", "9.9.9.9"]


async def test_private_server_may_redirect_to_another() -> None:
    names = Names(one_internal=[("10.0.0.1",)], two_internal=[("10.0.0.2",)])
    async with serving_pages() as web:
        web.pages["/"] = Page(status=302, headers={"location": f"http://two.internal:{web.port}/list"})
        web.text("/list", "list")
        found = await names.fetcher().fetch(request_of(f"http://one.internal:{web.port}/"), None)

    assert found is not None
    assert names.connected == ["10.0.0.1", "10.0.0.2"]


async def test_failing_server_is_tried_again() -> None:
    async with serving_pages() as web:
        pages = iter([Page(status=503), Page(status=429), Page(body=b"at last")])
        web.pages = _Sequence(pages)

        assert await text_of(web.url("/"), retries=2) == "at last"
        assert len(web.asked) == 3


class _Sequence(dict[str, Page]):
    def __init__(self, pages: Iterator[Page]) -> None:
        self._pages = pages

    def get(self, _path: str, _default: Any = None) -> Page:
        return next(self._pages)


async def test_what_will_not_change_is_not_tried_again() -> None:
    async with serving_pages() as web:
        assert await failure_of(web.url("/absent"), retries=5) == "the server answered 404"
        assert len(web.asked) == 1


async def test_slow_servers_end_with_the_deadline_wherever_they_are_slow() -> None:
    never = trio.Event()
    async with serving_pages() as web:
        web.pages["/silent"] = Page(body=b"x", hold=never)
        web.pages["/dripping"] = Page(body=b"xx", drip=never)
        web.pages["/failing"] = Page(status=503)

        for path in ("/silent", "/dripping"):
            assert await failure_of(web.url(path), timeout="100ms", retries=5) == "it took longer than 0.1 s"
        reason = await failure_of(web.url("/failing"), timeout="250ms", retries=5)
        assert reason == "it took longer than 0.25 s; before that: the server answered 503"


async def test_silent_network_ends_with_the_deadline_too(autojump_clock: MockClock) -> None:
    async def resolve(_host: str, _port: int) -> tuple[str, ...]:
        await trio.sleep_forever()
        raise AssertionError

    fetcher = Fetcher(POLICY, dialer=Dialer((), resolve=resolve))
    with pytest.raises(FetchError, match="longer than 20 s"):
        await fetcher.fetch(request_of("http://lists.example.com/", timeout=20), None)

    assert trio.current_time() == 20


async def test_an_unreachable_server_is_reported(unused_port: Callable[[], int]) -> None:
    assert "no connection" in await failure_of(f"http://127.0.0.1:{unused_port()}/")


@pytest.fixture
def unused_port() -> Callable[[], int]:
    def find() -> int:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            port: int = listening.getsockname()[1]
            return port

    return find


class Tls:
    """An authority, and a server's side of TLS with a certificate of it."""

    def __init__(self, name: str) -> None:
        authority = trustme.CA()
        self.pem = authority.cert_pem.bytes().decode()
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(self.server)


async def _secured(web: Web, name: str, pem: str) -> str:
    answers: dict[str, list[tuple[str, ...]]] = {name.replace(".", "_"): [("127.0.0.1",)]}
    names = Names(**answers)
    found = await names.fetcher().fetch(request_of(f"https://{name}:{web.port}/", ca=pem), None)
    assert found is not None
    return found.text


async def test_certificates_are_checked_for_the_name_though_an_address_is_connected_to() -> None:
    tls, foreign = Tls("lists.example.com"), Tls("lists.example.com")
    async with serving_pages(tls=tls.server) as web:
        web.text("/", "safe")

        assert await _secured(web, "lists.example.com", tls.pem) == "safe"
        with pytest.raises(FetchError, match="not trusted"):
            await _secured(web, "lists.example.com", foreign.pem)
        with pytest.raises(FetchError, match="not trusted"):
            await _secured(web, "other.example.com", tls.pem)
        assert "not trusted" in await failure_of(web.url("/"))
        broken = "-----BEGIN CERTIFICATE-----\nbroken\n-----END CERTIFICATE-----\n"
        assert "cannot be read" in await failure_of(web.url("/"), ca=broken)


async def test_cancelled_fetch_leaves_no_connection() -> None:
    async with serving_pages() as web:
        web.pages["/"] = Page(body=b"x", hold=trio.Event())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch, web.url("/"))
            await web.wait_asked(1)
            nursery.cancel_scope.cancel()
