"""Bulk changes of a tenant: changes of others reach traffic while most of them still wait."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count, takewhile
from pathlib import Path

import pytest
import trio
from msgspec import Struct

from haptic_trio.haproxy.plan.shares import SERVERS_AT_ONCE
from haptic_trio.k8s.resource import Resource
from haptic_trio.messages import ConfigPrepared, ConfigRendered, InstanceDeployed
from tests.features.harness import Running, controller
from tests.features.server_site import ServerSite
from tests.support.api_server.server import serving
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.processes.haproxy import haproxy_binary, instance_root
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import serving as serving_backends

__all__ = ["haproxy_binary", "instance_root"]

pytestmark = pytest.mark.haproxy

INGRESSES = 1500
DEPENDENTS = 600
"""More than one cycle renders."""
FLAPPING = 60
ENDPOINTS = 20
"""More servers than a few deployments change: 1,200."""


def web(namespace: str, port: int = 80) -> Resource:
    return service("web", {"name": "http", "port": port, "protocol": "TCP"}, namespace=namespace)


def hosts(number: int) -> list[str]:
    return [f"bulk-{one}.attacker.test" for one in range(number)]


def many(number: int) -> list[Resource]:
    return [
        ingress(f"bulk-{one:05}", rule(host, path("/", "web", "http")), namespace="attacker")
        for one, host in enumerate(hosts(number))
    ]


@asynccontextmanager
async def served(
    root: Path, binary: Path, objects: Sequence[Resource] = ()
) -> AsyncIterator[tuple[ServerSite, Running]]:
    """Run a controller that renders as little as possible in each cycle; victim and attacker are served."""
    with serving_backends("victim", "attacker") as backends:
        async with serving() as server:
            site = ServerSite(root, free_port(), server)
            server.write_kubeconfig(site.kubeconfig, token_file=str(site.token_file))
            site.write_config(reconciler={"intakeTime": "1ms"})
            site.write_class()
            for tenant in ("victim", "attacker"):
                slices = endpoint_slice(
                    "web", endpoint("127.0.0.1"), ports={"http": backends[tenant]}, namespace=tenant
                )
                first = ingress("web", rule(f"{tenant}.test", path("/", "web", "http")), namespace=tenant)
                server.put(web(tenant), slices, first)
            server.put(*objects)
            async with controller(site, binary) as running:
                for tenant in ("victim", "attacker"):
                    await running.answers(site, f"{tenant}.test", 200)
                await running.quiet()
                yield site, running


def put_late(site: ServerSite) -> None:
    """Write another Ingress of the victim."""
    site.server.put(ingress("late", rule("late.victim.test", path("/", "web", "http")), namespace="victim"))


async def test_a_change_reaches_traffic_while_bulk_changes_of_another_namespace_wait(
    instance_root: Path, haproxy_binary: Path
) -> None:
    async with served(instance_root, haproxy_binary) as (site, running):
        first, *_, last_but_one, last = hosts(INGRESSES)
        site.server.put(*many(INGRESSES))
        await running.answers(site, first, 200)
        put_late(site)
        await running.answers(site, "late.victim.test", 200)

        # Written before, and not served yet.
        assert (await site.get(last))[0] == 404
        assert running.events.all(ConfigRendered)[-1].waiting.keys() == {"attacker"}

        # What waits can be deleted, and the rest follows in the end.
        site.server.remove(many(INGRESSES)[-1])
        await running.answers(site, last_but_one, 200)
        assert (await site.get(last))[0] == 404


async def test_a_change_reaches_traffic_while_bulk_deletions_of_another_namespace_wait(
    instance_root: Path, haproxy_binary: Path
) -> None:
    objects = many(DEPENDENTS)
    async with served(instance_root, haproxy_binary, objects) as (site, running):
        first, *_, last = hosts(DEPENDENTS)
        for one in objects:
            site.server.remove(one)
        await running.answers(site, first, 404)
        put_late(site)
        await running.answers(site, "late.victim.test", 200)

        # Deleted before, and still served.
        assert (await site.get(last))[0] == 200
        assert running.events.all(ConfigRendered)[-1].waiting.keys() == {"attacker"}

        await running.answers(site, last, 404)
        await running.quiet()
        assert (await site.get("attacker.test"))[0] == 200


async def keep_changing(site: ServerSite) -> None:
    """Change the port of the attacker's Service again and again."""
    for number in count():
        site.server.put(web("attacker", 100 + number % 100))
        # real time: an attack may take any time
        await trio.sleep(0.005)


async def test_a_change_reaches_traffic_while_changes_on_which_very_many_fragments_depend_wait(
    instance_root: Path, haproxy_binary: Path
) -> None:
    async with served(instance_root, haproxy_binary, many(DEPENDENTS)) as (site, running):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_changing, site)
            await running.wait(ConfigRendered, lambda fact: fact.waiting == {"attacker": 1})
            begun = len(running.events)
            put_late(site)
            await running.answers(site, "late.victim.test", 200)

            # The newest change always waits.
            seen = running.events.all(ConfigRendered, since=begun)
            assert seen
            assert all(fact.waiting == {"attacker": 1} for fact in seen)
            nursery.cancel_scope.cancel()

        # In the end it is taken in, too.
        await running.wait(ConfigRendered, lambda fact: not fact.waiting, since=begun)
        await running.quiet()
        assert {(await site.get(host))[0] for host in hosts(DEPENDENTS)[::100]} == {200}


def flapping(number: int, phase: int) -> Resource:
    """Return an EndpointSlice whose addresses all differ from those of the phase before."""
    endpoints = (endpoint(f"10.{1 + phase % 2}.{number}.{one}") for one in range(1, ENDPOINTS + 1))
    return endpoint_slice(f"app{number}", *endpoints, ports=8080, namespace="attacker")


def services(number: int) -> list[Resource]:
    """Return a Service of the attacker with its endpoints, and an Ingress for it."""
    name, host = f"app{number}", f"app{number}.attacker.test"
    return [
        service(name, namespace="attacker"),
        flapping(number, 0),
        ingress(name, rule(host, path("/", name)), namespace="attacker"),
    ]


async def keep_flapping(site: ServerSite) -> None:
    """Change the addresses of all endpoints of the attacker again and again."""
    for phase in count(1):
        for number in range(FLAPPING):
            site.server.put(flapping(number, phase))
        # real time: an attack may take any time
        await trio.sleep(0.05)


def has_host(fact: ConfigPrepared, host: str) -> bool:
    return any(host.encode() in file.content for file in fact.generation.files.values())


async def test_a_change_reaches_traffic_while_very_many_servers_of_another_namespace_change_all_the_time(
    instance_root: Path, haproxy_binary: Path
) -> None:
    objects = [one for number in range(FLAPPING) for one in services(number)]
    async with served(instance_root, haproxy_binary, objects) as (site, running):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_flapping, site)
            await running.wait(InstanceDeployed, lambda fact: fact.result.is_partial)
            begun = len(running.events)
            put_late(site)
            prepared = await running.wait(ConfigPrepared, lambda fact: has_host(fact, "late.victim.test"), since=begun)

            def has_it(fact: InstanceDeployed) -> bool:
                """Whether it is a deployment of the change: newer ones may take the place of the one prepared first."""
                seen = [one.correlation for one in running.events.all(ConfigPrepared, since=begun)]
                return fact.correlation in seen[seen.index(prepared.correlation) :]

            await running.wait(InstanceDeployed, has_it, since=begun)
            assert (await site.get("late.victim.test"))[0] == 200
            facts = running.events.all(Struct, since=begun)
            nursery.cancel_scope.cancel()

        # It waited for the deployment in progress, and for another one if that ended just now; each is small.
        deployments = [fact for fact in facts[facts.index(prepared) :] if isinstance(fact, InstanceDeployed)]
        assert len(list(takewhile(lambda fact: not has_it(fact), deployments))) <= 2
        results = [fact.result for fact in facts if isinstance(fact, InstanceDeployed)]
        assert max(result.operations for result in results) <= SERVERS_AT_ONCE + len(("host", "path"))
        assert not any(result.reloaded or result.held for result in results)

        # In the end all servers have their last addresses, and HAProxy runs what is recorded.
        await running.quiet()
        assert not running.events.all(InstanceDeployed)[-1].result.is_partial
        assert await running.reloads() == 0
        assert [(await one.repair()).found for one in running.serving.process.endpoints.value or ()] == [{}]
