"""Connections that go to endpoints as they are, beside those that HAProxy ends itself, on a real HAProxy."""

import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import pytest
import trustme

from haptic_trio.k8s.resource import Resource
from tests.libraries.conftest import Cluster
from tests.support.components.rendering import Rendered, render
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service, tls_secret
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import Answer, QuietHandler, answering, ask, dns_names, serving

LIBRARIES = ("base", "ssl", "ingress", "nginx-annotations", "haproxy-org-annotations", "haproxy-ingress-annotations")
PREFIXES: Final = {"nginx": "nginx.ingress.kubernetes.io/", "org": "haproxy.org/", "hi": "haproxy-ingress.github.io/"}
AUTHORITY = trustme.CA()
ELSEWHERE = "127.0.0.9"


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.0"

    def answer(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"own")


@contextmanager
def ending_tls() -> Iterator[int]:
    """Run an endpoint that has the certificate of `endpoint.example.com`; yields its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("endpoint.example.com").configure_cert(context)
    with answering(_Handler, tls=context) as port:
        yield port


def passing(name: str, vendor: str = "nginx", age: int = 1, more: dict[str, str] | None = None) -> Resource:
    annotations = {"ssl-passthrough": "true", **(more or {})}
    return ingress(
        name,
        rule(f"{name}.example.com", path("/", "own")),
        annotations={PREFIXES[vendor] + key: value for key, value in annotations.items()},
        age=age,
    )


def local(name: str, port: int) -> tuple[Resource, Resource]:
    """Return a Service whose only endpoint is the local *port*."""
    return service(name), endpoint_slice(name, endpoint("127.0.0.1"), ports=port)


def certificate(*hosts: str) -> Resource:
    issued = AUTHORITY.issue_cert(*hosts)
    return tls_secret("site", issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes())


def ask_over_tls(cluster: Cluster, sni: str, host: str = "") -> tuple[set[str], Answer]:
    """Return the names in the certificate that is shown, and the answer to a request from ELSEWHERE."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", cluster.https_port), 5, (ELSEWHERE, 0)) as plain,
        context.wrap_socket(plain, server_hostname=sni) as connection,
    ):
        names = dns_names(connection.getpeercert(binary_form=True) or b"")
        connection.sendall(f"GET / HTTP/1.1\r\nHost: {host or sni}\r\nConnection: close\r\n\r\n".encode())
        response = http.client.HTTPResponse(connection)
        response.begin()
        return names, Answer(response.status, response.read().decode(), dict(response.getheaders()))


@pytest.mark.haproxy
def test_the_name_that_a_client_asks_for_decides_who_ends_its_connection(cluster: Cluster) -> None:
    with serving("web") as running, ending_tls() as port:
        cluster.serve(
            *(passing(vendor, vendor) for vendor in PREFIXES),
            passing("web", age=2),
            ingress("web", rule("web.example.com", path("/", "web")), namespace="default", tls=[{"secretName": "site"}])
            | {"metadata": {"name": "older", "namespace": "default", "creationTimestamp": "2020-01-01T00:00:00Z"}},
            *local("web", running["web"]),
            *local("own", port),
            certificate("web.example.com"),
            libraries=LIBRARIES,
            passthroughPort=free_port(),
            allowedSources=["127.0.0.0/8"],
        )

        for vendor in PREFIXES:
            names, answer = ask_over_tls(cluster, f"{vendor}.example.com")
            assert (names, answer.status, answer.body) == ({"endpoint.example.com"}, 200, "own")
            plain = ask(cluster.http_port, f"{vendor}.example.com", "/a?b=1")
            assert (plain.status, plain.headers["location"]) == (308, f"https://{vendor}.example.com/a?b=1")
        names, answer = ask_over_tls(cluster, "web.example.com")
        assert (names, answer.status) == ({"web.example.com"}, 200)
        assert f"x-forwarded-for: {ELSEWHERE}" in answer.body
        assert ask_over_tls(cluster, "web.example.com", "nginx.example.com")[1].status == 421


@pytest.mark.haproxy
def test_without_any_certificate_all_others_are_turned_away(cluster: Cluster) -> None:
    with ending_tls() as port:
        cluster.serve(
            passing("nginx"),
            *local("own", port),
            libraries=LIBRARIES,
        )

        assert ask_over_tls(cluster, "nginx.example.com")[1].body == "own"
        with pytest.raises((ssl.SSLError, OSError)):
            ask_over_tls(cluster, "other.example.com")


@pytest.mark.haproxy
def test_without_any_certificate_all_others_get_the_placeholder_where_https_is_always_served(cluster: Cluster) -> None:
    with ending_tls() as port:
        cluster.serve(
            passing("nginx"),
            *local("own", port),
            libraries=LIBRARIES,
            passthroughPort=free_port(),
            httpsAlways=True,
        )

        assert ask_over_tls(cluster, "nginx.example.com")[1].body == "own"
        names, answer = ask_over_tls(cluster, "other.example.com")
        assert (names, answer.status) == ({"placeholder.invalid"}, 404)


@pytest.mark.haproxy
def test_who_is_not_allowed_to_connect_does_not_get_through(cluster: Cluster) -> None:
    with ending_tls() as port:
        cluster.serve(
            passing("nginx"),
            *local("own", port),
            libraries=LIBRARIES,
            deniedSources=[ELSEWHERE],
        )

        with pytest.raises((ssl.SSLError, OSError)):
            ask_over_tls(cluster, "nginx.example.com")


@pytest.mark.haproxy
def test_each_connection_of_a_client_counts_once(cluster: Cluster) -> None:
    with serving("web") as running, ending_tls() as port:
        cluster.serve(
            passing("nginx"),
            ingress("web", rule("web.example.com", path("/", "web")), tls=[{"secretName": "site"}]),
            *local("web", running["web"]),
            *local("own", port),
            certificate("web.example.com"),
            libraries=LIBRARIES,
            passthroughPort=free_port(),
            connectionsPerClient=2,
        )
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

        for number, host in enumerate(("nginx.example.com", "web.example.com"), start=2):
            with ExitStack() as stack:

                def connect(host: str = host, source: str = f"127.0.0.{number}", stack: ExitStack = stack) -> None:
                    plain = stack.enter_context(
                        socket.create_connection(("127.0.0.1", cluster.https_port), 5, (source, 0))
                    )
                    stack.enter_context(context.wrap_socket(plain, server_hostname=host))

                connect()
                connect()
                with pytest.raises((ssl.SSLError, OSError)):
                    connect()


def rendered(*objects: Resource) -> Rendered:
    return render([*objects, service("own"), certificate("a.example.com")], libraries=LIBRARIES)


def test_without_such_an_ingress_the_https_frontend_has_its_port() -> None:
    text = rendered(ingress("a", rule("a.example.com", path("/", "own")), tls=[{"secretName": "site"}])).text

    assert "bind *:8443 ssl" in text
    assert "frontend https-connections" not in text


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"auth-type": "basic"}, "auth-type cannot be combined with ssl-passthrough"),
        ({"whitelist-source-range": "10.0.0.0/8"}, "does not see the requests"),
        ({"ssl-passthrough": "perhaps"}, "neither true nor false"),
    ],
)
def test_what_needs_the_request_is_rejected_beside_it(change: dict[str, str], problem: str) -> None:
    good = passing("good")
    result = rendered(passing("evil", more=change), good)

    assert problem in result.rejected["Ingress default/evil"]
    assert result.files["maps/ingress-passthrough.map"] == "good.example.com tls::default_good_own_80\n"


def test_wildcards_and_paths_are_rejected() -> None:
    wild, deep, bare = passing("wild"), passing("deep"), passing("bare")
    wild["spec"]["rules"][0]["host"] = "*.example.com"
    deep["spec"]["rules"][0]["http"]["paths"][0]["path"] = "/a"
    del bare["spec"]["rules"][0]["host"]

    assert set(rendered(wild, deep, bare).rejected) == {f"Ingress default/{name}" for name in ("wild", "deep", "bare")}
