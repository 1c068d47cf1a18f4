"""The webhook over real TLS: who gets in, how much he may send, and what happens while certificates change."""

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio
import trustme
from prometheus_client import CollectorRegistry

from haptic_trio.channels import Latest
from haptic_trio.errors import Problem
from haptic_trio.metrics import Families
from haptic_trio.webhook.admission import Admission
from haptic_trio.webhook.app import read_timeout
from haptic_trio.webhook.bodies import MOST_BYTES
from haptic_trio.webhook.metrics import WebhookMetrics
from haptic_trio.webhook.server import WebhookOptions, run_webhook
from tests.webhook.builders import body_of, review_of, web

JSON_TYPE = "application/json"
JSON = {"content-type": JSON_TYPE}


class Rig:
    """A webhook that knows nothing to review with, and its certificates."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.authority = trustme.CA()
        self.clients = trustme.CA()
        self.clients.cert_pem.write_to_path(root / "clients.pem")
        self.write_certificate(self.authority)
        self.addresses: Latest[tuple[str, ...]] = Latest()
        self.reports: Latest[tuple[Problem, ...]] = Latest()
        self.url = ""

    def write_certificate(self, authority: trustme.CA) -> None:
        issued = authority.issue_cert("127.0.0.1")
        (self.root / "tls.crt").write_bytes(issued.cert_chain_pems[0].bytes())
        (self.root / "tls.key").write_bytes(issued.private_key_pem.bytes())

    def options(self, listen: str = "127.0.0.1:0", *, clients: bool = False, **more: frozenset[str]) -> WebhookOptions:
        return WebhookOptions(
            listen=listen,
            certificate=self.root / "tls.crt",
            key=self.root / "tls.key",
            authorities=self.root / "clients.pem" if clients else None,
            **more,
        )

    @asynccontextmanager
    async def serving(self, options: WebhookOptions) -> AsyncIterator[None]:
        metrics = WebhookMetrics(Families(CollectorRegistry()))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                partial(
                    run_webhook,
                    options,
                    Admission(lambda: None, metrics),
                    metrics,
                    report=lambda _source, problems: self.reports.put(problems),
                    announce=self.addresses.put,
                )
            )
            yield
            nursery.cancel_scope.cancel()

    async def open(self) -> None:
        with trio.fail_after(10):
            _, (self.url, *_) = await self.addresses.wait_newer(0)

    @asynccontextmanager
    async def client(
        self, *, authority: trustme.CA | None = None, certificate: trustme.LeafCert | None = None
    ) -> AsyncIterator[httpx.AsyncClient]:
        context = ssl.create_default_context()
        (authority or self.authority).configure_trust(context)
        if certificate is not None:
            certificate.configure_cert(context)
        async with httpx.AsyncClient(verify=context, trust_env=False, timeout=10, headers=JSON) as client:
            yield client

    @asynccontextmanager
    async def connect(
        self, certificate: trustme.LeafCert | None = None
    ) -> AsyncIterator[trio.SSLStream[trio.SocketStream]]:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if certificate is not None:
            certificate.configure_cert(context)
        port = httpx.URL(self.url).port or 443
        stream = await trio.open_ssl_over_tcp_stream("127.0.0.1", port, ssl_context=context)
        try:
            yield stream
        finally:
            await trio.aclose_forcefully(stream)

    async def knock(self, certificate: trustme.LeafCert | None) -> None:
        """Raises BrokenResourceError if the connection cannot be opened."""
        async with self.connect(certificate) as stream:
            await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await stream.receive_some()

    async def ask(self, client: httpx.AsyncClient, body: bytes | None = None) -> httpx.Response:
        return await client.post(self.url, content=body if body is not None else body_of(review_of(web())))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_review_is_answered_with_its_uid(rig: Rig) -> None:
    async with rig.serving(rig.options()), rig.client() as client:
        await rig.open()
        answer = await rig.ask(client)

    assert answer.status_code == 200
    assert answer.json()["response"]["uid"] == "u-1"
    assert "not ready" in answer.json()["response"]["warnings"][0]


async def test_rubbish_is_answered_and_does_no_harm(rig: Rig) -> None:
    async with rig.serving(rig.options()), rig.client() as client:
        await rig.open()
        assert (await rig.ask(client, b"{}")).status_code == 400
        assert (await rig.ask(client, b"\x00" * 100)).status_code == 400
        assert (await client.get(rig.url)).status_code == 405
        assert (await client.post(rig.url.replace("/validate", "/"), content=b"{}")).status_code == 404
        text = await client.post(rig.url, content=b"{}", headers={"content-type": "text/plain"})
        assert text.status_code == 415
        assert (await rig.ask(client)).status_code == 200


@pytest.mark.parametrize("announced", [True, False])
async def test_body_that_is_too_large_is_not_read_to_its_end(rig: Rig, announced: bool) -> None:
    length = MOST_BYTES + 1
    head = f"Content-Length: {length}" if announced else "Transfer-Encoding: chunked"
    async with rig.serving(rig.options()):
        await rig.open()
        async with rig.connect() as stream:
            await stream.send_all(f"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON_TYPE}\r\n".encode())
            await stream.send_all(f"{head}\r\n\r\n".encode())
            if not announced:
                await stream.send_all(f"{length:x}\r\n".encode() + b" " * length + b"\r\n")
            answer = await stream.receive_some()

    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_client_that_leaves_in_the_middle_does_no_harm(rig: Rig) -> None:
    async with rig.serving(rig.options()), rig.client() as client:
        await rig.open()
        async with rig.connect() as stream:
            await stream.send_all(f"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON_TYPE}\r\n".encode())
            await stream.send_all(b"Content-Length: 9\r\n\r\n{")

        assert (await rig.ask(client)).status_code == 200


async def test_only_those_with_a_certificate_and_the_name_get_in(rig: Rig) -> None:
    api_server = rig.clients.issue_cert("api-server.test")
    kubelet = rig.clients.issue_cert("kubelet.test")
    stranger = trustme.CA().issue_cert("api-server.test")
    options = rig.options(clients=True, allowed=frozenset({"api-server.test"}))
    async with rig.serving(options):
        await rig.open()
        async with rig.client(certificate=api_server) as client:
            assert (await rig.ask(client)).status_code == 200
        async with rig.client(certificate=kubelet) as client:
            assert (await rig.ask(client)).status_code == 403
        for certificate in (None, stranger):
            with pytest.raises(trio.BrokenResourceError):
                await rig.knock(certificate)


async def test_connection_ends_its_rights_when_the_authorities_change(rig: Rig) -> None:
    async with rig.serving(rig.options(clients=True)):
        await rig.open()
        async with rig.client(certificate=rig.clients.issue_cert("api-server.test")) as client:
            assert (await rig.ask(client)).status_code == 200
            trustme.CA().cert_pem.write_to_path(rig.root / "clients.pem")
            assert (await rig.ask(client)).status_code == 403


async def test_new_connections_get_the_new_certificate_and_old_ones_go_on(rig: Rig) -> None:
    other = trustme.CA()
    async with rig.serving(rig.options()):
        await rig.open()
        async with rig.client() as old:
            assert (await rig.ask(old)).status_code == 200
            rig.write_certificate(other)
            async with rig.client(authority=other) as new:
                assert (await rig.ask(new)).status_code == 200
            assert (await rig.ask(old)).status_code == 200


async def test_certificate_that_is_not_there_yet_is_reported_and_waited_for(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haptic_trio.webhook.server.RETRY_INTERVAL", 0.01)
    (rig.root / "tls.key").unlink()
    async with rig.serving(rig.options()):
        with trio.fail_after(10):
            _, problems = await rig.reports.wait_newer(0)
        rig.write_certificate(rig.authority)
        with trio.fail_after(10):
            _, (rig.url, *_) = await rig.addresses.wait_newer(0)
        async with rig.client() as client:
            assert (await rig.ask(client)).status_code == 200

    assert "tls.key" in problems[0].message
    assert rig.reports.version == 1


async def test_port_that_is_taken_is_reported_and_taken_once_it_is_free(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haptic_trio.webhook.server.RETRY_INTERVAL", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        async with rig.serving(rig.options(f"127.0.0.1:{port}")):
            with trio.fail_after(10):
                await rig.reports.wait_newer(0)
            holder.close()
            with trio.fail_after(10):
                _, (rig.url, *_) = await rig.addresses.wait_newer(0)
            async with rig.client() as client:
                assert (await rig.ask(client)).status_code == 200


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5s", 5.0), ("1.5s", 1.5), ("500ms", 0.5), ("1m", 60.0), ("", None), ("x", None), ("-1s", None)],
)
def test_timeout_of_the_api_server_is_read(text: str, seconds: float | None) -> None:
    assert read_timeout(text) == seconds
