"""Measurements of the program on a real API server, with two controllers and two HAProxy instances as Pods.

    python -m tests.cluster.workloads.figures [--sizes 1000,10000] [--changes 100]
        [--failovers 3] [--rest 60] [--json FILE]

Each Ingress has a host, a Service and an EndpointSlice of its own. All intervals of the configuration have their
defaults. The lease lasts 4 seconds, so that a failover takes less time.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import msgspec
import trio

from haptic_trio.k8s.resource import Resource
from tests.cluster.control_plane.audit import read_requests
from tests.cluster.control_plane.etcd import write_objects
from tests.cluster.control_plane.processes import SECURE_PORT
from tests.cluster.node.sandbox import GATEWAY
from tests.cluster.rig import open_cluster
from tests.cluster.workloads.client import Cluster, until
from tests.cluster.workloads.controllers import Site, backend
from tests.cluster.workloads.manifests import PORT
from tests.cluster.workloads.traffic import BadAnswerError, send_request

OBSERVE_INTERVAL: Final = 0.001
STEP_LIMIT: Final = 600.0
QUIET: Final = 5.0
"""Seconds without a write to objects after which a controller is at rest."""
MEBIBYTE: Final = 1 << 20
_RESIDENT: Final = """\
own=$(readlink /proc/self/ns/mnt)
for each in /proc/[0-9]*; do
  if [ "$(readlink $each/ns/mnt)" = "$own" ]; then
    echo $(sed -n 's/^VmRSS:[^0-9]*\\([0-9]*\\).*/\\1/p' $each/status) $(tr '\\0' ' ' <$each/cmdline)
  fi
done
"""


class Figures(msgspec.Struct):
    """What was measured over one number of Ingresses; times in seconds, memory in MiB."""

    ingresses: int
    cold_start: float = 0.0
    """From the order for the controllers' Pods to the first answer; HAProxy's Pods wait already."""
    new_ingress: list[float] = msgspec.field(default_factory=list)
    """From the request to the API server until both instances answer for the new host; its Service is known."""
    endpoint_change: list[float] = msgspec.field(default_factory=list)
    """The same of an EndpointSlice, until both instances use the other address."""
    killed: list[float] = msgspec.field(default_factory=list)
    """From kill -9 of the leader until a new route answers."""
    stopped: list[float] = msgspec.field(default_factory=list)
    """The same from SIGTERM."""
    leader_memory: float = 0.0
    follower_memory: float = 0.0
    requests_of_leader: dict[str, float] = msgspec.field(default_factory=dict)
    """In a minute at rest, by verb and resource."""
    requests_of_follower: dict[str, float] = msgspec.field(default_factory=dict)


class Measurement:
    """A site over *size* Ingresses in a cluster of its own."""

    def __init__(self, cluster: Cluster, site: Site, size: int, api: httpx.AsyncClient) -> None:
        """*api* is the API server as it is reached within the cluster's network."""
        self._cluster = cluster
        self._site = site
        self._api = api
        self._echoes: list[Resource] = []
        self._instances: list[str] = []
        self.figures = Figures(size)

    async def start(self) -> None:
        """Write the objects and measure the cold start."""
        site, size = self._site, self.figures.ingresses
        agents = {"kind": "agent", "port": 5555}
        await site.apply_objects(dataplane=agents, reconciler={}, controller={**_lease(), "startTimeout": "5m"})
        await site.apply(backend("echo", 2), site.haproxy(2))
        self._echoes = await self._cluster.wait_pods(site.namespace, "app=echo", 2)
        for first in range(0, size, 1000):
            apps = [self._app(number) for number in range(first, min(size, first + 1000))]
            await write_objects(self._cluster, site.namespace, [one for app in apps for one in app])
        instances = await self._running_instances()
        for pod in instances:
            await site.until_reported(pod["metadata"]["name"], "agent is served")
        self._instances = [pod["status"]["podIP"] for pod in instances]
        began = trio.current_time()
        await site.apply(site.controllers(2))
        await self._until_everywhere(host_of(size - 1), lambda _: True)
        self.figures.cold_start = trio.current_time() - began
        await self._cluster.wait_pods(site.namespace, "app=controller", 2)
        await self._cluster.wait_pods(site.namespace, "app=haproxy", 2)
        site.address = await site.published_address()

    async def change(self, count: int) -> None:
        """Measure *count* changes of each kind, one after another."""
        for number in range(count):
            route = self._ingress(f"more-{number:05d}", f"more-{number}.test", app_of(number))
            seconds = await self._time("POST", route, f"more-{number}.test", lambda _: True)
            self.figures.new_ingress.append(seconds)
        for number in range(count):
            target = self._echoes[1]
            moved = self._slice(number, target)
            seconds = await self._time("PUT", moved, host_of(number), partial(_is_from, target))
            self.figures.endpoint_change.append(seconds)

    async def rest(self, seconds: float) -> None:
        """Measure memory, and requests while nothing happens."""
        names = await self._site.pods_of_controllers()
        leader = await self._site.pod_of_leader()
        (follower,) = set(names) - {leader}
        await self._until_quiet(names)
        since = time.time()
        await trio.sleep(seconds)
        asked = [one for one in read_requests(self._cluster.state, self._site.namespace) if one.at >= since]
        counts = {name: Counter(f"{one.verb} {one.resource}" for one in asked if one.pod == name) for name in names}

        def in_a_minute(name: str) -> dict[str, float]:
            return {what: round(count * 60 / seconds, 1) for what, count in sorted(counts[name].items())}

        self.figures.requests_of_leader = in_a_minute(leader)
        self.figures.requests_of_follower = in_a_minute(follower)
        self.figures.leader_memory = await self._resident(leader)
        self.figures.follower_memory = await self._resident(follower)

    async def fail_over(self, count: int) -> None:
        """Measure how long a new route takes that comes right after the leader's end."""

        async def kill(pod: str) -> None:
            await self._cluster.signal_container(self._site.namespace, pod, signal.SIGKILL)

        async def stop(pod: str) -> None:
            leader = await self._site.leader()
            await self._cluster.api.delete(self._site.path("pods", pod))
            # What comes before may still be deployed by the one that ends.
            await self._site.leader(other_than=leader)

        ways: list[tuple[str, Callable[[str], Awaitable[None]], list[float]]] = [
            ("killed", kill, self.figures.killed),
            ("stopped", stop, self.figures.stopped),
        ]
        for name, end, times in ways:
            for number in range(count):
                await self._cluster.wait_pods(self._site.namespace, "app=controller", 2)
                leader = await self._site.pod_of_leader()
                began = trio.current_time()
                await end(leader)
                host = f"{name}-{number}.test"
                await self._site.apply(self._ingress(f"{name}-{number}", host, app_of(0)))
                await self._until_everywhere(host, lambda _: True)
                times.append(trio.current_time() - began)

    async def _until_quiet(self, pods: Sequence[str]) -> None:
        """Wait until everything is written that the starts and changes have led to, such as addresses of Ingresses."""

        async def is_quiet() -> bool:
            await trio.sleep(QUIET)
            asked = read_requests(self._cluster.state, self._site.namespace)
            return not any(one.pod in pods and one.verb == "patch" and one.at > time.time() - QUIET for one in asked)

        with trio.fail_after(STEP_LIMIT):
            await until(is_quiet)

    async def _running_instances(self) -> list[Resource]:
        async def running() -> list[Resource]:
            pods = await self._cluster.pods(self._site.namespace, "app=haproxy")
            states = [
                ((pod.get("status") or {}).get("containerStatuses") or [{}])[0].get("state") or {} for pod in pods
            ]
            return pods if len(pods) == 2 and all("running" in state for state in states) else []

        return await until(running)

    async def _time(self, method: str, resource: Resource, host: str, accept: Callable[[bytes], bool]) -> float:
        path = await self._cluster.path_of(resource, self._site.namespace)
        if method == "POST":
            path = path.rpartition("/")[0]
        began = trio.current_time()
        answer = await self._api.request(method, path, json=resource)
        answer.raise_for_status()
        await self._until_everywhere(host, accept)
        return trio.current_time() - began

    async def _until_everywhere(self, host: str, accept: Callable[[bytes], bool]) -> None:
        async def until_there(address: str) -> None:
            connect = partial(self._cluster.connect, address, PORT)
            while True:
                try:
                    answer = await send_request(connect, host)
                except BadAnswerError:
                    pass
                else:
                    if answer.status == 200 and accept(answer.body):
                        return
                await trio.sleep(OBSERVE_INTERVAL)

        with trio.fail_after(STEP_LIMIT):
            async with trio.open_nursery() as nursery:
                for address in self._instances:
                    nursery.start_soon(until_there, address)

    async def _resident(self, pod: str) -> float:
        done = await self._cluster.exec_in(self._site.namespace, pod, ["sh", "-c", _RESIDENT])
        rows = [line.split(maxsplit=1) for line in done.output.decode().splitlines()]
        return max(int(row[0]) for row in rows if len(row) == 2 and "haptic_trio" in row[1]) * 1024 / MEBIBYTE

    def _app(self, number: int) -> list[Resource]:
        name = app_of(number)
        headless = {"clusterIP": "None", "clusterIPs": ["None"], "ports": [{"name": "http", "port": 80}]}
        owner: Resource = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": headless}
        return [owner, self._slice(number, self._echoes[0]), self._ingress(name, host_of(number), name)]

    def _slice(self, number: int, echo: Resource) -> Resource:
        name = app_of(number)
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "protocol": "TCP", "port": PORT}],
            "endpoints": [{"addresses": [echo["status"]["podIP"]], "conditions": {"ready": True}}],
        }

    def _ingress(self, name: str, host: str, app: str) -> Resource:
        return self._site.ingress(name, host, backend=app)


def app_of(number: int) -> str:
    """Return the name of an app's Service and Ingress."""
    return f"app-{number:05d}"


def host_of(number: int) -> str:
    """Return the host that an app serves."""
    return f"app-{number}.test"


def summary_of(figures: Figures) -> list[tuple[str, str]]:
    """Return the figures as rows of a table."""
    return [
        ("cold start to the first answer of the last host", f"{figures.cold_start:.1f} s"),
        ("new Ingress, from the write to both instances", _spread(figures.new_ingress)),
        ("endpoint change, likewise", _spread(figures.endpoint_change)),
        ("leader killed, until a new route answers", _each(figures.killed)),
        ("leader stopped, likewise", _each(figures.stopped)),
        ("memory of leader and follower", f"{figures.leader_memory:.0f} and {figures.follower_memory:.0f} MiB"),
        ("requests of the leader in a minute at rest", _rates(figures.requests_of_leader)),
        ("requests of the follower", _rates(figures.requests_of_follower)),
    ]


def _spread(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    median, late = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return f"{1000 * median:.0f} ms (median), {1000 * late:.0f} ms (p99)"


def _each(seconds: Sequence[float]) -> str:
    return ", ".join(f"{one:.2f}" for one in seconds) + " s"


def _rates(counts: dict[str, float]) -> str:
    return f"{sum(counts.values()):.0f}: " + ", ".join(f"{count:g} {what}" for what, count in counts.items())


def _lease() -> dict[str, object]:
    return {
        "leaderElection": {"leaseName": "leader", "leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms"}
    }


def _is_from(echo: Resource, body: bytes) -> bool:
    return bool(json.loads(body)["address"] == echo["status"]["podIP"])


async def measure(size: int, options: argparse.Namespace) -> Figures:
    """Measure everything over *size* Ingresses."""
    async with open_cluster() as cluster, cluster.open_namespace() as namespace:
        context = cluster.state.certificates.client_context()
        url = f"https://{GATEWAY}:{SECURE_PORT}"
        with tempfile.TemporaryDirectory() as scratch:
            site = Site(cluster, namespace, Path(scratch))
            async with cluster.http(context, base_url=url, timeout=30) as api:
                measurement = Measurement(cluster, site, size, api)
                await measurement.start()
                await measurement.change(options.changes)
                await measurement.rest(options.rest)
                await measurement.fail_over(options.failovers)
    return measurement.figures


def main() -> None:
    """Measure what the command line says, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,10000")
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--failovers", type=int, default=3)
    parser.add_argument("--rest", type=float, default=60.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    measured = []
    for size in map(int, options.sizes.split(",")):
        figures = trio.run(measure, size, options)
        measured.append(figures)
        rows = [(f"{size} Ingresses", ""), *summary_of(figures)]
        sys.stdout.write("\n".join(f"| {name} | {value} |" for name, value in rows) + "\n")
        sys.stdout.flush()
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(measured)) + b"\n")


if __name__ == "__main__":
    main()
