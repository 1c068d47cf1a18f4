"""Metrics from events."""

import time
from collections.abc import Callable
from typing import Final

import msgspec
import trio
from prometheus_client import Gauge

from haptic_trio import messages as m
from haptic_trio.dataplane.endpoint import SyncResult
from haptic_trio.haproxy.plan.plan import UNKNOWN_GENERATION
from haptic_trio.metrics import PREFIX, Family, Metrics, Readings
from haptic_trio.telemetry.propagation import Propagation

MOST_INSTANCES = 500
"""Maximum number of instances with their own series; others count in the sums only."""
MOST_RELOAD_LABELS = 100
"""Maximum number of reasons for reloads with their own series."""
OLDEST_CHANGE: Final = Family(
    f"{PREFIX}oldest_unpropagated_change_seconds",
    "gauge",
    "How long the oldest change waits that some instance does not run yet; 0 where there is none.",
)
SLOWED_NAMESPACES: Final = Family(
    f"{PREFIX}slowed_namespaces",
    "gauge",
    "Namespaces that have caused many reloads: their changes alone reload no instance now.",
)
PROBLEMS: Final = Family(
    f"{PREFIX}problems",
    "gauge",
    "Problems of sources, such as manifests, agents with a second controller, and limits of the kernel.",
)
KINDS = ("start", "reload", "runtime", "unchanged", "failed")
"""Kinds of successful deployments."""

_CHANGES = frozenset({"added", "removed", "changed", "moved", "rejected", "generation"})


class Accounts:
    """Updates the metrics of `Metrics` from events."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = trio.current_time,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """*clock* is the clock of events; *wall_clock* returns seconds since 1970."""
        self._metrics = metrics
        self._clock = clock
        self._wall_clock = wall_clock
        self._propagation = Propagation()
        self._instances: set[str] = set()
        self._reload_labels: set[str] = set()
        # With a fast lane, ConfigPrepared precedes ConfigValidated and counts render and parse.
        self._prepares = False
        self._is_leader = False
        readings = Readings(metrics.families)
        self._problems: dict[str, int] = {}
        readings.add(PROBLEMS, lambda: [((), float(sum(self._problems.values())))])
        # Namespaces with the ends of their holds.
        self._slowed: tuple[tuple[str, float], ...] = ()
        readings.add(SLOWED_NAMESPACES, lambda: [((), float(sum(end > self._clock() for _, end in self._slowed)))])
        readings.add(OLDEST_CHANGE, lambda: [((), self._propagation.oldest(self._clock()))])

    def take(self, event: msgspec.Struct) -> None:
        """Update the metrics for *event*; never blocks."""
        self._count(event)
        match event:
            case m.ReconcileTriggered():
                # Another replica deploys it, so its propagation time is unknown here.
                self._propagation.trigger(event.correlation, event.changes if self._is_leader else 0, event.seen)
            case m.ReconcileFailed():
                self._propagation.fail(event.correlation)
            case m.ConfigPrepared() | m.ConfigValidated():
                self._take_phases(event)
            case m.InstanceDeployed():
                self._take_deployed(event)
            case m.DeploymentCompleted():
                self._slowed = event.state.slowed
            case m.InstanceFailed():
                self._count_instance(event.endpoint, "failed")
                self._set(self._metrics.instance_failing, event.endpoint, 1)
            case m.EndpointsDiscovered():
                self._take_endpoints({endpoint.name for endpoint in event.endpoints})
            case m.LeadershipChanged():
                self._is_leader = event.is_leader
                self._propagation.clear()
                # Each term counts reloads from the beginning.
                self._slowed = ()
                if not event.is_leader:
                    self._forget_standings()
            case m.ProblemsReported():
                self._take_problems(event)
            case m.IterationEnded():
                self._propagation.clear()
                self._slowed = ()
                # The next iteration may have another mode.
                self._prepares = False
            case _:
                return
        self._metrics.unpropagated.set(self._propagation.waiting)

    def _take_problems(self, event: m.ProblemsReported) -> None:
        self._problems.pop(event.source, None)
        if event.problems:
            self._problems[event.source] = len(event.problems)

    def _take_phases(self, event: m.ConfigPrepared | m.ConfigValidated) -> None:
        observe = self._metrics.phase_seconds
        self._prepares |= isinstance(event, m.ConfigPrepared)
        if isinstance(event, m.ConfigPrepared) or not self._prepares:
            observe.labels("render").observe(event.phases.render)
            observe.labels("parse").observe(event.phases.parse)
        if isinstance(event, m.ConfigValidated):
            observe.labels("check").observe(event.phases.check)

    def _take_deployed(self, event: m.InstanceDeployed) -> None:
        result, metrics = event.result, self._metrics
        self._count_instance(result.endpoint, kind_of(result))
        self._set(metrics.instance_failing, result.endpoint, 0)
        self._set(metrics.instance_holding, result.endpoint, int(bool(result.held)))
        self._set(metrics.instance_success, result.endpoint, self._wall_clock())
        if not result.held:
            self._observe(self._propagation.deploy(result.endpoint, event.correlation, self._clock()))

    def _take_content(self, event: m.HttpFetched | m.HttpContentAccepted | m.HttpContentRejected) -> None:
        metrics = self._metrics
        if not isinstance(event, m.HttpFetched):
            result = "accepted" if isinstance(event, m.HttpContentAccepted) else "rejected"
            metrics.http_content_validations.labels(result).inc()
            return
        metrics.http_fetches.labels(event.outcome).inc()
        metrics.http_fetch_seconds.observe(event.seconds)
        metrics.http_bytes.inc(event.bytes)

    def _limited(self, label: str) -> str:
        """Return *label*, or `other` if there are too many: the reasons may be those of an agent."""
        if len(self._reload_labels) < MOST_RELOAD_LABELS:
            self._reload_labels.add(label)
        return label if label in self._reload_labels else "other"

    def _take_endpoints(self, names: set[str]) -> None:
        for name in self._instances - names:
            for kind in KINDS:
                self._metrics.instance_deployments.remove(name, kind)
            for gauge in (*self._flags, self._metrics.instance_success):
                gauge.labels(name)
                gauge.remove(name)
        self._instances &= names
        for name in sorted(names - self._instances)[: MOST_INSTANCES - len(self._instances)]:
            self._instances.add(name)
            for kind in KINDS:
                self._metrics.instance_deployments.labels(name, kind)
            for gauge in self._flags:
                gauge.labels(name)
        self._observe(self._propagation.keep(names, self._clock()))

    def _forget_standings(self) -> None:
        """Remove the series of instances: from now on another replica deploys to them."""
        for name in self._instances:
            for flag in self._flags:
                flag.labels(name).set(0)
            self._metrics.instance_success.labels(name)
            self._metrics.instance_success.remove(name)

    @property
    def _flags(self) -> tuple[Gauge, ...]:
        return self._metrics.instance_failing, self._metrics.instance_holding

    def _count_instance(self, name: str, kind: str) -> None:
        # A removed instance must not get a series again.
        if name in self._instances:
            self._metrics.instance_deployments.labels(name, kind).inc()

    def _set(self, gauge: Gauge, name: str, value: float) -> None:
        if name in self._instances:
            gauge.labels(name).set(value)

    def _observe(self, durations: list[float]) -> None:
        for seconds in durations:
            self._metrics.propagation_seconds.observe(seconds)

    def _count(self, event: msgspec.Struct) -> None:  # noqa: C901, PLR0912  one trivial case for each event type
        metrics = self._metrics
        match event:
            case m.ReconcileCompleted():
                metrics.reconciliations.labels(event.outcome.value).inc()
                metrics.reconciliation_seconds.observe(event.seconds)
            case m.ReconcileFailed():
                metrics.reconciliations.labels("failed").inc()
                metrics.reconciliation_errors.labels(event.phase).inc()
            case m.ConfigRendered():
                metrics.fragments.labels("rendered").inc(event.fragments_rendered)
                metrics.fragments.labels("reused").inc(event.fragments_reused)
                metrics.config_bytes.set(event.bytes)
                metrics.waiting_changes.set(sum(event.waiting.values()))
            case m.RenderDiffered():
                metrics.render_differences.inc(len(event.outputs))
            case m.ConfigValidated():
                metrics.validations.labels("valid").inc()
            case m.ValidationFailed():
                metrics.validations.labels(f"rejected by {event.phase}" if event.is_verdict else "undecided").inc()
            case m.InstanceDeployed():
                metrics.deployments.labels("ok" if event.result.changed else "unchanged").inc()
                metrics.deployment_seconds.observe(event.result.seconds)
                metrics.runtime_operations.inc(event.result.operations)
                if event.result.reloaded:
                    metrics.reloads.labels(self._limited(reload_label(event.result.reasons))).inc()
            case m.DriftRepaired():
                for kind, number in event.found.items():
                    metrics.drift.labels(kind).inc(number)
            case m.InstanceFailed():
                metrics.deployments.labels("failed").inc()
            case m.Quarantined() | m.Released():
                metrics.quarantined.set(event.quarantined)
            case m.EndpointsDiscovered():
                metrics.endpoints.set(len(event.endpoints))
            case m.FleetChanged():
                metrics.fleet_size.labels(event.group).set(event.size)
                for state, number in event.states.items():
                    metrics.fleet_instances.labels(event.group, state).set(number)
            case m.InstanceDraining():
                metrics.fleet_drains.labels(event.reason).inc()
            case m.InstanceOperationFailed():
                metrics.fleet_errors.labels(event.group).inc()
            case m.HttpFetched() | m.HttpContentAccepted() | m.HttpContentRejected():
                self._take_content(event)
            case m.IterationEnded():
                metrics.iterations.labels(event.reason).inc()
                metrics.quarantined.set(0)
            case m.ConfigInvalid():
                metrics.config_invalid.inc()
            case m.LeadershipChanged():
                metrics.is_leader.set(int(event.is_leader))
                metrics.transitions.inc()


def kind_of(result: SyncResult) -> str:
    """Return the kind of a successful deployment: one of `KINDS`."""
    if not result.changed:
        return "unchanged"
    if not result.reloaded:
        return "runtime"
    return "start" if result.reasons == (UNKNOWN_GENERATION,) else "reload"


def reload_label(reasons: tuple[str, ...]) -> str:
    """Return the first reason without names of objects, so that the label has few values."""
    words = reasons[0].replace(":", " ").split() if reasons else []
    if not words:
        return "unknown"
    first, *more = words
    return " ".join([first, *[word for word in more if word in _CHANGES][:1]])
