"""Many routes come, change and go while clients ask: no reload, no wrong answer, one write of status for each change.

HAPTIC_CHURN_ROUTES says how many, such as 1000; how long it takes until every status is right is printed.
"""

import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio

from haptic_trio.k8s.resource import Resource
from tests.cluster.control_plane.api import MERGE, Mirror
from tests.cluster.control_plane.binaries import BinaryUnavailableError
from tests.cluster.fixtures import require_cluster
from tests.cluster.rig import open_cluster
from tests.cluster.workloads.client import until
from tests.cluster.workloads.manifests import deployment, service
from tests.conformance.programs import Programs, find_programs
from tests.conformance.site import GATEWAY_CLASS, GatewaySite
from tests.support.processes.haproxy_versions import VersionUnavailableError, provide

pytestmark = [pytest.mark.cluster, pytest.mark.haproxy, pytest.mark.soak]
VERSION = "3.4"
ALONE = 20
"""Routes that are changed one after the other, each when the status of the one before is right."""
ROUTES = int(os.environ.get("HAPTIC_CHURN_ROUTES", "200"))
SERVICES = 20
WRITERS = 8
"""Requests to the API server that are made at the same time."""
STATUS_LIMIT = 120.0
"""Seconds after the last change until the status of every route is right, on a machine that has other things to do."""
INTERVAL = 0.02
GATEWAYS = "/apis/gateway.networking.k8s.io/v1/namespaces/{}/gateways/{}"
HTTP_ROUTES = "/apis/gateway.networking.k8s.io/v1/namespaces/{}/httproutes"


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    """What a cluster with the kinds of the Gateway API needs; HAProxy is of `VERSION` in it."""
    require_cluster()
    try:
        folder, found = provide(VERSION), find_programs()
    except (VersionUnavailableError, BinaryUnavailableError) as exc:
        pytest.skip(str(exc))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return found


def route(number: int, edition: int) -> Resource:
    """Return a route with a host of its own; every edition leads to another Service."""
    target = {"name": f"echo-{(number + edition) % SERVICES}", "port": 80}
    rule = {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": [target]}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": f"route-{number}"},
        "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [f"host-{number}.test"], "rules": [rule]},
    }


class Observer:
    """Follows the routes: which status they have, and how often each was written after it was changed."""

    def __init__(self) -> None:
        self.right: dict[str, int] = {}
        """The generation of each route that its status is for, by name."""
        self.writes: Counter[tuple[str, int]] = Counter()
        """By name and generation."""
        self.present: set[str] = set()

    def note(self, before: Resource | None, after: Resource | None) -> None:
        """Take note of a change, as a `Mirror` reports it."""
        if after is None:
            self.present.discard((before or {})["metadata"]["name"])
            return
        name, generation = after["metadata"]["name"], after["metadata"]["generation"]
        self.present.add(name)
        if before is not None and before["metadata"]["generation"] == generation:
            self.writes[name, generation] += 1
        parents = (after.get("status") or {}).get("parents") or ()
        conditions = [one for parent in parents for one in parent["conditions"]]
        if conditions and all((one["status"], one["observedGeneration"]) == ("True", generation) for one in conditions):
            self.right[name] = generation


class Clients:
    """Ask for some hosts all the time; whatever is not the answer of a backend is wrong."""

    def __init__(self, site: GatewaySite, address: str) -> None:
        self._site = site
        self._address = address
        self.hosts: list[str] = []
        self.answered = 0
        self.wrong: list[str] = []

    async def ask(self, host: str) -> int:
        """Return the status of an answer for *host*; 0 for none."""
        async with self._site.cluster.http(timeout=5) as client:
            try:
                found = await client.get(f"http://{self._address}/", headers={"Host": host, "Connection": "close"})
            except httpx.TransportError:
                return 0
        return found.status_code

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await trio.sleep(INTERVAL)  # real time: requests at a steady rate
            for host in list(self.hosts):
                status = await self.ask(host)
                self.answered += 1
                if status != 200 and host in self.hosts:
                    self.wrong.append(f"{host}: {status}")
                await trio.sleep(INTERVAL)  # real time: as above


async def test_many_routes_come_change_and_go_without_a_reload(programs: Programs, tmp_path: Path) -> None:
    async with open_cluster() as cluster, trio.open_nursery() as nursery:
        site = GatewaySite(cluster, tmp_path)
        with trio.fail_after(60):
            await site.serve_gateways(programs)
            address = await _serve_nothing_yet(site)
        observer, clients = Observer(), Clients(site, address)
        collection = HTTP_ROUTES.format(site.namespace)
        await nursery.start(Mirror(cluster.api, collection, observer.note).follow)
        nursery.start_soon(clients.run)
        reloads = await _reloads(site)
        names = [f"route-{number}" for number in range(ROUTES)]
        took: dict[str, float] = {}

        async def change(verb: str, body: Callable[[int], Resource], generation: int) -> None:
            async def apply(number: int) -> None:
                if generation == 1:
                    await cluster.api.create(collection, body(number))
                else:
                    await cluster.api.patch(f"{collection}/route-{number}", body(number), MERGE)

            async def all_right() -> bool:
                return all(observer.right.get(name) == generation for name in names)

            await _for_all(range(ROUTES), apply)
            begun = trio.current_time()
            with trio.fail_after(STATUS_LIMIT):
                await until(all_right)
            took[verb] = trio.current_time() - begun

        await change("add", lambda number: route(number, 0), 1)
        sample = range(0, ROUTES, ROUTES // 20)
        for number in sample:
            assert await clients.ask(f"host-{number}.test") == 200
        clients.hosts = [f"host-{number}.test" for number in sample]
        await change("edit", lambda number: {"spec": route(number, 1)["spec"]}, 2)
        cycles = await _count(site, "reconciliation completed")
        for number in range(ALONE):
            await cluster.api.patch(f"{collection}/route-{number}", {"spec": route(number, 2)["spec"]}, MERGE)
            with trio.fail_after(STATUS_LIMIT):
                await until(partial(_is_right, observer, f"route-{number}", 3))
        # What we write into a status comes back by the watch, and nothing is to be done about it.
        cycles = await _count(site, "reconciliation completed") - cycles
        clients.hosts = [f"host-{ROUTES - 1}.test"]
        await _for_all(range(ROUTES - 1), lambda number: cluster.api.delete(f"{collection}/route-{number}"))
        with trio.fail_after(STATUS_LIMIT):
            await until(lambda: _is_gone(clients, "host-0.test"))

        reported = ", ".join(f"{verb} {seconds:.2f} s" for verb, seconds in took.items())
        print(f"status of {ROUTES} routes: {reported}; {clients.answered} answers")  # noqa: T201
        print(f"{ALONE} changes one by one: {cycles} cycles")  # noqa: T201
        assert clients.wrong == []
        assert clients.answered >= ROUTES // 5
        assert await _reloads(site) == reloads
        assert max(observer.writes.values()) == 1
        assert cycles <= ALONE + ALONE // 4
        nursery.cancel_scope.cancel(reason="everything was seen")


async def _serve_nothing_yet(site: GatewaySite) -> str:
    """Apply a Gateway and Services, and return the Gateway's address once HAProxy answers there."""
    gateway = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "edge"},
        "spec": {"gatewayClassName": GATEWAY_CLASS, "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
    }
    services = [service(f"echo-{number}", selector={"app": "echo"}) for number in range(SERVICES)]
    await site.apply(gateway, deployment("echo", 1), *services)
    await site.cluster.wait_pods(site.namespace, "app=echo", 1)
    found = await site.cluster.wait(
        GATEWAYS.format(site.namespace, "edge"), lambda found: found and (found.get("status") or {}).get("addresses")
    )
    address = str(found["status"]["addresses"][0]["value"])
    await until(lambda: _is_gone(Clients(site, address), "nobody.test"))
    return address


async def _is_gone(clients: Clients, host: str) -> bool:
    return await clients.ask(host) == 404


async def _is_right(observer: Observer, name: str, generation: int) -> bool:
    return observer.right.get(name) == generation


async def _reloads(site: GatewaySite) -> int:
    return await _count(site, "instance reloaded")


async def _count(site: GatewaySite, event: str) -> int:
    lines = (await site.logs_of("controller")).splitlines()
    return sum(json.loads(line)["event"] == event for line in lines if line.startswith("{"))


async def _for_all(numbers: Iterable[int], work: Callable[[int], Awaitable[object]]) -> None:
    left = iter(numbers)

    async def write() -> None:
        for number in left:
            await work(number)

    async with trio.open_nursery() as nursery:
        for _ in range(WRITERS):
            nursery.start_soon(write)
