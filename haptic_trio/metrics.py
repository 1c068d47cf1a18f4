"""Prometheus metrics of the process: one registry, one attribute for each family.

Names follow Prometheus: base units, `_total` for what only grows. Those of
HAPTIC are kept where they mean the same. No label is named as Prometheus
names its own (`instance`, `namespace`, `endpoint` and the like), and none
takes its values from the names of objects without a bound.
"""

import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

PREFIX: Final = "haptic_"
DURATION_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

Reading: TypeAlias = tuple[tuple[str, ...], float]
"""The values of the labels, and the value."""


class Family(msgspec.Struct, frozen=True):
    """One metric: what its samples are called, and what they mean."""

    name: str
    """With `_total` where it is a counter; samples of a histogram add `_bucket`, `_sum` and `_count`."""
    kind: str
    """`counter`, `gauge` or `histogram`."""
    text: str
    labels: tuple[str, ...] = ()

    @property
    def samples(self) -> tuple[str, ...]:
        """The names that its samples may have."""
        if self.kind != "histogram":
            return (self.name,)
        return (f"{self.name}_bucket", f"{self.name}_count", f"{self.name}_sum")


class Families:
    """Makes metrics in one registry, and remembers what it has made."""

    def __init__(self, registry: CollectorRegistry, prefix: str = "") -> None:
        self.registry = registry
        self.known: list[Family] = []
        self._prefix = prefix

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Return a new counter; its samples end in `_total`."""
        self._note(f"{name}_total", "counter", text, labels)
        return Counter(self._prefix + name, text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """Return a new gauge."""
        self._note(name, "gauge", text, labels)
        return Gauge(self._prefix + name, text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, *labels: str, buckets: Sequence[float] = DURATION_BUCKETS) -> Histogram:
        """Return a new histogram of seconds."""
        self._note(name, "histogram", text, labels)
        return Histogram(self._prefix + name, text, labels, registry=self.registry, buckets=buckets)

    def _note(self, name: str, kind: str, text: str, labels: tuple[str, ...]) -> None:
        self.known.append(Family(self._prefix + name, kind, text, labels))


class Readings(Collector):
    """Families whose values are read when the registry is scraped, in the thread that does so."""

    def __init__(self, families: Families) -> None:
        self._families = families
        self._reads: list[tuple[Sequence[Family], Callable[[], Iterable[Iterable[Reading]]]]] = []
        families.registry.register(self)

    def add(self, family: Family, read: Callable[[], Iterable[Reading]]) -> None:
        """Have *family* filled by *read*, which must not block."""
        self.add_together([family], lambda: [read()])

    def add_together(self, families: Sequence[Family], read: Callable[[], Iterable[Iterable[Reading]]]) -> None:
        """Have *families* filled by one look: *read*, which must not block, gives the readings of each, in order."""
        self._families.known += families
        self._reads.append((families, read))

    def describe(self) -> Iterable[Metric]:
        """Name the families that collect() yields."""
        return [_empty(family) for families, _ in self._reads for family in families]

    def collect(self) -> Iterable[Metric]:
        """Read all of them."""
        for families, read in self._reads:
            for family, found in zip(families, read(), strict=True):
                metric = _empty(family)
                for labels, value in found:
                    metric.add_metric(labels, value)
                yield metric


def _empty(family: Family) -> CounterMetricFamily | GaugeMetricFamily:
    if family.kind == "counter":
        return CounterMetricFamily(family.name, family.text, labels=family.labels)
    return GaugeMetricFamily(family.name, family.text, labels=family.labels)


BUILD_INFO: Final = Family(
    f"{PREFIX}build_info", "gauge", "1, with the versions as labels.", ("version", "python", "haproxy")
)


class Metrics:
    """Every metric that the program exports of what happens, created once per process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.families = Families(self.registry, PREFIX)
        counter, gauge, histogram = self.families.counter, self.families.gauge, self.families.histogram

        self.reconciliations = counter("reconciliation", "Reconciliations that ended, by outcome.", "outcome")
        self.reconciliation_seconds = histogram(
            "reconciliation_duration_seconds", "From trigger to the end of the reconciliation."
        )
        self.reconciliation_errors = counter("reconciliation_errors", "Failed reconciliations, by phase.", "phase")
        self.phase_seconds = histogram("phase_duration_seconds", "Time spent in one phase of a cycle.", "phase")
        self.propagation_seconds = histogram(
            "propagation_duration_seconds", "From a change being seen to all of it running on every instance."
        )
        self.unpropagated = gauge("unpropagated_changes", "Triggers whose changes some instance does not run yet.")
        self.fragments = counter("fragments", "Fragments of configurations, by what was done with them.", "outcome")
        self.render_differences = counter(
            "render_differences",
            "Outputs put together from reused parts that were not what rendering anew gives: bugs.",
        )
        self.config_bytes = gauge("config_size_bytes", "Size of the newest rendered configuration, without files.")
        self.validations = counter("validation", "Rendered configurations that were checked, by result.", "result")
        self.deployments = counter("deployment", "Deployments to one endpoint, by result.", "result")
        self.deployment_seconds = histogram("deployment_duration_seconds", "Time of a deployment to one endpoint.")
        self.instance_deployments = counter(
            "instance_deployments", "Deployments to an instance that is there, by what they did.", "haproxy", "kind"
        )
        self.instance_failing = gauge(
            "instance_failing", "1 while the newest deployment to the instance has failed.", "haproxy"
        )
        self.instance_holding = gauge(
            "instance_holding_back", "1 while the instance holds back what needs a reload.", "haproxy"
        )
        self.instance_success = gauge(
            "instance_last_success_timestamp_seconds", "When a deployment to the instance last succeeded.", "haproxy"
        )
        self.reloads = counter("haproxy_reloads", "Reloads that deployments caused, by first reason.", "reason")
        self.runtime_operations = counter("haproxy_runtime_operations", "Changes applied without a reload.")
        self.drift = counter("haproxy_drift", "Things that others had changed, and that were put right.", "kind")
        self.quarantined = gauge("quarantined_objects", "Objects that are held because they cannot be rendered.")
        self.endpoints = gauge("endpoints", "HAProxy instances that can be deployed to.")
        self.fleet_size = gauge("fleet_size", "Instances of the controller's own that shall be ready.", "group")
        self.fleet_instances = gauge(
            "fleet_instances", "Instances of the controller's own, by state.", "group", "state"
        )
        self.fleet_drains = counter("fleet_drains", "Drains of instances that were begun, by reason.", "reason")
        self.fleet_errors = counter("fleet_errors", "What failed about instances and is tried again.", "group")
        self.iterations = counter("iterations", "Iterations that ended, by reason.", "reason")
        self.http_fetches = counter("http_fetches", "Fetches of contents that templates use, by outcome.", "outcome")
        self.http_fetch_seconds = histogram(
            "http_fetch_duration_seconds", "Time of a fetch with its redirects and retries."
        )
        self.http_bytes = counter("http_received_bytes", "Contents that servers sent, decompressed.")
        self.http_verdicts = counter("http_contents_judged", "Changed contents, by what became of them.", "verdict")
        self.config_invalid = counter("config_invalid", "Changed configurations that were refused.")
        self.facts_lost = counter("facts_lost", "Facts that the commentator was too slow for.")
        self.is_leader = gauge("leader_election_is_leader", "1 while this replica deploys.")
        self.transitions = counter("leader_election_transitions", "Changes of leadership seen by this replica.")


def add_process(metrics: Metrics, version: str, haproxy: str) -> None:
    """Add what is the same for the life of the process, and what the kernel knows of it (`process_…`)."""
    values = (version, platform.python_version(), haproxy)
    readings = Readings(metrics.families)
    readings.add(BUILD_INFO, lambda: [(values, 1.0)])
    if sys.platform == "linux":
        ProcessCollector(registry=metrics.registry)
