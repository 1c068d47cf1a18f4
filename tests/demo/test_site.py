"""The demo's directory, certificate, ports and backends."""

import socket
import ssl
import stat
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio
import trio.testing
import yaml

from haptic_trio.demo.backends import run_backends
from haptic_trio.demo.certificate import make_certificate
from haptic_trio.demo.guide import guide_to
from haptic_trio.demo.ports import LOOPBACK, free_or_any, reserve_port
from haptic_trio.demo.site import HOST, DemoPorts, write_site

PORTS = DemoPorts(http=1, https=2, web_one=3, web_two=4, api=5)


def test_every_file_is_a_manifest_with_its_ports_filled_in(tmp_path: Path) -> None:
    site = write_site(tmp_path, PORTS)

    objects = [document for path in site.manifests.glob("*.yaml") for document in yaml.safe_load_all(path.read_text())]
    assert {"ConfigMap", "Secret", "Ingress", "IngressClass", "Service", "EndpointSlice"} == {
        document["kind"] for document in objects
    }
    (config,) = [document for document in objects if document["kind"] == "ConfigMap"]
    context = yaml.safe_load(config["data"]["config"])["templating"]["extraContext"]
    assert (context["httpPort"], context["httpsPort"]) == (1, 2)


def test_files_of_others_stay(tmp_path: Path) -> None:
    site = write_site(tmp_path, PORTS)
    (site.manifests / "mine.yaml").write_text("mine")

    write_site(tmp_path, PORTS)

    assert (site.manifests / "mine.yaml").read_text() == "mine"


def test_the_private_key_is_for_our_eyes_only(tmp_path: Path) -> None:
    site = write_site(tmp_path, PORTS)

    assert stat.S_IMODE((site.manifests / "demo-tls.yaml").stat().st_mode) == 0o600
    assert "PRIVATE" not in site.authority.read_text()


async def test_a_client_that_trusts_the_authority_accepts_the_certificate(tmp_path: Path) -> None:
    certificate = make_certificate(HOST)
    (tmp_path / "pem").write_text(certificate.chain + certificate.key)
    server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_context.load_cert_chain(tmp_path / "pem")
    client_context = ssl.create_default_context(cadata=certificate.authority)
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    left, right = trio.testing.memory_stream_pair()
    server = trio.SSLStream(left, server_context, server_side=True)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.do_handshake)
            await trio.SSLStream(right, client_context, server_hostname=HOST).do_handshake()


def test_no_representation_shows_the_key() -> None:
    assert "PRIVATE" not in repr(make_certificate(HOST))


def test_a_port_with_a_listener_is_not_used() -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        taken = other.getsockname()[1]

        assert free_or_any(taken) == 0
        with reserve_port(taken) as port:
            assert port not in {0, taken}


def test_a_reserved_port_can_be_bound_by_those_who_share_it() -> None:
    with (
        reserve_port(0) as port,
        socket.create_server((LOOPBACK, port), reuse_port=True),
        socket.create_connection((LOOPBACK, port)),
    ):
        pass


def test_a_reserved_port_has_no_listener() -> None:
    with reserve_port(0) as port, pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, port)).close()


async def test_backends_answer_with_their_names_and_avoid_used_ports(nursery: trio.Nursery) -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        taken = other.getsockname()[1]
        with trio.fail_after(5):
            ports = await nursery.start(partial(run_backends, {"one": taken, "two": 0}))
            assert len({taken, *ports.values()}) == 3
            async with httpx.AsyncClient(trust_env=False) as client:
                for name, port in ports.items():
                    answer = await client.post(f"http://{LOOPBACK}:{port}/some/path", headers={"Host": "h.example"})
                    assert answer.headers["X-Backend"] == name
                    assert answer.text == f"{name} answers POST /some/path for h.example\n"


def test_the_guide_has_the_real_ports(tmp_path: Path) -> None:
    ports = DemoPorts(http=8081, https=8444, web_one=9001, web_two=9002, api=9003)

    text = guide_to(write_site(tmp_path, ports), "http://127.0.0.1:9090", Path(".demo"), "bin/haptic-trio")

    assert "http://127.0.0.1:8081/api" in text
    assert "demo.localhost:8444:127.0.0.1" in text
    assert "9001 -> 9002" in text
    assert ".demo/manifests" in text
    assert "bin/haptic-trio debug --state-dir .demo/state\n" in text
    assert "http://127.0.0.1:9090/console" in text
