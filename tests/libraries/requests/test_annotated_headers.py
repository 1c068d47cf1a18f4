"""Annotations that change headers of requests and answers, as applications and clients see them."""

from http.client import HTTPConnection, HTTPMessage

import pytest

from haptic_trio.k8s.resource import Resource
from tests.libraries.conftest import Cluster
from tests.libraries.tenants.tenants import ALL, NGINX
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.traffic.servers import PATIENCE, QuietHandler, answering

HOST = "a.example.com"
HI = "haproxy-ingress.github.io/"


def site(prefix: str, annotations: dict[str, str]) -> Resource:
    named = {prefix + name: value for name, value in annotations.items()}
    return ingress("a", rule(HOST, path("/", "web")), annotations=named)


def served(
    cluster: Cluster, one: Resource, answer: list[tuple[str, str]], sent: dict[str, str]
) -> tuple[HTTPMessage, HTTPMessage]:
    """Return the headers that the application got, and those that the client got, which were *answer*."""
    received = list[HTTPMessage]()

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
