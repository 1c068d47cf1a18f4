"""A port that another process has: its listener is left out, and everybody else is served."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from haptic_trio.cli.serving.endpoints import AgentList
from haptic_trio.dataplane.agent.client import AgentAddress
from haptic_trio.dataplane.binary import find_haproxy
from haptic_trio.deployment import taken_ports
from haptic_trio.messages import InstanceFailed, InstanceOperationFailed
from haptic_trio.stages.process import Process
from tests.features.harness import LIMIT, Running, Site, controller, request
from tests.support.components.agents import Authority, agent_process, until
from tests.support.kubernetes import tls_secret
from tests.support.processes.haproxy import backend
from tests.support.processes.newer_haproxy import haproxy_with_quic
from tests.support.processes.ports import free_port

__all__ = ["haproxy_with_quic"]

pytestmark = pytest.mark.haproxy
API = "gateway.networking.k8s.io/v1"


@contextmanager
def held(kind: socket.SocketKind = socket.SOCK_STREAM) -> Iterator[socket.socket]:
    """Have a port as a process does that knows nothing of HAProxy."""
    with socket.socket(type=kind) as holder:
        holder.bind(("127.0.0.1", 0))
        if kind is socket.SOCK_STREAM:
            holder.listen()
        yield holder


def port_of(holder: socket.socket) -> int:
    port: int = holder.getsockname()[1]
    return port


def write_gateway(site: Site, name: str, *ports: int, **listener: Any) -> None:
    """Write a Gateway with an HTTP listener for each of *ports*, and a route to the Service `web` at it."""
    listeners = [{"name": f"p{port}", "port": port, "protocol": "HTTP", **listener} for port in ports]
    meta = {"name": name, "namespace": "default"}
    site.write(
        f"gateway-{name}",
        {
            "apiVersion": API,
            "kind": "Gateway",
            "metadata": meta,
            "spec": {"gatewayClassName": "haptic", "listeners": listeners},
        },
        {
            "apiVersion": API,
            "kind": "HTTPRoute",
            "metadata": meta,
            "spec": {
                "parentRefs": [{"name": name}],
                "rules": [{"backendRefs": [{"name": "web", "port": 80}]}],
            },
        },
    )


def configure(site: Site, **fields: Any) -> None:
    """Write a configuration with all libraries, and the GatewayClass."""
    context = {"httpPort": site.port, "bindAddress": "127.0.0.1", "sslRedirect": False, "httpsPort": free_port()}
    context.update(fields.pop("context", {}))
    site.write_config(
        templating={"libraries": ["base", "ssl", "ingress", "gateway"], "extraContext": context}, **fields
    )
    site.write(
        "gateway-class",
        {
            "apiVersion": API,
            "kind": "GatewayClass",
            "metadata": {"name": "haptic"},
            "spec": {"controllerName": "haptic-trio/gateway-controller"},
        },
    )


async def until_answered(port: int, host: str, body: str) -> None:
    """Return once a request to *port* is answered with *body*."""
    with trio.fail_after(60):
        while True:
            try:
                if await request(port, host) == (200, body):
                    return
            except (OSError, trio.BrokenResourceError, IndexError):
                pass
            await trio.sleep(0.01)


def warnings(running: Running) -> dict[str, str]:
    """Return the messages about ports to owners, by object."""
    process: Process = running.serving.process
    return {
        str(one.subject): one.message for one in process.retained.quarantine.warnings if one.reason == "PortUnavailable"
    }


async def test_a_listener_on_a_taken_port_affects_no_other_listener(site: Site, haproxy_binary: Path) -> None:
    configure(site)
    good = free_port()
    with held() as holder:
        taken = port_of(holder)
        async with backend("one") as one, controller(site, haproxy_binary) as running:
            site.write_service("web", one)
            site.write_ingress("web", "web.localhost", "web")
            await running.serves(site, "web.localhost", "one")

            write_gateway(site, "bad", taken, good)
            await until_answered(good, "any.test", "one")
            # Others go on, with what reloads and with what does not.
            site.write_ingress("more", "more.localhost", "web")
            await running.serves(site, "more.localhost", "one")
            write_gateway(site, "other", free := free_port())
            await until_answered(free, "any.test", "one")

            failed = running.events.all(InstanceFailed)
            assert 1 <= len(failed) <= 3
            assert all(f"cannot bind 127.0.0.1:{taken}: Address already in use" in event.error for event in failed)
            (text,) = warnings(running).values()
            assert list(warnings(running)) == ["Gateway default/bad"]
            assert str(taken) in text
            assert "Address already in use" in text


@pytest.mark.usefixtures("haproxy_with_quic")
async def test_a_listener_on_a_taken_udp_port_interrupts_no_request(site: Site) -> None:
    configure(site, context={"http3": True})
    issued = trustme.CA().issue_cert("any.test")
    site.write("pair", tls_secret("pair", issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()))
    with held(socket.SOCK_DGRAM) as one_holder, held(socket.SOCK_DGRAM) as other_holder:
        async with backend("one") as one, controller(site, find_haproxy()) as running, trio.open_nursery() as nursery:
            site.write_service("web", one)
            site.write_ingress("web", "web.localhost", "web")
            await running.serves(site, "web.localhost", "one")
            nursery.start_soon(ask_all_the_time, site)

            for number, holder in enumerate((one_holder, other_holder)):
                tls = {"protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "pair"}]}}
                write_gateway(site, f"bad-{number}", port_of(holder), **tls)
                site.write_ingress(f"more-{number}", f"more-{number}.localhost", "web")
                await running.serves(site, f"more-{number}.localhost", "one")

            async def owners_know() -> bool:
                return warnings(running).keys() == {"Gateway default/bad-0", "Gateway default/bad-1"}

            with trio.fail_after(LIMIT):
                await until(owners_know)
            assert len(running.events.all(InstanceFailed)) == 2
            nursery.cancel_scope.cancel()


async def ask_all_the_time(site: Site) -> None:
    """Connect and ask again and again; fails with the first request without an answer."""
    while True:
        assert await site.get("web.localhost") == (200, "one")


async def test_at_a_cold_start_the_other_listeners_are_served(site: Site, haproxy_binary: Path) -> None:
    configure(site)
    good = free_port()
    with held() as one_holder, held() as other_holder:
        write_gateway(site, "bad", port_of(one_holder), port_of(other_holder), good)
        async with backend("one") as one:
            site.write_service("web", one)
            site.write_ingress("web", "web.localhost", "web")
            async with controller(site, haproxy_binary) as running:
                await until_answered(good, "any.test", "one")
                await running.serves(site, "web.localhost", "one")
                # Both are reported at once, by the deployment or, if it comes first, by the start that failed.
                assert len(running.events.all(InstanceFailed)) + len(running.events.all(InstanceOperationFailed)) <= 2


async def test_a_port_that_becomes_free_is_served(
    site: Site, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taken_ports, "FIRST_PAUSE", 0.5)
    configure(site)
    async with backend("one") as one, controller(site, haproxy_binary) as running:
        site.write_service("web", one)
        site.write_ingress("web", "web.localhost", "web")
        await running.serves(site, "web.localhost", "one")
        with held() as holder:
            port = port_of(holder)
            write_gateway(site, "late", port)
            await running.wait(InstanceFailed)

        await until_answered(port, "any.test", "one")
        assert warnings(running) == {}


async def test_ports_of_the_controller_itself_are_reserved(site: Site, haproxy_binary: Path) -> None:
    own, forbidden, good = free_port(), free_port(), free_port()
    configure(site, context={"gatewayPorts": [good, f"{own}-{own}"]})
    async with (
        backend("one") as one,
        controller(site, haproxy_binary, listen=f"127.0.0.1:{own}") as running,
    ):
        site.write_service("web", one)
        write_gateway(site, "gw", own, forbidden, good)
        await until_answered(good, "any.test", "one")

        assert running.events.all(InstanceFailed) == []
        assert warnings(running).keys() == {"Gateway default/gw"}
        texts = {one.message for one in running.serving.process.retained.quarantine.warnings}
        assert any(str(own) in text and "gatewayReservedPorts" in text for text in texts)
        assert any(str(forbidden) in text and "gatewayPorts" in text for text in texts)
        with pytest.raises(OSError, match="connect"):
            await trio.open_tcp_stream("127.0.0.1", forbidden)


async def test_what_an_agent_cannot_bind_is_left_out_as_well(
    site: Site, haproxy_binary: Path, instance_root: Path
) -> None:
    authority = Authority(instance_root / "tls")
    configure(site, dataplane={"kind": "agent"})
    good = free_port()
    with held() as holder:
        taken = port_of(holder)
        async with backend("one") as one, agent_process(instance_root, haproxy_binary, authority, free_port()) as agent:
            address = AgentAddress(name="one", url=agent.url)
            agents = AgentList(addresses=(address,), tls=authority.issue("controller"))
            async with controller(site, haproxy_binary, agents=agents) as running:
                site.write_service("web", one)
                site.write_ingress("web", "web.localhost", "web")
                write_gateway(site, "bad", taken, address.port, good)
                await until_answered(good, "any.test", "one")
                site.write_ingress("more", "more.localhost", "web")
                await running.serves(site, "more.localhost", "one")

                # Until the agent has started it cannot be reached, which is another failure.
                failed = [event for event in running.events.all(InstanceFailed) if "cannot bind" in event.error]
                assert 1 <= len(failed) <= 3
                assert all(f"127.0.0.1:{taken}" in event.error for event in failed)
                # The agent's own port is known beforehand.
                assert not any(str(address.port) in event.error for event in failed)
