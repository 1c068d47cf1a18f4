"""Annotations that change headers of requests and answers, as applications and clients see them."""

import time
from http.client import HTTPConnection
from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from tests.libraries.conftest import Cluster
from tests.libraries.tenants.tenants import ALL, NGINX
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.traffic.servers import PATIENCE, QuietHandler, answering, ask

Headers = Any
"""Of `http.client` and `http.server`, with repeated names."""
HOST = "a.example.com"
HI = "haproxy-ingress.github.io/"


def site(prefix: str, annotations: dict[str, str]) -> Resource:
    named = {prefix + name: value for name, value in annotations.items()}
    return ingress("a", rule(HOST, path("/", "web")), annotations=named)


def served(
    cluster: Cluster, one: Resource, answer: list[tuple[str, str]], sent: dict[str, str]
) -> tuple[Headers, Headers]:
    """Return the headers that the application got, and those that the client got, which were *answer*."""
    received = list[Headers]()

    class Application(QuietHandler):
        def answer(self) -> None:
            received.append(self.headers)
            self.send_response(200)
            for name, value in answer:
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with answering(Application) as port:
        slices = endpoint_slice("web", endpoint("127.0.0.1"), ports=port)
        rendered = cluster.serve(one, service("web"), slices, libraries=ALL)
        assert rendered.rejected == {}
        connection = HTTPConnection("127.0.0.1", cluster.http_port, timeout=PATIENCE)
        connection.request("GET", "/", headers={"Host": HOST, **sent})
        response = connection.getresponse()
        response.read()
        connection.close()
    return received[0], response.headers


@pytest.mark.haproxy
def test_headers_of_haproxy_ingress_are_set_added_and_removed(cluster: Cluster) -> None:
    annotations = {
        "request-set-headers": "X-Set: 100% \\1 $host\nX-Service: %[namespace]/%[service]",
        "request-add-headers": "X-Add  two",
        "request-del-headers": "X-Gone\nX-Away, X-Off",
        "response-set-headers": "Cache-Control: no-store",
        "response-add-headers": "Link: </a>; rel=preload\nLink: </b>; rel=preload",
        "response-del-headers": "Server, X-Powered-By",
    }
    sent = {"X-Set": "client", "X-Add": "one", "X-Gone": "a", "X-Away": "b", "X-Off": "c", "X-Kept": "d"}
    answer = [("Cache-Control", "public"), ("X-Powered-By", "x"), ("Link", "</c>")]
    got, came = served(cluster, site(HI, annotations), answer, sent)

    assert (got.get_all("x-set"), got.get_all("x-service")) == (["100% \\1 $host"], ["default/web"])
    assert got.get_all("x-add") == ["one", "two"]
    assert [name for name in got if name.lower() in ("x-gone", "x-away", "x-off", "x-kept")] == ["x-kept"]
    assert came.get_all("cache-control") == ["no-store"]
    assert came.get_all("link") == ["</c>", "</a>; rel=preload", "</b>; rel=preload"]
    assert (came["x-powered-by"], came["server"]) == (None, None)


@pytest.mark.parametrize("name", ["request-set-headers", "request-add-headers", "response-set-headers"])
@pytest.mark.parametrize(
    "value", ["Content-Length: 5", "Transfer_Encoding: x", "Upgrade: h2c", "X-A: %[src]", "X-A", "X(A: b", "-m: reg"]
)
def test_no_header_of_the_connection_and_no_expression_can_be_set(cluster: Cluster, name: str, value: str) -> None:
    assert list(cluster.render(site(HI, {name: value}), service("web"), libraries=ALL).rejected) == [
        "Ingress default/a"
    ]


@pytest.mark.parametrize("name", ["request-del-headers", "response-del-headers"])
@pytest.mark.parametrize("value", ["Content-Length", "X-A, host", "Connection", "X-A: b", "-m", "X-*,X A"])
def test_no_header_of_the_connection_can_be_removed(cluster: Cluster, name: str, value: str) -> None:
    assert list(cluster.render(site(HI, {name: value}), service("web"), libraries=ALL).rejected) == [
        "Ingress default/a"
    ]


@pytest.mark.haproxy
def test_cookies_of_the_application_get_another_path_and_domain(cluster: Cluster) -> None:
    annotations = {
        "proxy-cookie-path": "/two/ /",
        "proxy-cookie-domain": "Inner.example.net $host",
        "affinity": "cookie",
    }
    cookies = {
        "a=path=/two/; Path=/two/some; HttpOnly": "a=path=/two/; Path=/some; HttpOnly",
        "b=1; domain=.inner.example.net; path=/two": "b=1; domain=a.example.com; path=/two",
        "c=1; Secure;Domain=INNER.example.net": "c=1; Secure;Domain=a.example.com",
        "d=1; PATH=/two/; Domain=inner.example.net; Secure": "d=1; PATH=/; Domain=a.example.com; Secure",
        "e=1; Path=/other; Domain=x.inner.example.net": "e=1; Path=/other; Domain=x.inner.example.net",
        "f=1; xpath=/two/; Domain=inner.example.network": "f=1; xpath=/two/; Domain=inner.example.network",
        "g=" + ";" * 4_000 + "path=/two/x": "g=" + ";" * 4_000 + "path=/x",
    }
    _, came = served(cluster, site(NGINX, annotations), [("Set-Cookie", cookie) for cookie in cookies], {})

    *found, sticky = came.get_all("set-cookie") or []
    assert found == list(cookies.values())
    assert sticky.startswith("INGRESSCOOKIE=")


@pytest.mark.haproxy
@pytest.mark.parametrize(
    ("annotations", "sent", "came"),
    [
        (("http://inner:8000/two/", "/one/"), "http://inner:8000/two/x?y=%20", "/one/x?y=%20"),
        (("/two", "$scheme://$host/100%25"), "/two/x", "http://a.example.com/100%25/x"),
        (("/two", "/one"), "/three/two", "/three/two"),
        (("http://inner", "https://b.example.com"), "http://xinner/", "http://xinner/"),
        (("off", "off"), "/two", "/two"),
        (("default", "off"), "/two", "/two"),
    ],
    ids=str,
)
def test_the_beginning_of_a_location_is_replaced(
    cluster: Cluster, annotations: tuple[str, str], sent: str, came: str
) -> None:
    named = dict(zip(("proxy-redirect-from", "proxy-redirect-to"), annotations, strict=True))
    _, headers = served(cluster, site(NGINX, named), [("Location", sent)], {})

    assert headers["location"] == came


@pytest.mark.parametrize(
    "annotations",
    [
        {"proxy-redirect-from": "/a"},
        {"proxy-redirect-to": "/a"},
        {"proxy-redirect-from": "~^/a", "proxy-redirect-to": "/b"},
        {"proxy-redirect-from": "/a", "proxy-redirect-to": "/b$request_uri"},
        {"proxy-redirect-from": "/a", "proxy-redirect-to": "/b\\2"},
        {"proxy-redirect-from": "/a", "proxy-redirect-to": "%[env(HOME)]"},
        {"proxy-cookie-path": "~^/a$ /b"},
        {"proxy-cookie-path": "/a"},
        {"proxy-cookie-path": "/a /b;Domain=c"},
        {"proxy-cookie-path": "/a \\1"},
        {"proxy-cookie-domain": "a.example.com *.example.com;"},
        {"proxy-cookie-domain": "~a b"},
        {"limit-rate": "100k"},
        {"limit-rate": "100", "limit-rate-after": "5"},
    ],
    ids=str,
)
def test_changes_of_answers_that_cannot_be_expressed_are_rejected(
    cluster: Cluster, annotations: dict[str, str]
) -> None:
    (message,) = cluster.render(site(NGINX, annotations), service("web"), libraries=ALL).rejected.values()

    assert message


@pytest.mark.haproxy
def test_an_answer_takes_as_long_as_its_rate_allows(cluster: Cluster) -> None:
    class Large(QuietHandler):
        def answer(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(300 * 1024))
            self.end_headers()
            self.wfile.write(bytes(300 * 1024))

    with answering(Large) as port:
        slices = endpoint_slice("web", endpoint("127.0.0.1"), ports=port)
        cluster.serve(site(NGINX, {"limit-rate": "100"}), service("web"), slices, libraries=ALL)
        began = time.monotonic()
        answer = ask(cluster.http_port, HOST)

    assert len(answer.body) == 300 * 1024
    assert time.monotonic() - began > 1.5


@pytest.mark.haproxy
@pytest.mark.parametrize(
    ("prefix", "annotations"),
    [
        (HI, {"headers": "X-Set-It: edge\nX-_two: edge"}),
        (HI, {"request-set-headers": "X-Set-It: edge\nX-_two: edge", "request-del-headers": "X-Gone"}),
        ("haproxy.org/", {"request-set-header": "X-Set-It edge\nX-_two edge"}),
        (HI, {"headers": "X_Set.It: edge\nX-_two: edge"}),
        (HI, {"request-set-headers": "X_Set.It: edge\nX-_two: edge", "request-del-headers": "X.Gone"}),
        ("haproxy.org/", {"request-set-header": "X_Set.It edge\nX-_two edge"}),
    ],
)
def test_another_spelling_of_a_header_that_is_set_or_removed_does_not_arrive(
    cluster: Cluster, prefix: str, annotations: dict[str, str]
) -> None:
    names = ["X-Set-It", "x.set_it", "X_SET_IT", "X_Set.It", "X_Gone", "X__two", "X--two", "X_Other", "X-_two"]
    got, _ = served(cluster, site(prefix, annotations), [], dict.fromkeys(names, "client"))

    found = {name.lower(): value for name, value in got.items() if value in {"client", "edge"}}
    kept = {} if "request-del-headers" in annotations else {"x_gone": "client"}
    set_name = "x_set.it" if any("X_Set.It" in text for text in annotations.values()) else "x-set-it"
    assert found == {set_name: "edge", "x-_two": "edge", "x_other": "client", **kept}


@pytest.mark.haproxy
def test_a_trusted_proxy_sends_no_other_spelling_of_a_prefix_that_is_set(cluster: Cluster) -> None:
    received = list[Headers]()

    class Application(QuietHandler):
        def answer(self) -> None:
            received.append(self.headers)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with answering(Application) as port:
        cluster.serve(
            site(NGINX, {"x-forwarded-prefix": "/app"}),
            service("web"),
            endpoint_slice("web", endpoint("127.0.0.1"), ports=port),
            libraries=ALL,
            trustedProxies=["127.0.0.0/8"],
        )
        ask(cluster.http_port, HOST, headers={"X_Forwarded_Prefix": "/client", "X-Forwarded.Prefix": "/client"})

    assert [value for name, value in received[0].items() if "prefix" in name.lower()] == ["/app"]
