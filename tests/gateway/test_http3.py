"""Gateways over HTTP/3: the same listeners, routes and conditions as over TCP."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.gateway.objects import gateway, made, route, rule
from tests.gateway.serving import Authority, endpoints, render, secret, served
from tests.support.processes.newer_haproxy import haproxy_with_quic
from tests.support.processes.ports import free_port
from tests.support.traffic.http3 import Http3Client, Http3Error, run_http3
from tests.support.traffic.servers import serving

__all__ = ["haproxy_with_quic"]

SITES, CLIENTS, STRANGERS = Authority(), Authority(), Authority()
ONE, TWO = "one.test", "two.test"
TRUSTED = SITES.certificate.encode()


def listener(host: str, port: int) -> dict[str, Any]:
    tls = {"certificateRefs": [{"name": host}]}
    return {"name": f"{host}-{port}", "port": port, "protocol": "HTTPS", "hostname": host, "tls": tls}


def objects(web: int, *listeners: dict[str, Any], **fields: Any) -> list[Any]:
    """Return a Gateway with *listeners*, and a route of each of the two hosts to the port *web*."""
    return [
        gateway("gw", *listeners, **fields),
        *(secret(host, SITES.issue(host)) for host in (ONE, TWO)),
        *(route(host, rule(f"/{host[:3]}"), hostnames=[host]) for host in (ONE, TWO)),
        made("Service", "app", version="v1", spec={"ports": [{"port": 80}]}),
        endpoints("app", ("", web)),
        CLIENTS.config_map("clients"),
    ]


def asking(strict: int, lenient: int = 0) -> dict[str, Any]:
    """Return what a Gateway says of clients' certificates: one must be shown at *strict*, and may be at *lenient*."""
    validation = {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "clients"}]}
    ports = [{"port": strict, "tls": {"validation": validation}}]
    ports += [{"port": lenient, "tls": {"validation": {**validation, "mode": "AllowInsecureFallback"}}}] * bool(lenient)
    return {"frontend": {"default": {}, "perPort": ports}}


async def connected(nursery: trio.Nursery, port: int, name: str, **how: Any) -> Http3Client:
    client: Http3Client = await nursery.start(partial(run_http3, port, name, authority=TRUSTED, **how))
    return client


@contextmanager
def rejection() -> Iterator[None]:
    """Expect no answer: a client is through before it learns that it is not; with `limited-quic` it never does."""
    with pytest.raises((Http3Error, trio.TooSlowError)), trio.fail_after(5):
        yield


def pair(authority: Authority) -> tuple[bytes, bytes]:
    certificate, key = authority.issue("joe.test")
    return certificate.encode(), key.encode()


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_with_quic")
async def test_a_connection_is_for_the_listener_of_its_name_alone(tmp_path: Path, nursery: trio.Nursery) -> None:
    port = free_port()
    with serving("web") as web:
        found = objects(web["web"], listener(ONE, port), listener(TWO, port))
        with served(tmp_path, port, *found, http3=True):
            clients = {name: await connected(nursery, port, name) for name in (ONE, TWO)}
            answers = [await clients[name].ask(name, f"/{name[:3]}") for name in (ONE, TWO)]
            unrouted = await clients[ONE].ask(ONE, "/two")
            misdirected = await clients[ONE].ask(TWO, "/two")

    assert {name: client.names for name, client in clients.items()} == {ONE: {ONE}, TWO: {TWO}}
    assert [(answer.status, answer.body.split("\n")[1]) for answer in answers] == [(200, "/one"), (200, "/two")]
    assert [answer.headers["alt-svc"] for answer in answers] == [f'h3=":{port}"; ma=3600'] * 2
    assert (unrouted.status, misdirected.status) == (404, 421)


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_with_quic")
async def test_clients_must_show_the_certificates_that_they_must_over_tcp(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    strict, lenient = free_port(), free_port()
    with serving("web") as web:
        found = objects(web["web"], listener(ONE, strict), listener(ONE, lenient), tls=asking(strict, lenient))
        with served(tmp_path, strict, *found, http3=True):
            known = await connected(nursery, strict, ONE, pair=pair(CLIENTS))
            assert (await known.ask(ONE, "/one")).status == 200
            for stranger in (None, pair(STRANGERS)):
                with rejection():
                    await (await connected(nursery, strict, ONE, pair=stranger)).ask(ONE, "/one")
                anybody = await connected(nursery, lenient, ONE, pair=stranger)
                assert (await anybody.ask(ONE, "/one")).status == 200


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_with_quic")
async def test_a_tls_session_of_another_port_is_rejected(tmp_path: Path, nursery: trio.Nursery) -> None:
    strict, open_port = free_port(), free_port()
    with serving("web") as web:
        found = objects(web["web"], listener(ONE, strict), listener(ONE, open_port), tls=asking(strict))
        with served(tmp_path, strict, *found, http3=True):
            known = await connected(nursery, strict, ONE, pair=pair(CLIENTS))
            anybody = await connected(nursery, open_port, ONE)
            for client in (known, anybody):
                assert (await client.ask(ONE, "/one")).status == 200

            back = await connected(nursery, strict, ONE, ticket=known.tickets[0])
            assert (await back.ask(ONE, "/one")).status == 200
            assert back.has_resumed
            with rejection():
                await (await connected(nursery, strict, ONE, ticket=anybody.tickets[0])).ask(ONE, "/one")


THROUGH = "through.test"


def passthrough(port: int) -> dict[str, Any]:
    return {"name": "through", "port": port, "protocol": "TLS", "hostname": THROUGH, "tls": {"mode": "Passthrough"}}


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_with_quic")
async def test_hosts_that_are_passed_through_take_it_from_no_other_host_of_the_port(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    port = free_port()
    for_every_host = {key: value for key, value in listener(TWO, port).items() if key != "hostname"}
    with serving("web") as web:
        found = objects(web["web"], listener(ONE, port), for_every_host, passthrough(port))
        to_server = {"backendRefs": [{"name": "app", "port": 80}]}
        found.append(route("through", to_server, hostnames=[THROUGH], kind="TLSRoute"))
        found[0]["metadata"]["annotations"] = {"haptic-trio/connections-per-client": "3"}
        with served(tmp_path, port, *found, http3=True, connectionsPerClient=3):
            client = await connected(nursery, port, ONE)
            answer = await client.ask(ONE, "/one")
            misdirected = [(await client.ask(host, "/one")).status for host in (TWO, THROUGH)]
            # Its clients get a certificate from its server alone.
            with pytest.raises(Http3Error):
                await connected(nursery, port, THROUGH)
            other = await (await connected(nursery, port, TWO)).ask(TWO, "/two")
            # A connection over TCP passes both frontends, and counts once.
            with (
                socket.create_connection(("127.0.0.1", port), 5) as plain,
                SITES.client().wrap_socket(plain, server_hostname=TWO) as over_tcp,
            ):
                over_tcp.sendall(f"GET /two HTTP/1.1\r\nHost: {TWO}\r\n\r\n".encode())
                assert over_tcp.recv(100).startswith(b"HTTP/1.1 200")
                with rejection():
                    await (await connected(nursery, port, TWO)).ask(TWO, "/two")

    assert (answer.status, answer.headers["alt-svc"]) == (200, f'h3=":{port}"; ma=3600')
    assert "x-forwarded-for: 127.0.0.1\n" in f"{answer.body}\n"
    assert (misdirected, other.status) == ([421, 421], 200)


def test_the_frontend_of_hosts_that_end_here_has_it_at_a_mixed_port() -> None:
    plain = {"name": "plain", "port": 80, "protocol": "HTTP"}
    for_every_host = {key: value for key, value in listener(TWO, 443).items() if key != "hostname"}

    mixed = render(*objects(1, listener(ONE, 443), for_every_host, passthrough(443), plain), http3=True)
    alone = render(*objects(1, listener(ONE, 443), for_every_host, plain), http3=True)

    for rendered in (mixed, alone):
        assert rendered.text.count("bind quic4@127.0.0.1:443 ssl crt-list") == 1
    (inner,) = (part for part in mixed.text.split("\nfrontend ") if "quic4@" in part)
    assert "_inner_https " in inner.partition("\n")[0]
    assert [mixed.text.count("Alt-Svc"), inner.count("Alt-Svc")] == [1, 1]
    # The certificate for every host is not shown for hosts that are passed through.
    assert [" strict-sni alpn h3" in rendered.text for rendered in (mixed, alone)] == [True, False]
