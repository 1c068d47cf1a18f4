"""The recipe of the guide for oauth2-proxy, with a server that answers as oauth2-proxy does."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar
from urllib.parse import parse_qs, quote, urlsplit

import pytest
import trustme
import yaml

from haptic_trio.k8s.resource import Resource
from tests.docs.markdown import DOCS, blocks_of
from tests.libraries.conftest import Cluster
from tests.support.kubernetes import endpoint, endpoint_slice, service, tls_secret
from tests.support.traffic.servers import Answer, QuietHandler, answering, ask, serving

pytestmark = pytest.mark.haproxy

HOST = "shop.example.com"
LIBRARIES = ("base", "ssl", "ingress", "nginx-annotations")
AUTHORITY = trustme.CA()
SITE = AUTHORITY.issue_cert(HOST)
SESSION = "_oauth2_proxy=session"


class _Proxy(QuietHandler):
    """Answers as oauth2-proxy with `--set-xauthrequest` and `--skip-provider-button` does."""

    renews: ClassVar[bool] = False

    def answer(self) -> None:
        place = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(place.query).items()}
        match place.path:
            case "/oauth2/auth":
                self._judge()
            case "/oauth2/start":
                state = quote(query["rd"], safe="")
                self._send(302, ("Location", f"https://issuer.example.com/authorize?state={state}"))
            case "/oauth2/callback":
                self._send(302, ("Location", query["state"]), ("Set-Cookie", f"{SESSION}; Path=/; Secure; HttpOnly"))
            case "/oauth2/sign_out":
                self._send(302, ("Location", "/"), ("Set-Cookie", "_oauth2_proxy=; Path=/; Max-Age=0"))
            case _:
                self._send(404)

    def _judge(self) -> None:
        if SESSION not in self.headers.get("Cookie", ""):
            self._send(401)
            return
        renewed = [("Set-Cookie", "_oauth2_proxy=renewed; Path=/")] if self.renews else []
        self._send(202, ("X-Auth-Request-User", "joe"), ("X-Auth-Request-Email", "joe@example.com"), *renewed)

    def _send(self, status: int, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", "0")):
            self.send_header(name, value)
        self.end_headers()


def manifests() -> list[Resource]:
    """Return the Ingresses of the guide."""
    found = [
        document
        for block in blocks_of(DOCS / "how-to" / "oauth2-proxy.md")
        if block.language == "yaml" and not block.argument
        for document in yaml.safe_load_all(block.text)
        if document.get("kind") == "Ingress"
    ]
    assert len(found) == 2
    created = {"namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return [{**one, "metadata": {**created, "uid": one["metadata"]["name"], **one["metadata"]}} for one in found]


def objects(application: int, *proxies: int) -> list[Resource]:
    return [
        *manifests(),
        service("shop"),
        endpoint_slice("shop", endpoint("127.0.0.1"), ports=application),
        service("oauth2-proxy", {"port": 4180, "protocol": "TCP"}),
        *(endpoint_slice("oauth2-proxy", endpoint("127.0.0.1"), ports=proxy) for proxy in proxies),
        tls_secret("shop", b"".join(pem.bytes() for pem in SITE.cert_chain_pems), SITE.private_key_pem.bytes()),
    ]


@pytest.fixture
def shop(cluster: Cluster) -> Iterator[Cluster]:
    with serving("shop") as running, answering(_Proxy) as proxy:
        rendered = cluster.serve(*objects(running["shop"], proxy), libraries=LIBRARIES, sslRedirect=True)
        assert rendered.rejections == ()
        yield cluster


@contextmanager
def renewing() -> Iterator[None]:
    _Proxy.renews = True
    try:
        yield
    finally:
        _Proxy.renews = False


def browse(cluster: Cluster, path: str, **headers: str) -> Answer:
    """Request *path* over HTTPS, as a browser does."""
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask(cluster.https_port, HOST, path, headers=given, tls=context)


def test_a_user_signs_in_and_returns_to_the_page(shop: Cluster) -> None:
    first = browse(shop, "/cart?item=1&size=%20m")
    assert first.status == 302
    start = urlsplit(first.headers["location"])
    assert (start.scheme, start.netloc, start.path) == ("https", HOST, "/oauth2/start")

    second = browse(shop, f"{start.path}?{start.query}")
    assert second.status == 302
    provider = urlsplit(second.headers["location"])
    assert provider.netloc == "issuer.example.com"

    third = browse(shop, f"/oauth2/callback?code=1&{provider.query}")
    assert (third.status, third.headers["location"]) == (302, "/cart?item=1&size=%20m")

    page = browse(shop, third.headers["location"], Cookie=third.headers["set-cookie"].split(";")[0])
    assert page.status == 200
    assert page.body.startswith("shop\n/cart?item=1&size=%20m\n")
    assert "x-auth-request-user: joe" in page.body
    assert "x-auth-request-email: joe@example.com" in page.body


def test_a_client_cannot_be_another_user(shop: Cluster) -> None:
    forged = {"X_Auth_Request_User": "root", "X_Auth_Request_Email": "root@example.com"}

    assert browse(shop, "/", **forged).status == 302
    page = browse(shop, "/", Cookie=SESSION, **forged)
    assert page.status == 200
    assert "root" not in page.body
    assert browse(shop, "/", Cookie="_oauth2_proxy=other").status == 302


def test_a_renewed_session_reaches_the_client(shop: Cluster) -> None:
    with renewing():
        assert browse(shop, "/", Cookie=SESSION).headers["set-cookie"] == "_oauth2_proxy=renewed; Path=/"


def test_signing_out_needs_no_session_and_removes_the_cookie(shop: Cluster) -> None:
    answer = browse(shop, "/oauth2/sign_out")

    assert "Max-Age=0" in answer.headers["set-cookie"]


@pytest.mark.parametrize("path", ["/oauth2/../cart", "/oauth2/%2e%2e/cart", "//cart", "/OAUTH2/cart", "/oauth2x"])
def test_no_spelling_of_a_path_passes_without_a_session(shop: Cluster, path: str) -> None:
    answer = browse(shop, path)

    assert answer.status in {302, 400, 404}
    assert not answer.body.startswith("shop\n")


def test_without_oauth2_proxy_no_request_is_admitted(cluster: Cluster) -> None:
    with serving("shop") as running:
        cluster.serve(*objects(running["shop"]), libraries=LIBRARIES, sslRedirect=True)

        assert browse(cluster, "/", Cookie=SESSION).status == 503
