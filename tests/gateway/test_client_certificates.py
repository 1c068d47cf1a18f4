"""Clients of a Gateway that have to show a certificate: a TLS session of another port or host does not admit them."""

import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import trustme

from haptic_trio.gateway.listeners.clients import ClientValidation, certificate_suffix
from haptic_trio.gateway.listeners.ports import ServedPort
from haptic_trio.k8s.resource import Resource
from tests.gateway.objects import gateway, made, route, rule
from tests.gateway.serving import Authority, endpoints, render, secret, served
from tests.support.processes.ports import free_port
from tests.support.traffic.proxy import running
from tests.support.traffic.servers import serving

SITES, ONE, TWO = Authority(), Authority(), Authority()
HOST = "web.test"
PAIR = {"certificateRefs": [{"name": "pair"}]}


class Ports(NamedTuple):
    """The ports of a Gateway, by what their clients must show."""

    one: int
    two: int
    anything: int
    nothing: int


def new_ports() -> Ports:
    return Ports(*(free_port() for _ in range(4)))


def validations(ports: Ports) -> dict[str, Any]:
    """Return `spec.tls` of the Gateway."""

    def of(port: int, name: str, **more: str) -> dict[str, Any]:
        references = [{"group": "", "kind": "ConfigMap", "name": name}]
        return {"port": port, "tls": {"validation": {"caCertificateRefs": references, **more}}}

    fallback = of(ports.anything, "one", mode="AllowInsecureFallback")
    return {"frontend": {"default": {}, "perPort": [of(ports.one, "one"), of(ports.two, "two"), fallback]}}


def around(ports: Ports, *listeners: dict[str, Any]) -> list[Resource]:
    """Return a Gateway with *listeners*, and what it refers to."""
    return [
        gateway("gw", *listeners, tls=validations(ports)),
        secret("pair", SITES.issue(HOST, "other.test")),
        ONE.config_map("one"),
        TWO.config_map("two"),
    ]


def client(directory: Path, authority: Authority | None, *, newest: bool = True) -> ssl.SSLContext:
    """Return a client with a certificate of *authority*, or without any; not *newest* is TLS 1.2."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if not newest:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if authority is not None:
        file = directory / f"{id(context)}.pem"
        file.write_text("".join(authority.issue("joe.test")))
        context.load_cert_chain(file)
    return context


@contextmanager
def connected(
    port: int, context: ssl.SSLContext, session: ssl.SSLSession | None = None, name: str = HOST
) -> Iterator[ssl.SSLSocket]:
    with (
        socket.create_connection(("127.0.0.1", port), 5) as plain,
        context.wrap_socket(plain, server_hostname=name, session=session) as connection,
    ):
        yield connection


def status(connection: ssl.SSLSocket, host: str = HOST) -> int:
    """Return the status of an answer for *host*; 0 without an answer."""
    try:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        response = http.client.HTTPResponse(connection)
        response.begin()
        response.read()
    except (OSError, http.client.HTTPException):
        return 0
    return response.status


def visit(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> tuple[int, bool, Any]:
    """Return the status of an answer, whether *session* was resumed, and what a later visit may resume."""
    try:
        with connected(port, context, session) as connection:
            found = status(connection)
            return found, connection.session_reused or False, connection.session
    except OSError:
        return 0, False, None


def in_front(web: int, ports: Ports, *listeners: dict[str, Any]) -> Iterator[Resource]:
    """Yield what is `around` the listeners, and the Service `web`, whose endpoint listens at the port *web*."""
    yield from around(ports, *listeners)
    yield made("Service", "web", version="v1", spec={"ports": [{"port": 80}]})
    yield endpoints("web", ("", web))


@pytest.mark.haproxy
@pytest.mark.parametrize("newest", [False, True], ids=["TLS 1.2", "TLS 1.3"])
@pytest.mark.parametrize("is_mixed", [False, True], ids=["alone", "mixed"])
def test_a_tls_session_of_another_port_is_rejected(tmp_path: Path, newest: bool, is_mixed: bool) -> None:
    ports = new_ports()
    listeners = [
        {"name": f"web-{port}", "port": port, "protocol": "HTTPS", "hostname": HOST, "tls": PAIR} for port in ports
    ]
    if is_mixed:
        through = {"protocol": "TLS", "hostname": "through.test", "tls": {"mode": "Passthrough"}}
        listeners += [{"name": f"through-{port}", "port": port, **through} for port in ports]
    absent, joe, eve = (client(tmp_path, authority, newest=newest) for authority in (None, ONE, TWO))
    with serving("web") as running:
        objects = [
            *in_front(running["web"], ports, *listeners),
            route("web", rule("/", to="web")),
        ]
        with served(tmp_path, ports.nothing, *objects):
            assert visit(ports.one, absent)[0] == 0
            assert visit(ports.one, eve)[0] == 0
            for context, origin in (
                (absent, ports.nothing),
                (absent, ports.anything),
                (eve, ports.nothing),
                (eve, ports.anything),
                (eve, ports.two),
            ):
                answer, _, session = visit(origin, context)
                assert (answer, session is None) == (200, False)
                # It is a session, and one that can be resumed where it began.
                assert visit(origin, context, session)[:2] == (200, True)
                assert visit(ports.one, context, session)[0] in {0, 421}
            answer, _, session = visit(ports.one, joe)
            assert answer == 200
            assert visit(ports.one, joe, session)[:2] == (200, True)


@pytest.mark.haproxy
def test_a_tls_session_of_another_port_is_rejected_where_tls_is_terminated(tmp_path: Path) -> None:
    ports = new_ports()
    listeners = [{"name": f"tls-{port}", "port": port, "protocol": "TLS", "tls": PAIR} for port in ports]
    absent, joe, eve = (client(tmp_path, authority) for authority in (None, ONE, TWO))
    with serving("web") as running:
        objects = [
            *in_front(running["web"], ports, *listeners),
            route("web", {"backendRefs": [{"name": "web", "port": 80}]}, hostnames=[HOST], kind="TLSRoute"),
        ]
        with served(tmp_path, ports.nothing, *objects):
            for context, origin in ((absent, ports.nothing), (eve, ports.two)):
                answer, _, session = visit(origin, context)
                assert answer == 200
                assert visit(ports.one, context, session)[0] == 0
            answer, _, session = visit(ports.one, joe)
            assert answer == 200
            assert visit(ports.one, joe, session)[:2] == (200, True)


@pytest.mark.haproxy
def test_a_client_whose_certificate_has_expired_is_rejected(tmp_path: Path) -> None:
    ports, authority, context = new_ports(), trustme.CA(), client(tmp_path, None)
    authority.issue_cert("joe@example.com", not_after=datetime.now(UTC) + timedelta(hours=1)).configure_cert(context)
    listener = {"name": "web", "port": ports.one, "protocol": "HTTPS", "hostname": HOST, "tls": PAIR}
    with serving("web") as servers:
        rendered = render(
            *in_front(servers["web"], ports, listener),
            made("ConfigMap", "one", version="v1", data={"ca.crt": authority.cert_pem.bytes().decode()}),
            route("web", rule("/", to="web")),
            bindAddress="127.0.0.1",
        )
        files = {file.path: file.content.decode() for file in rendered.files.values()}
        # As HAProxy sees it when a session is resumed later: OpenSSL does not verify the certificate again.
        for later, answer in (("", 200), ("(7200)", 421)):
            text = rendered.text.replace("date,utime", f"date{later},utime")
            with running(tmp_path, text, files, port=ports.one):
                assert visit(ports.one, context)[0] == answer


@pytest.mark.haproxy
def test_a_client_certificate_of_one_listener_does_not_count_for_another(tmp_path: Path) -> None:
    ports = new_ports()
    listeners = [
        {"name": name, "port": ports.one, "protocol": "HTTPS", "hostname": f"{name}.test", "tls": PAIR}
        for name in ("web", "other")
    ]
    joe = client(tmp_path, ONE)
    with serving("web") as running:
        objects = [
            *in_front(running["web"], ports, *listeners),
            route("web", rule("/", to="web")),
        ]
        with served(tmp_path, ports.one, *objects):
            for asked, answers in (("web.test", (200, 421)), ("other.test", (421, 200))):
                with connected(ports.one, joe, name=asked) as connection:
                    assert (status(connection), status(connection, "other.test:443")) == answers
            with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"), connected(ports.one, joe, name="third.test"):
                pass


@pytest.mark.haproxy
def test_a_port_without_valid_ca_certificates_is_closed_and_others_are_served(tmp_path: Path) -> None:
    ports = new_ports()
    listeners = [
        {"name": f"web-{port}", "port": port, "protocol": "HTTPS", "hostname": HOST, "tls": PAIR} for port in ports
    ]
    unreadable = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    broken = {"one": None, "two": made("ConfigMap", "two", version="v1", data={"ca.crt": unreadable})}
    with serving("web") as running:
        objects = [
            found
            for one in (*in_front(running["web"], ports, *listeners), route("web", rule("/", to="web")))
            if (found := broken.get(one["metadata"]["name"], one) if one["kind"] == "ConfigMap" else one) is not None
        ]
        with served(tmp_path, ports.nothing, *objects):
            assert visit(ports.nothing, client(tmp_path, None))[0] == 200
            # Also with the mode that lets clients in without a certificate, which needs the CA certificates, too.
            for closed in (ports.one, ports.two, ports.anything):
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", closed), 5)


def test_changed_ca_certificates_verify_every_client_again() -> None:
    strict = ServedPort(
        name="p", addresses=(), port=1, kind="https", listeners=(), known=(), clients=ClientValidation("A")
    )
    other, lenient, absent, open_port = (
        msgspec.structs.replace(strict, clients=clients)
        for clients in (ClientValidation("B"), ClientValidation("A", is_optional=True), ClientValidation(""), None)
    )

    assert strict.verified.startswith("gateway-clients::p_")
    assert other.verified.startswith("gateway-clients::p_")
    assert strict.verified != other.verified
    assert (lenient.verified, absent.verified, open_port.verified) == ("", "", "")


def test_gateways_with_the_longest_names_have_suffixes_of_their_own_that_fit_a_name() -> None:
    suffixes = {certificate_suffix(gateway("g" * 252 + end)) for end in "ab"}
    assert len(suffixes) == 2
    # Beside 200 characters, HAProxy's names have room for that.
    assert max(map(len, suffixes)) <= 55
