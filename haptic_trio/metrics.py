"""Prometheus metrics of the process: one registry, one attribute for each family.

Names follow Prometheus: base units, `_total` for counters. Names of HAPTIC are
kept for metrics with the same meaning. No label has a name that Prometheus
sets itself (`instance`, `namespace`, `endpoint` and the like), and the number
of values of each label is bounded.
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
"""Label values and sample value."""


class Family(msgspec.Struct, frozen=True):
    """One metric family: names, kind, help and labels."""

    name: str
    """With `_total` for a counter; samples of a histogram add `_bucket`, `_sum` and `_count`."""
    kind: str
    """`counter`, `gauge` or `histogram`."""
    text: str
    labels: tuple[str, ...] = ()

    @property
    def samples(self) -> tuple[str, ...]:
        """Names of its samples."""
        if self.kind != "histogram":
            return (self.name,)
        return (f"{self.name}_bucket", f"{self.name}_count", f"{self.name}_sum")


class Families:
    """Creates metrics in one registry, and lists them in `known`."""

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
    """Families whose values are read when the registry is scraped, in the scraping thread."""

    def __init__(self, families: Families) -> None:
        self._families = families
        self._reads: list[tuple[Sequence[Family], Callable[[], Iterable[Iterable[Reading]]]]] = []
        families.registry.register(self)

    def add(self, family: Family, read: Callable[[], Iterable[Reading]]) -> None:
        """Add *family*; *read* returns its readings and must not block."""
        self.add_together([family], lambda: [read()])

    def add_together(self, families: Sequence[Family], read: Callable[[], Iterable[Iterable[Reading]]]) -> None:
        """Add *families*; *read* returns the readings of each, in order, and must not block."""
        self._families.known += families
        self._reads.append((families, read))

    def describe(self) -> Iterable[Metric]:
        """Return the families of collect(), without samples."""
        return [_empty(family) for families, _ in self._reads for family in families]

    def collect(self) -> Iterable[Metric]:
        """Yield all families with their readings."""
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
    """Metrics that are updated from events; created once per process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.families = Families(self.registry, PREFIX)
        counter, gauge, histogram = self.families.counter, self.families.gauge, self.families.histogram

        self.reconciliations = counter("reconciliation", "Reconciliations that ended, by outcome.", "outcome")
        self.reconciliation_seconds = histogram(
            "reconciliation_duration_seconds", "Time from the trigger to the end of a reconciliation."
        )
        self.reconciliation_errors = counter("reconciliation_errors", "Failed reconciliations, by phase.", "phase")
        self.phase_seconds = histogram("phase_duration_seconds", "Time spent in one phase of a cycle.", "phase")
        self.propagation_seconds = histogram(
            "propagation_duration_seconds", "Time from the watch event of a change until every instance runs it."
        )
        self.unpropagated = gauge("unpropagated_changes", "Triggers with changes that some instance does not run yet.")
        self.fragments = counter("fragments", "Fragments of rendered configurations, by outcome.", "outcome")
        self.waiting_changes = gauge(
            "waiting_changes", "Changed objects that wait, since their namespaces have too many changes for one render."
        )
        self.render_differences = counter(
            "render_differences",
            "Incremental renders that differed from a full render (bugs).",
        )
        self.config_bytes = gauge("config_size_bytes", "Size of the newest rendered configuration, without files.")
        self.validations = counter("validation", "Validations of rendered configurations, by result.", "result")
        self.deployments = counter("deployment", "Deployments to one endpoint, by result.", "result")
        self.deployment_seconds = histogram("deployment_duration_seconds", "Time of a deployment to one endpoint.")
        self.instance_deployments = counter(
            "instance_deployments", "Successful deployments by instance and kind.", "haproxy", "kind"
        )
        self.instance_failing = gauge(
            "instance_failing", "1 while the latest deployment to the instance is a failure.", "haproxy"
        )
        self.instance_holding = gauge(
            "instance_holding_back", "1 while changes of the instance wait for a reload.", "haproxy"
        )
        self.instance_success = gauge(
            "instance_last_success_timestamp_seconds",
            "Time of the last successful deployment to the instance.",
            "haproxy",
        )
        self.reloads = counter("haproxy_reloads", "Reloads by deployments, by first reason.", "reason")
        self.runtime_operations = counter("haproxy_runtime_operations", "Changes applied without a reload.")
        self.drift = counter("haproxy_drift", "Repaired differences that were caused from outside, by kind.", "kind")
        self.quarantined = gauge("quarantined_objects", "Quarantined objects.")
        self.endpoints = gauge("endpoints", "Known endpoints.")
        self.fleet_size = gauge("fleet_size", "Desired number of ready instances of the fleet.", "group")
        self.fleet_instances = gauge("fleet_instances", "Instances of the fleet, by state.", "group", "state")
        self.fleet_drains = counter("fleet_drains", "Started drains of instances, by reason.", "reason")
        self.fleet_errors = counter("fleet_errors", "Failed operations on instances; each is retried.", "group")
        self.iterations = counter("iterations", "Iterations that ended, by reason.", "reason")
        self.http_fetches = counter("http_fetches", "Fetches of HTTP contents for templates, by outcome.", "outcome")
        self.http_fetch_seconds = histogram(
            "http_fetch_duration_seconds", "Time of a fetch, including redirects and retries."
        )
        self.http_bytes = counter("http_received_bytes", "Bytes of fetched contents, decompressed.")
        self.http_content_validations = counter(
            "http_content_validations", "Validated HTTP contents that had changed, by result.", "result"
        )
        self.config_invalid = counter("config_invalid", "Changed configurations that were rejected.")
        self.events_lost = counter("events_lost", "Events that were lost because their buffer was full.")
        self.is_leader = gauge("leader_election_is_leader", "1 while this replica leads.")
        self.transitions = counter("leader_election_transitions", "Changes of leadership that this replica observed.")


def add_process(metrics: Metrics, version: str, haproxy: str) -> None:
    """Add the build information and, on Linux, the `process_…` metrics."""
    values = (version, platform.python_version(), haproxy)
    readings = Readings(metrics.families)
    readings.add(BUILD_INFO, lambda: [(values, 1.0)])
    if sys.platform == "linux":
        ProcessCollector(registry=metrics.registry)
