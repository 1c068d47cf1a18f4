"""BackendTLSPolicies with `subjectAltNames`: which servers get to answer."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from haptic_trio.gateway.objects import GatewayObjectError
from haptic_trio.gateway.routes.policies import SNI, alternative_names, check
from haptic_trio.k8s.resource import Resource
from tests.gateway.objects import gateway, made, route, rule, stores_of
from tests.gateway.serving import Authority, endpoints, served
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import QuietHandler, answering, ask

AUTHORITY = Authority()
HOSTS = ("own.test", "*.wild.test")
URIS = ("spiffe://own.test/ns/web/sa/app", "https://own.test/?a=b")


def host(name: str) -> dict[str, str]:
    return {"type": "Hostname", "hostname": name}


def uri(text: str) -> dict[str, str]:
    return {"type": "URI", "uri": text}


ACCEPTED = {
    "none": [],
    "host": [host("own.test")],
    "case": [host("OWN.test")],
    "uri": [uri(URIS[0])],
    "query": [uri(URIS[1])],
    "several": [host("other.test"), uri("spiffe://other.test/x"), uri(URIS[0])],
    "beneath-wildcard": [host("a.wild.test")],
    "wildcard": [host("*.wild.test")],
}
REJECTED = {
    "other-host": [host("other.test")],
    "part": [host("wn.test")],
    "two-labels": [host("a.b.wild.test")],
    "no-label": [host("wild.test")],
    "any-of-own": [host("*.test")],
    "other-uri": [uri("spiffe://own.test/ns/web/sa/other")],
    "longer-uri": [uri(f"{URIS[0]}x")],
    "uri-as-host": [uri("own:test"), host("spiffe")],
    "several-others": [host("a.test"), host("b.test"), uri("spiffe://own.test/")],
}


EXPECTED = {"asked": {503}, "not-asked": {200}, "plain": {200}, "plain-other": {503}}


class _Handler(QuietHandler):
    asked_for: list[str | None]

    def answer(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()


@contextmanager
def tls_server(directory: Path) -> Iterator[tuple[int, list[str | None]]]:
    """Run a server with the names `HOSTS` and `URIS`; yields its port and the host names that it was asked for."""
    certificate, key = AUTHORITY.issue(*HOSTS, uris=URIS)
    (directory / "server.pem").write_text(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem")
    names: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    with answering(_Handler, tls=context) as port:
        yield port, names


def policy(name: str, wanted: list[dict[str, str]], hostname: str = "own.test", **options: str) -> Resource:
    validation = {
        "hostname": hostname,
        "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "authority"}],
        **({"subjectAltNames": wanted} if wanted else {}),
    }
    targets = [{"group": "", "kind": "Service", "name": name}]
    return made("BackendTLSPolicy", name, spec={"targetRefs": targets, "validation": validation, "options": options})


def site(name: str, port: int, wanted: list[dict[str, str]], *hostname: str, **options: str) -> list[Resource]:
    service = made("Service", name, version="v1", spec={"ports": [{"name": "tls", "port": 80}]})
    return [
        service,
        endpoints(name, ("tls", port)),
        policy(name, wanted, *hostname, **options),
        route(name, rule("/", to=name), hostnames=[f"{name}.test"]),
    ]


@pytest.mark.haproxy
def test_a_server_answers_only_with_one_of_the_names(tmp_path: Path) -> None:
    port = free_port()
    listener = {"name": "http", "port": port, "protocol": "HTTP"}
    cases = ACCEPTED | REJECTED
    with tls_server(tmp_path) as (server, asked):
        objects = [one for name, wanted in cases.items() for one in site(name, server, wanted)]
        # HAProxy holds the server to a host name that it asks for, and this one has no certificate for it.
        objects += site("asked", server, [uri(URIS[0])], "elsewhere.test")
        objects += site("not-asked", server, [uri(URIS[0])], "elsewhere.test", **{SNI: "off"})
        objects += site("plain", server, [], "own.test", **{SNI: "off"})
        objects += site("plain-other", server, [], "elsewhere.test", **{SNI: "off"})
        with served(tmp_path, port, gateway("gw", listener), AUTHORITY.config_map(), *objects, retries=0):
            reported = {name: {ask(port, f"{name}.test").status for _ in range(2)} for name in (*cases, *EXPECTED)}

    assert reported == {name: {502 if name in REJECTED else 200} for name in cases} | EXPECTED
    assert set(asked) == {"own.test", "elsewhere.test", None}


@pytest.mark.parametrize(
    "wanted",
    [
        {"type": "Hostname", "hostname": "a b"},
        {"type": "Hostname", "hostname": ""},
        {"type": "URI", "uri": "no scheme"},
        {"type": "URI", "uri": "a:b\n    bind :1"},
        {"type": "URI", "hostname": "own.test"},
        {"type": "Email", "email": "a@b.test"},
    ],
)
def test_an_invalid_alternative_name_makes_the_policy_unusable(wanted: dict[str, str]) -> None:
    with pytest.raises(GatewayObjectError):
        alternative_names([wanted])
    checked = check(policy("x", [host("own.test"), wanted]), stores_of(AUTHORITY.config_map()))

    assert not checked.is_usable
    assert checked.tls.hostname == ""
