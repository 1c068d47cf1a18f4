"""TCP services of a ConfigMap in a running controller: no reload for endpoints, and a fault costs one entry."""

import socket
from pathlib import Path

import pytest

from haptic_trio.messages import InstanceDeployed
from haptic_trio.stages.process import Process
from tests.features.harness import Running, Site, controller
from tests.support.processes.haproxy import backend, wait_for_body
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy


def configure(site: Site, *ports: int) -> None:
    context = {
        "httpPort": site.port,
        "bindAddress": "127.0.0.1",
        "tcpServices": "edge/tcp-services",
        "tcpServicePorts": list(ports),
    }
    site.write_config(templating={"libraries": ["base", "ssl", "tcp-services"], "extraContext": context})


def write_entries(site: Site, **entries: str) -> None:
    metadata = {"name": "tcp-services", "namespace": "edge"}
    data = {port.removeprefix("p"): value for port, value in entries.items()}
    site.write("tcp-services", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def warnings(running: Running) -> list[str]:
    process: Process = running.serving.process
    return [one.message for one in process.retained.quarantine.warnings if one.reason == "TcpServiceIgnored"]


async def test_an_endpoint_of_a_tcp_service_changes_without_a_reload(site: Site, haproxy_binary: Path) -> None:
    port = free_port()
    configure(site, port)
    write_entries(site, **{f"p{port}": "default/web:80"})
    async with backend("one") as one, backend("two") as two, controller(site, haproxy_binary) as running:
        site.write_service("web", one)
        await wait_for_body(port, "one")
        # The service listens before the controller reports that it has started it.
        await running.quiet()
        since = len(running.events.all(InstanceDeployed))
        site.write_service("web", two)
        await wait_for_body(port, "two")
        await running.quiet()

        assert not any(event.result.reloaded for event in running.events.all(InstanceDeployed)[since:])


async def test_a_taken_port_costs_its_own_entry(site: Site, haproxy_binary: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken, free = int(holder.getsockname()[1]), free_port()
        configure(site, taken, free)
        write_entries(site, **{f"p{taken}": "default/web:80", f"p{free}": "default/web:80"})
        async with backend("one") as one:
            site.write_service("web", one)
            async with controller(site, haproxy_binary) as running:
                await wait_for_body(free, "one")
                await running.quiet()

                [message] = warnings(running)
                assert f"the entry {taken} is not served: HAProxy cannot listen on it" in message
