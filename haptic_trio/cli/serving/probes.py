"""Probe and scrape data of `serve`."""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

import msgspec
import trio

from haptic_trio.channels import Channels, EventBuffer
from haptic_trio.cli.serving.fleet import count_groups, fleet_of
from haptic_trio.dataplane.endpoint import CountsOldWorkers
from haptic_trio.haproxy.config.expiry import Expiries, find_expiries
from haptic_trio.health import HealthReport
from haptic_trio.httpstore.store import HttpStore
from haptic_trio.k8s.api.cluster import ApiCluster
from haptic_trio.k8s.api.watch_counts import WatchCounts
from haptic_trio.k8s.client import Client
from haptic_trio.metrics import PREFIX, Families, Family, Reading, Readings
from haptic_trio.stages.process import Process

Observe: TypeAlias = Callable[[msgspec.Struct], None]

WITHIN: Final = {"expired": 0.0, "1d": 86400.0, "7d": 7 * 86400.0, "30d": 30 * 86400.0}
"""Windows for expiring certificates, in seconds; cumulative."""


def _family(name: str, kind: str, text: str, *labels: str) -> Family:
    return Family(f"{PREFIX}{name}", kind, text, labels)


RESOURCES: Final = _family("resource_count", "gauge", "Objects in a store.", "type")
CHANNEL_USED: Final = _family("channel_used", "gauge", "Messages in a channel.", "channel")
CHANNEL_SIZE: Final = _family(
    "channel_size", "gauge", "Capacity of a channel; senders wait while it is full.", "channel"
)
ITERATION: Final = _family("iteration_number", "gauge", "Number of the running iteration; 0 between two iterations.")
STAGE: Final = _family("iteration_stage", "gauge", "Completed startup stages of the iteration, 0 to 5.")
READY: Final = _family("ready", "gauge", "1 while /readyz reports ready.")
STALLED: Final = _family(
    "component_stalled", "gauge", "1 while a component exceeds its heartbeat deadline.", "component"
)
OUTDATED: Final = _family(
    "config_is_outdated", "gauge", "1 while the newest ConfigMap or Secret is not in use, such as an invalid one."
)
CERTIFICATES: Final = _family("certificates", "gauge", "Certificates in the newest valid configuration.")
EXPIRING: Final = _family(
    "certificates_expiring",
    "gauge",
    "Certificates that expire within the window (cumulative).",
    "within",
)
EXPIRY: Final = _family(
    "certificate_expiry_timestamp_seconds",
    "gauge",
    "Expiry of the ten certificates that expire first.",
    "file",
)
HOST_EXPIRY: Final = _family(
    "host_certificate_expiry_timestamp_seconds",
    "gauge",
    "Expiry of the certificates of the hundred hosts whose certificates expire first.",
    "host",
)
OLD_WORKERS: Final = _family(
    "haproxy_old_workers",
    "gauge",
    "HAProxy processes of an instance that finish their connections after a reload; not with the Data Plane API.",
    "haproxy",
)
CONTENTS: Final = _family("http_contents", "gauge", "Fetched contents in memory.")
CONTENT_AGE: Final = _family(
    "http_oldest_content_age_seconds",
    "gauge",
    "Time since a server confirmed the stalest content, of contents with a refresh interval.",
)
CONNECTIONS: Final = _family("watch_connections_total", "counter", "Watch connections that were opened.", "type")
LISTS: Final = _family("watch_lists_total", "counter", "Complete lists that were received.", "type")
FAILURES: Final = _family("watch_failures_total", "counter", "Failed lists and watches, by error.", "type", "error")
REQUESTS: Final = _family("api_requests_total", "counter", "Requests to the API server.")


def health_of(process: Process) -> HealthReport:
    """Return the state of *process* now."""
    state = process.running.value
    leadership, fleet = process.leadership.value, fleet_of(process)
    return HealthReport(
        iteration=state.number if state else 0,
        stage=state.stage if state else 0,
        is_ready=state is not None and state.is_ready,
        is_leader=leadership is not None and leadership.is_leader,
        missing=state.missing
        if state is not None
        else ("no iteration is running: the process is starting or between two iterations",),
        components=state.heartbeats.states() if state else (),
        fleet=count_groups(fleet.present if fleet is not None else None),
    )


def observing(*observers: Observe | None) -> Observe:
    """Return an observer that passes each event to all of *observers*, in order."""
    wanted = [observe for observe in observers if observe is not None]

    def observe_all(event: msgspec.Struct) -> None:
        for observe in wanted:
            observe(event)

    return observe_all


class Scrapes:
    """Metrics of *families* that are read from *process* when they are scraped."""

    def __init__(self, families: Families, process: Process, cluster: Client) -> None:
        self._process = process
        self._expiries = Expiries()
        self._scanned = ""
        self._one_at_a_time = trio.Lock()
        readings = Readings(families)
        readings.add_together((ITERATION, STAGE, READY, STALLED), self._health)
        readings.add_together((CHANNEL_USED, CHANNEL_SIZE), self._channels)
        for family, read in self._levels().items():
            readings.add(family, read)
        if isinstance(cluster, ApiCluster):
            counts = cluster.counts
            for family, read in watch_readings(counts).items():
                readings.add(family, read)
            readings.add(REQUESTS, lambda: [((), float(cluster.requests))])

    async def prepare(self) -> None:
        """Read the expiry of new certificates; await it before each scrape."""
        newest = self._process.retained.newest_valid.value
        if newest is None or newest.generation.id == self._scanned:
            return
        async with self._one_at_a_time:
            # Parsing thousands of certificates would block the event loop.
            self._expiries = await trio.to_thread.run_sync(find_expiries, newest.generation)
            self._scanned = newest.generation.id

    def _levels(self) -> dict[Family, Callable[[], Iterable[Reading]]]:
        return {
            RESOURCES: self._resources,
            OUTDATED: lambda: [((), float(self._is_outdated()))],
            OLD_WORKERS: self._old_workers,
            CONTENTS: lambda: [((), float(len(store))) for store in self._contents()],
            CONTENT_AGE: self._content_age,
            CERTIFICATES: lambda: [((), float(self._expiries.count))],
            EXPIRING: self._expiring,
            EXPIRY: lambda: [((one.file,), one.at) for one in self._expiries.soonest],
            HOST_EXPIRY: lambda: [((one.host,), one.at) for one in self._expiries.hosts],
        }

    def _resources(self) -> Iterator[Reading]:
        state = self._process.running.value
        if state is not None and state.components is not None:
            for name, store in state.components.stores.items():
                yield (name,), float(len(store))

    def _old_workers(self) -> Iterator[Reading]:
        for endpoint in self._process.endpoints.value or ():
            if isinstance(endpoint, CountsOldWorkers) and (count := endpoint.old_workers) is not None:
                yield (endpoint.name,), float(count)

    def _contents(self) -> Iterator[HttpStore]:
        state = self._process.running.value
        if state is not None and state.components is not None:
            yield state.components.contents

    def _content_age(self) -> Iterator[Reading]:
        for store in self._contents():
            age = store.oldest(trio.current_time())
            if age is not None:
                yield (), age

    def _health(self) -> Iterator[list[Reading]]:
        state = health_of(self._process)
        yield [((), float(state.iteration))]
        yield [((), float(state.stage))]
        yield [((), float(state.is_ready))]
        yield [((one.name,), float(one.stalled)) for one in state.components]

    def _channels(self) -> Iterator[list[Reading]]:
        state = self._process.running.value
        fills = list(fill_of(state.channels if state is not None else None, self._process.events))
        yield [(labels, used) for labels, used, _ in fills]
        yield [(labels, size) for labels, _, size in fills]

    def _is_outdated(self) -> bool:
        state = self._process.running.value
        if state is None or state.loaded is None:
            return False
        newest = self._process.candidates.value
        return newest is not None and newest.version != state.loaded.version

    def _expiring(self) -> Iterator[Reading]:
        now = time.time()
        for within, seconds in WITHIN.items():
            yield (within,), float(bisect_right(self._expiries.times, now + seconds))


def fill_of(channels: Channels | None, events: EventBuffer) -> Iterator[tuple[tuple[str], float, float]]:
    """Yield name, fill level and capacity of each buffered channel."""
    ends = {name.removesuffix("_in"): end for name, end in vars(channels).items()} if channels is not None else {}
    for name, end in {**ends, "events": events.receiver}.items():
        if isinstance(end, trio.MemorySendChannel) or end is events.receiver:
            now = end.statistics()
            yield (name,), float(now.current_buffer_used), float(now.max_buffer_size)


def watch_readings(counts: WatchCounts) -> dict[Family, Callable[[], Iterable[Reading]]]:
    """Return the readings of *counts* by family."""
    return {
        CONNECTIONS: lambda: [((kind,), float(number)) for kind, number in counts.connections.items()],
        LISTS: lambda: [((kind,), float(number)) for kind, number in counts.lists.items()],
        FAILURES: lambda: [(labels, float(number)) for labels, number in counts.failures.items()],
    }
