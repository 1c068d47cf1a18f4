"""Trailers of requests: with the setting `dropRequestTrailers` no server gets what a client sends as a trailer."""

import socket
from pathlib import Path

import pytest

from haptic_trio.dataplane.binary import probe_version
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import FileKind, Generation, make_file, make_generation
from haptic_trio.k8s.resource import Resource
from tests.support.components.rendering import render
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.processes.haproxy import haproxy_binary, instance_root, instances
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import PATIENCE, QuietHandler, answering

__all__ = ["haproxy_binary", "instance_root"]

pytestmark = pytest.mark.haproxy

REQUEST = b"POST / HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Role: admin\r\n\r\n"


class Echo(QuietHandler):
    """Answers with the trailers of the request."""

    def answer(self) -> None:
        while size := int(self.rfile.readline(), 16):
            self.rfile.read(size + 2)
        body = b"".join(iter(self.rfile.readline, b"\r\n"))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def shop(name: str, server: int) -> list[Resource]:
    """Return an Ingress for `NAME.test` with its Service, whose endpoint listens at *server*."""
    return [
        service(name, {"name": "http", "port": 80, "protocol": "TCP"}),
        endpoint_slice(name, endpoint("127.0.0.1"), ports={"http": server}),
        ingress(name, rule(f"{name}.test", path("/", name, "http"))),
    ]


def generation(*objects: Resource, port: int, drop: bool) -> Generation:
    rendered = render(objects, bindAddress="127.0.0.1", httpPort=port, httpsPort=free_port(), dropRequestTrailers=drop)
    kinds = {"map": FileKind.MAP, "list": FileKind.CRT_LIST, "pem": FileKind.CERT}
    files = [
        make_file(kinds.get(name.rpartition(".")[2], FileKind.FILE), name, text)
        for name, text in rendered.files.items()
    ]
    return make_generation(parse_config(rendered.text, source="haproxy.cfg"), files)


def trailers(port: int, host: str) -> bytes:
    """Return the trailers that a server gets of a request with one."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(REQUEST % host.encode())
        with connection.makefile("rb") as answer:
            head = list(iter(answer.readline, b"\r\n"))
            assert head[0].split()[1] == b"200"
            [length] = [int(line.split()[1]) for line in head if line.lower().startswith(b"content-length:")]
            return answer.read(length)


async def test_trailers_reach_servers_without_the_setting(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    with answering(Echo) as server:
        async with instances(instance_root, haproxy_binary) as (agent,):
            await sync_endpoint(agent, generation(*shop("one", server), port=port, drop=False))

            assert trailers(port, "one.test").lower() == b"x-role: admin\r\n"


async def test_no_server_gets_trailers_with_the_setting_nor_does_haproxy_reload_more(
    instance_root: Path, haproxy_binary: Path
) -> None:
    version = probe_version(haproxy_binary)
    if version.number < (3, 2):
        pytest.skip(f"HAProxy {version.text} does not drop trailers; 3.2 does")
    port = free_port()
    with answering(Echo) as server, answering(Echo) as other:
        async with instances(instance_root, haproxy_binary) as (agent,):
            await sync_endpoint(agent, generation(*shop("one", server), port=port, drop=True))
            assert trailers(port, "one.test") == b""

            moved = await sync_endpoint(agent, generation(*shop("one", other), port=port, drop=True))
            assert (moved.changed, moved.reloaded) == (True, False)
            assert trailers(port, "one.test") == b""

            added = await sync_endpoint(
                agent, generation(*shop("one", other), *shop("two", server), port=port, drop=True)
            )
            assert added.reloaded == (version.number < (3, 4))
            assert trailers(port, "two.test") == b""
