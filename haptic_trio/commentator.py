"""Event commentator: the only component that writes the normal flow to the log.

Components do not log the normal flow themselves. So one module decides which
events become log lines, with which message, level and fields.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import trio

from haptic_trio import messages as m
from haptic_trio.channels import EventBuffer
from haptic_trio.haproxy.plan.plan import UNKNOWN_GENERATION
from haptic_trio.logs import Logger
from haptic_trio.metrics import Metrics
from haptic_trio.pipeline.rejection.summary import text_for_owner

LogLine = tuple[str, str, dict[str, Any]]
"""Level, constant message and fields of a log line."""


async def run_commentator(
    events: EventBuffer,
    *,
    log: Logger,
    metrics: Metrics,
    observe: Callable[[msgspec.Struct], None] | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Log events until cancelled; started() at once. Each event is then passed to *observe*, which must not block.

    Counts lost events in *metrics*; observers update all other metrics.
    """
    failures = _Failures()
    with events.receiver as receiver:
        task_status.started()
        async for event in receiver:
            line_of = LOG_LINES.get(type(event))
            if line_of is not None:
                level, message, values = line_of(event)
                getattr(log, "debug" if failures.is_repeated(event) else level)(message, **values)
            if observe is not None:
                observe(event)
            if lost := events.take_lost():
                metrics.events_lost.inc(lost)
                log.warning("events lost", count=lost)


class _Failures:
    """The last error of each instance: a deployment that fails is repeated, and its error logged once."""

    def __init__(self) -> None:
        self._errors: dict[str, str] = {}

    def is_repeated(self, event: msgspec.Struct) -> bool:
        """Whether *event* is the same failure of an instance as the one before."""
        match event:
            case m.InstanceFailed(endpoint=endpoint, error=error):
                is_known = self._errors.get(endpoint) == error
                self._errors[endpoint] = error
                return is_known
            case m.InstanceDeployed(result=result):
                self._errors.pop(result.endpoint, None)
        return False


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def _triggered(event: m.ReconcileTriggered) -> LogLine:
    return "debug", "reconciliation triggered", {
        "correlation": event.correlation, "reason": event.reason.value, "changes": event.changes,
    }  # fmt: skip


def _started(event: m.ReconcileStarted) -> LogLine:
    return "debug", "reconciliation started", {"correlation": event.correlation, "reason": event.reason.value}


def _rendered(event: m.ConfigRendered) -> LogLine:
    return "debug", "configuration rendered", {
        "correlation": event.correlation, "bytes": event.bytes, "files": event.files, "ms": _ms(event.seconds),
        "rendered": event.fragments_rendered, "reused": event.fragments_reused,
        **({"waiting": dict(event.waiting)} if event.waiting else {}),
    }  # fmt: skip


def _render_differed(event: m.RenderDiffered) -> LogLine:
    return "error", "incremental render differs from a full render: please report this", {
        "correlation": event.correlation, "outputs": list(event.outputs),
    }  # fmt: skip


def _prepared(event: m.ConfigPrepared) -> LogLine:
    return "debug", "configuration prepared", {
        "correlation": event.correlation,
        "generation": event.generation.id[:12],
        "render_ms": _ms(event.phases.render),
        "parse_ms": _ms(event.phases.parse),
    }  # fmt: skip


def _validated(event: m.ConfigValidated) -> LogLine:
    values: dict[str, Any] = {
        "correlation": event.correlation,
        "generation": event.generation.id[:12],
        "render_ms": _ms(event.phases.render),
        "parse_ms": _ms(event.phases.parse),
        "check_ms": _ms(event.phases.check),
    }
    if not event.warnings:
        return "debug", "configuration validated", values
    return "info", "configuration validated", values | {"warnings": [str(warning) for warning in event.warnings[:5]]}


def _rejected(event: m.ValidationFailed) -> LogLine:
    return (
        "error",
        "configuration rejected" if event.is_verdict else "configuration not checked",
        {
            "correlation": event.correlation,
            "phase": event.phase,
            "problems": [str(problem) for problem in event.problems],
        },
    )


def _failed(event: m.ReconcileFailed) -> LogLine:
    return "error", "reconciliation failed", {
        "correlation": event.correlation, "phase": event.phase, "ms": _ms(event.seconds),
    }  # fmt: skip


def _completed(event: m.ReconcileCompleted) -> LogLine:
    level = "debug" if event.outcome is m.Outcome.UNCHANGED else "info"
    return level, "reconciliation completed", {
        "correlation": event.correlation, "outcome": event.outcome.value, "ms": _ms(event.seconds),
    }  # fmt: skip


def _quarantined(event: m.Quarantined) -> LogLine:
    return "warning", "object quarantined", {
        "correlation": event.correlation,
        "object": str(event.ref),
        "version": event.version,
        "serving": "its last good version" if event.has_fallback else "nothing",
        "problem": text_for_owner(event.problem),
    }  # fmt: skip


def _released(event: m.Released) -> LogLine:
    return "info", "object released", {"correlation": event.correlation, "object": str(event.ref)}


def _warning_raised(event: m.WarningRaised) -> LogLine:
    values = _of_warning(event)
    if event.place:
        values["problem"] = f"{event.place}: {event.warning.message}"
    return "warning", "object has a problem", values


def _warning_resolved(event: m.WarningResolved) -> LogLine:
    return "info", "problem of object resolved", _of_warning(event)


def _of_warning(event: m.WarningRaised | m.WarningResolved) -> dict[str, Any]:
    warning = event.warning
    return {
        "correlation": event.correlation,
        "object": str(warning.subject),
        "reason": warning.reason,
        "problem": warning.message,
    }


def _reports_omitted(event: m.ReportsOmitted) -> LogLine:
    numbers = msgspec.structs.asdict(event)
    return (
        "warning",
        "more objects changed than are logged",
        {name: number for name, number in numbers.items() if number},
    )


def _discovered(event: m.EndpointsDiscovered) -> LogLine:
    return (
        "info" if event.endpoints else "debug",
        "endpoints discovered",
        {"endpoints": [endpoint.name for endpoint in event.endpoints]},
    )


def _endpoint_lost(event: m.EndpointLost) -> LogLine:
    return "warning", "endpoint lost", {"endpoint": event.endpoint}


def _fleet_changed(event: m.FleetChanged) -> LogLine:
    present = {state: number for state, number in event.states.items() if number}
    return "info", "fleet changed", {"group": event.group, "size": event.size, **present}


def _instance_draining(event: m.InstanceDraining) -> LogLine:
    return "info", "instance draining", {
        "instance": event.instance, "reason": event.reason, "s": round(event.seconds, 1),
    }  # fmt: skip


def _instance_operation_failed(event: m.InstanceOperationFailed) -> LogLine:
    level = "debug" if event.is_repeated else "warning"
    return level, "instance operation failed", {"instance": event.instance, "error": event.error}


def _scheduled(event: m.DeploymentScheduled) -> LogLine:
    return "debug", "deployment scheduled", {
        "correlation": event.correlation, "reason": event.why, "endpoints": len(event.endpoints),
    }  # fmt: skip


def _deployment_started(event: m.DeploymentStarted) -> LogLine:
    return "debug", "deployment started", {
        "correlation": event.correlation, "generation": event.generation[:12], "endpoints": list(event.endpoints),
    }  # fmt: skip


def _instance_deployed(event: m.InstanceDeployed) -> LogLine:
    result = event.result
    values: dict[str, Any] = {"correlation": event.correlation, "endpoint": result.endpoint, "ms": _ms(result.seconds)}
    if result.held:
        values["held"] = list(result.held)
    if result.is_partial:
        values["partial"] = True
    if not result.changed:
        return "debug", "instance up to date", values
    if result.reloaded:
        message = "instance configured" if result.reasons == (UNKNOWN_GENERATION,) else "instance reloaded"
        before = {"operations": result.operations} if result.operations else {}
        return "info", message, values | {"reasons": list(result.reasons)} | before
    return "info", "instance updated without reload", values | {"operations": result.operations}


def _drift_repaired(event: m.DriftRepaired) -> LogLine:
    return "warning", "drift repaired", {
        "correlation": event.correlation, "endpoint": event.endpoint, "found": dict(event.found),
        "operations": event.operations, "reloaded": event.reloaded,
    }  # fmt: skip


def _instance_failed(event: m.InstanceFailed) -> LogLine:
    return "error", "instance failed", {
        "correlation": event.correlation, "endpoint": event.endpoint, "error": event.error, "ms": _ms(event.seconds),
    }  # fmt: skip


def _deployment_completed(event: m.DeploymentCompleted) -> LogLine:
    level = "warning" if event.failed else "debug"
    return level, "deployment completed", {
        "correlation": event.correlation, "succeeded": len(event.results), "failed": list(event.failed),
        "ms": _ms(event.seconds),
    }  # fmt: skip


def _http_fetched(event: m.HttpFetched) -> LogLine:
    return "debug", "content fetched", {
        "url": event.url, "outcome": event.outcome, "bytes": event.bytes, "ms": _ms(event.seconds),
    }  # fmt: skip


def _http_changed(event: m.HttpContentChanged) -> LogLine:
    return "debug", "content changed", {"urls": list(event.urls)}


def _http_accepted(event: m.HttpContentAccepted) -> LogLine:
    return "info", "content accepted", {"url": event.url, "digest": event.digest[:12], "bytes": event.bytes}


def _http_rejected(event: m.HttpContentRejected) -> LogLine:
    return "error", "content rejected", {
        "url": event.url,
        "digest": event.digest[:12],
        "serving": "the previous content" if event.has_former else "nothing",
        "problem": str(event.problem),
    }  # fmt: skip


def _drift(event: m.DriftSuspected) -> LogLine:
    return "debug", "drift suspected", {"idle_s": round(event.idle, 1)}


def _synchronized(event: m.IndexSynchronized) -> LogLine:
    # Further stores with the same objects, such as `ingressesByHost`, begin with the name of the first one.
    counts = {
        name: count
        for name, count in event.counts.items()
        if not any(name != other and name.startswith(other) for other in event.counts)
    }
    return "info", "resources synchronized", {"objects": counts}


def _leadership(event: m.LeadershipChanged) -> LogLine:
    message = "leadership won" if event.is_leader else "leadership lost"
    return "info", message, {"identity": event.identity}


def _config_changed(event: m.ConfigChanged) -> LogLine:
    return "info", "configuration changed", {"version": event.loaded.version.rstrip("/")}


def _config_invalid(event: m.ConfigInvalid) -> LogLine:
    return (
        "error",
        "invalid configuration ignored",
        {
            **({"version": version} if (version := event.version.rstrip("/")) else {}),
            "problems": [str(problem) for problem in event.problems],
        },
    )


def _stage(event: m.StageReached) -> LogLine:
    # The start ends with the line `Serving`.
    return "info" if event.iteration > 1 else "debug", "stage reached", {
        "name": event.name, "stage": event.stage, "iteration": event.iteration, "ms": _ms(event.seconds),
    }  # fmt: skip


def _progress(event: m.ProgressMade) -> LogLine:
    return "info", "still working", {"progress": event.progress, "iteration": event.iteration}


def _iteration_ended(event: m.IterationEnded) -> LogLine:
    return "info", "iteration ended", {
        "iteration": event.iteration, "reason": event.reason, "s": round(event.seconds, 1),
    }  # fmt: skip


def _problems(event: m.ProblemsReported) -> LogLine:
    if not event.problems:
        return "info", "problems resolved", {"source": event.source}
    return "warning", "problems reported", {
        "source": event.source, "problems": [str(problem) for problem in event.problems],
    }  # fmt: skip


LOG_LINES: Mapping[type[msgspec.Struct], Callable[[Any], LogLine]] = {
    m.ReconcileTriggered: _triggered,
    m.ReconcileStarted: _started,
    m.ConfigRendered: _rendered,
    m.RenderDiffered: _render_differed,
    m.ConfigPrepared: _prepared,
    m.ConfigValidated: _validated,
    m.ValidationFailed: _rejected,
    m.ReconcileFailed: _failed,
    m.ReconcileCompleted: _completed,
    m.Quarantined: _quarantined,
    m.Released: _released,
    m.WarningRaised: _warning_raised,
    m.WarningResolved: _warning_resolved,
    m.ReportsOmitted: _reports_omitted,
    m.EndpointsDiscovered: _discovered,
    m.EndpointLost: _endpoint_lost,
    m.FleetChanged: _fleet_changed,
    m.InstanceDraining: _instance_draining,
    m.InstanceOperationFailed: _instance_operation_failed,
    m.DeploymentScheduled: _scheduled,
    m.DeploymentStarted: _deployment_started,
    m.InstanceDeployed: _instance_deployed,
    m.DriftRepaired: _drift_repaired,
    m.InstanceFailed: _instance_failed,
    m.DeploymentCompleted: _deployment_completed,
    m.DriftSuspected: _drift,
    m.HttpFetched: _http_fetched,
    m.HttpContentChanged: _http_changed,
    m.HttpContentAccepted: _http_accepted,
    m.HttpContentRejected: _http_rejected,
    m.IndexSynchronized: _synchronized,
    m.LeadershipChanged: _leadership,
    m.ConfigChanged: _config_changed,
    m.ConfigInvalid: _config_invalid,
    m.StageReached: _stage,
    m.ProgressMade: _progress,
    m.IterationEnded: _iteration_ended,
    m.ProblemsReported: _problems,
}
