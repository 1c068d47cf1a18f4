"""HTTP/3 on the wire: who is served, what servers receive, and what changes and reloads do to connections."""

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
import trio

from haptic_trio.dataplane.binary import probe_version
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import FileKind, Generation, make_file, make_generation
from haptic_trio.k8s.resource import Resource
from tests.libraries.conftest import Cluster
from tests.libraries.requests.test_edge import seen
from tests.libraries.tls.test_passthrough import LIBRARIES, passing
from tests.libraries.tls.test_ssl import AUTHORITY, secret, secure
from tests.support.components.rendering import render
from tests.support.kubernetes import endpoint, endpoint_slice, service
from tests.support.processes.haproxy import instances
from tests.support.processes.newer_haproxy import haproxy_with_quic
from tests.support.processes.ports import free_port
from tests.support.traffic.http3 import NO_ERROR, Http3Client, Http3Error, run_http3
from tests.support.traffic.servers import QuietHandler, answering, serving

__all__ = ["haproxy_with_quic"]

pytestmark = [pytest.mark.haproxy, pytest.mark.usefixtures("haproxy_with_quic")]

HERE = "127.0.0.1"
HOST, OTHER, NEW = "a.example.com", "b.example.com", "new.example.com"
KINDS = {"map": FileKind.MAP, "pem": FileKind.CERT, "list": FileKind.CRT_LIST}
TRUSTED = AUTHORITY.cert_pem.bytes()


def site(port: int) -> list[Resource]:
    """Return two hosts with TLS that lead to the same Service, whose endpoint listens at *port*."""
    return [
        *(secure(host[0], host, host[0]) for host in (HOST, OTHER)),
        *(secret(host[0], host) for host in (HOST, OTHER)),
        service("web"),
        endpoint_slice("web", endpoint(HERE), ports=port),
    ]


@contextmanager
def edge(cluster: Cluster, **settings: Any) -> Iterator[int]:
    """Serve `site` with HTTP/3, and yield the port; the server says what arrives."""
    with serving("web") as ports:
        cluster.serve(*site(ports["web"]), http3=True, **settings)
        yield cluster.https_port


async def connected(nursery: trio.Nursery, port: int, name: str = HOST, **how: Any) -> Http3Client:
    """Connect as a client that checks the certificate; the connection ends with *nursery*."""
    client: Http3Client = await nursery.start(partial(run_http3, port, name, authority=TRUSTED, **how))
    return client


@pytest.mark.parametrize("newest", [False, True], ids=["HTTP/1.1", "HTTP/2"])
async def test_clients_learn_of_http3(cluster: Cluster, newest: bool) -> None:
    trusting = ssl.create_default_context()
    AUTHORITY.configure_trust(trusting)
    with edge(cluster, http3Port=443, http3MaxAge=60) as port:
        async with httpx.AsyncClient(http2=newest, verify=trusting) as client:
            url = f"https://{HERE}:{port}/"
            answer = await client.get(url, headers={"Host": HOST}, extensions={"sni_hostname": HOST})

    assert (answer.http_version, answer.status_code) == ("HTTP/2" if newest else "HTTP/1.1", 200)
    assert answer.headers["alt-svc"] == 'h3=":443"; ma=60'


async def test_a_request_is_served_reported_and_logged_like_any_other(cluster: Cluster, nursery: trio.Nursery) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as log:
        log.bind((HERE, 0))
        log.settimeout(20)
        settings = {"accessLogFormat": "json", "accessLogTarget": f"{HERE}:{log.getsockname()[1]}"}
        with edge(cluster, requestIdHeader="X-Request-ID", hstsMaxAge=60, accessLog=True, **settings) as port:
            client = await connected(nursery, port)
            claims = {"X-Forwarded-For": "203.0.113.5", "X-Forwarded-Proto": "http", "X-Request-ID": "mine"}
            answer = await client.ask(HOST, "/x?y=z", headers=claims)
        entry: dict[str, Any] = {"path": ""}
        while entry["path"] != "/x":
            line = log.recv(65536).decode()
            entry = json.loads(line[line.index("{") :])

    assert (answer.status, answer.body.split("\n")[:2]) == (200, ["web", "/x?y=z"])
    reported = seen(answer)
    assert (reported["host"], reported["x-forwarded-for"], reported["x-forwarded-proto"]) == (HOST, HERE, "https")
    assert reported["x-forwarded-port"] == str(port)
    assert answer.headers["strict-transport-security"] == "max-age=60"
    assert answer.headers["x-request-id"] == reported["x-request-id"] == entry["request_id"] != "mine"
    assert (entry["protocol"], entry["client"], entry["status"], entry["host"]) == ("HTTP/3.0", HERE, 200, HOST)


async def test_a_trusted_proxy_in_front_names_the_client(cluster: Cluster, nursery: trio.Nursery) -> None:
    with edge(cluster, trustedProxies=["127.0.0.0/8"], deniedSources=["203.0.113.6"]) as port:
        client = await connected(nursery, port)
        served, denied = [await client.ask(HOST, headers={"X-Forwarded-For": f"203.0.113.{n}"}) for n in (5, 6)]

    assert f"x-forwarded-for: 203.0.113.5\nx-forwarded-for: {HERE}\n" in served.body
    assert denied.status == 403


async def test_the_name_in_the_handshake_chooses_the_certificate(cluster: Cluster, nursery: trio.Nursery) -> None:
    with edge(cluster, strictSni=True) as port:
        clients = {name: await connected(nursery, port, name) for name in (HOST, OTHER)}

        assert {name: client.names for name, client in clients.items()} == {HOST: {HOST}, OTHER: {OTHER}}
        with pytest.raises(Http3Error):
            await nursery.start(run_http3, port, "unknown.example.org")


async def test_limits_hold(cluster: Cluster, nursery: trio.Nursery) -> None:
    with edge(cluster, rateLimit=3, rateLimitPeriod="1m", connectionsPerClient=1) as port:
        client = await connected(nursery, port)
        statuses = [(await client.ask(HOST)).status for _ in range(5)]
        with pytest.raises(Http3Error):
            await (await connected(nursery, port)).ask(HOST)

    assert statuses == [200, 200, 200, 429, 429]


async def test_both_families_are_served(cluster: Cluster, nursery: trio.Nursery) -> None:
    with edge(cluster, bindAddress="[::]") as port:
        reported = [seen(await (await connected(nursery, port, host=host)).ask(HOST)) for host in (HERE, "::1")]

    assert [headers["x-forwarded-for"].removeprefix("::ffff:") for headers in reported] == [HERE, "::1"]


async def test_hosts_that_end_here_are_served_beside_those_that_are_passed_through(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    with serving("web") as ports:
        cluster.serve(*site(ports["web"]), passing("own"), service("own"), http3=True, libraries=LIBRARIES)
        client = await connected(nursery, cluster.https_port)
        answer = await client.ask(HOST)

    assert (answer.status, seen(answer)["x-forwarded-for"]) == (200, HERE)


class Instance:
    """`site` on an instance with an agent, whose configuration changes."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self.http_port, self.https_port = free_port(), free_port()

    def generation(self, *more: Resource, **settings: Any) -> Generation:
        """Return what is to be deployed for the site and *more*; objects of the same name replace those of the site."""
        names = {(each["kind"], each["metadata"]["name"]) for each in more}
        kept = [each for each in site(self._server_port) if (each["kind"], each["metadata"]["name"]) not in names]
        settings |= {"httpPort": self.http_port, "httpsPort": self.https_port, "bindAddress": HERE, "http3": True}
        rendered = render([*kept, *more], **settings)
        files = [make_file(KINDS[name.rpartition(".")[2]], name, text) for name, text in rendered.files.items()]
        return make_generation(parse_config(rendered.text, source="haproxy.cfg"), files)


async def test_routes_and_certificates_change_without_a_reload(
    tmp_path: Path, haproxy_with_quic: Path, nursery: trio.Nursery
) -> None:
    with serving("web") as ports:
        instance = Instance(ports["web"])
        async with instances(tmp_path, haproxy_with_quic) as (agent,):
            await sync_endpoint(agent, instance.generation())
            client = await connected(nursery, instance.https_port)
            before = await client.ask(NEW)

            more = secure("new", NEW, "new"), secret("new", NEW), secret("a", HOST, "renewed.example.com")
            result = await sync_endpoint(agent, instance.generation(*more))
            after = await client.ask(NEW)
            found = [(await connected(nursery, instance.https_port, name)).names for name in (HOST, NEW)]

    assert (before.status, after.status) == (404, 200)
    assert client.names == {HOST}
    assert found == [{HOST, "renewed.example.com"}, {NEW}]
    assert (result.changed, result.reloaded) == (True, False)


async def test_a_reload_lets_requests_finish_and_then_ends_their_connection(
    tmp_path: Path, haproxy_with_quic: Path, nursery: trio.Nursery
) -> None:
    arrived, may_answer = Event(), Event()

    class Slow(QuietHandler):
        def answer(self) -> None:
            arrived.set()
            may_answer.wait(60)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

    answers = []

    async def ask_in_background(client: Http3Client) -> None:
        answers.append(await client.ask(HOST))

    with answering(Slow) as port, ExitStack() as stack:
        stack.callback(may_answer.set)
        instance = Instance(port)
        async with instances(tmp_path, haproxy_with_quic) as (agent,):
            await sync_endpoint(agent, instance.generation())
            former = await connected(nursery, instance.https_port)
            async with trio.open_nursery() as asking:
                asking.start_soon(ask_in_background, former)
                await trio.to_thread.run_sync(arrived.wait, 60)
                result = await sync_endpoint(agent, instance.generation(responseHeaders={"X-Newest": "yes"}))
                may_answer.set()
            reason = await former.wait_ended()
            newest = await newest_answer(nursery, instance.https_port)

    assert result.reloaded
    assert [(each.status, each.headers.get("x-newest")) for each in answers] == [(200, None)]
    assert reason == NO_ERROR
    assert newest == 200


async def newest_answer(nursery: trio.Nursery, port: int) -> int:
    """Return the status of an answer of the process that a reload has begun, by a new connection."""
    with trio.fail_after(60):
        while True:
            # Who comes at the very moment may be left alone by the process that is about to go.
            with trio.move_on_after(2):
                try:
                    answer = await (await connected(nursery, port)).ask(HOST)
                except Http3Error:
                    continue
                if "x-newest" in answer.headers:
                    return answer.status


async def test_load_balancers_that_must_speak_the_proxy_protocol_are_rejected(
    cluster: Cluster, nursery: trio.Nursery, haproxy_with_quic: Path
) -> None:
    if probe_version(haproxy_with_quic).number < (3, 1):
        pytest.skip("this HAProxy cannot say so: it does not answer")
    with edge(cluster, proxyProtocolFrom=[HERE]) as port, pytest.raises(Http3Error):
        await connected(nursery, port)


async def test_the_proxy_protocol_is_required_of_no_other_client(cluster: Cluster, nursery: trio.Nursery) -> None:
    with edge(cluster, proxyProtocolFrom=["192.0.2.1"]) as port:
        assert (await (await connected(nursery, port)).ask(HOST)).status == 200


async def test_rules_for_paths_headers_and_tunnels_are_those_of_other_versions(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    with edge(cluster, deniedPaths=["/admin"]) as port:
        client = await connected(nursery, port)
        headers = {"x-real-ip": "forged", "x_real_ip": "forged", "x-scheme": "forged"}
        arrived = seen(await client.ask(HOST, "/x/../y", headers=headers))
        spellings = ("//admin", "/x/../admin", "/%61dmin", "/x/%2e%2e/admin", "/%2fadmin", "/admin;x")
        rejected = [(await client.ask(HOST, spelling)).status for spelling in spellings]
        # HAProxy 3.4 resets the stream by itself.
        tunnel = 0
        with suppress(Http3Error):
            tunnel = (await client.send({":method": "CONNECT", ":authority": f"{HOST}:443"})).status

    assert "forged" not in arrived.values()
    assert arrived["x-real-ip"] == HERE
    assert rejected == [403] * len(spellings)
    assert tunnel in {0, 405}


async def test_a_body_counts_by_its_announced_length_before_any_of_it_arrives(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    with edge(cluster, maxBodySize="5g") as port:
        client = await connected(nursery, port)
        fields = {":method": "POST", ":scheme": "https", ":authority": HOST, ":path": "/"}
        found = [
            (await client.send({**fields, "content-length": str(length)}, end=False)).status
            for length in (5 * 2**30, 5 * 2**30 + 1, 2**33, 2**63)
        ]

    assert found == [200, 413, 413, 400]
