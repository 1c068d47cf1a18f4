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
from haptic_trio.haproxy.plan.plan import FIRST_GENERATION
from haptic_trio.logs import Logger
from haptic_trio.metrics import Metrics

Story = tuple[str, str, dict[str, Any]]
"""Level, constant message, fields."""


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
    with events.receiver as receiver:
        task_status.started()
        async for fact in receiver:
            story_of = STORIES.get(type(fact))
            if story_of is not None:
                level, message, values = story_of(fact)
                getattr(log, level)(message, **values)
            if observe is not None:
                observe(fact)
            if lost := events.take_lost():
                metrics.facts_lost.inc(lost)
                log.warning("events lost", count=lost)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def _triggered(fact: m.ReconcileTriggered) -> Story:
    return "debug", "reconciliation triggered", {
        "correlation": fact.correlation, "reason": fact.reason.value, "changes": fact.changes,
    }  # fmt: skip


def _started(fact: m.ReconcileStarted) -> Story:
    return "debug", "reconciliation started", {"correlation": fact.correlation, "reason": fact.reason.value}


def _rendered(fact: m.ConfigRendered) -> Story:
    return "debug", "configuration rendered", {
        "correlation": fact.correlation, "bytes": fact.bytes, "files": fact.files, "ms": _ms(fact.seconds),
        "rendered": fact.fragments_rendered, "reused": fact.fragments_reused,
    }  # fmt: skip


def _render_differed(fact: m.RenderDiffered) -> Story:
    return "error", "incremental render differs from a full render: please report this", {
        "correlation": fact.correlation, "outputs": list(fact.outputs),
    }  # fmt: skip


def _prepared(fact: m.ConfigPrepared) -> Story:
    return "debug", "configuration prepared", {
        "correlation": fact.correlation,
        "generation": fact.generation.id[:12],
        "render_ms": _ms(fact.phases.render),
        "parse_ms": _ms(fact.phases.parse),
    }  # fmt: skip


def _validated(fact: m.ConfigValidated) -> Story:
    values: dict[str, Any] = {
        "correlation": fact.correlation,
        "generation": fact.generation.id[:12],
        "render_ms": _ms(fact.phases.render),
        "parse_ms": _ms(fact.phases.parse),
        "check_ms": _ms(fact.phases.check),
    }
    if fact.warnings:
        values["warnings"] = [str(warning) for warning in fact.warnings[:5]]
    return "info", "configuration validated", values


def _rejected(fact: m.ValidationFailed) -> Story:
    return "error", "configuration rejected" if fact.is_verdict else "configuration not checked", {
        "correlation": fact.correlation, "phase": fact.phase, "problems": [str(problem) for problem in fact.problems],
    }  # fmt: skip


def _failed(fact: m.ReconcileFailed) -> Story:
    return "error", "reconciliation failed", {
        "correlation": fact.correlation, "phase": fact.phase, "ms": _ms(fact.seconds),
    }  # fmt: skip


def _completed(fact: m.ReconcileCompleted) -> Story:
    return "info", "reconciliation completed", {
        "correlation": fact.correlation, "outcome": fact.outcome.value, "ms": _ms(fact.seconds),
    }  # fmt: skip


def _quarantined(fact: m.Quarantined) -> Story:
    return "warning", "object quarantined", {
        "correlation": fact.correlation,
        "object": str(fact.ref),
        "version": fact.version,
        "serving": "its last good version" if fact.has_fallback else "nothing",
        "problem": str(fact.problem),
    }  # fmt: skip


def _released(fact: m.Released) -> Story:
    return "info", "object released", {"correlation": fact.correlation, "object": str(fact.ref)}


def _warning_raised(fact: m.WarningRaised) -> Story:
    return "warning", "object has a problem", _of_warning(fact)


def _warning_resolved(fact: m.WarningResolved) -> Story:
    return "info", "problem of object resolved", _of_warning(fact)


def _of_warning(fact: m.WarningRaised | m.WarningResolved) -> dict[str, Any]:
    warning = fact.warning
    return {
        "correlation": fact.correlation,
        "object": str(warning.subject),
        "reason": warning.reason,
        "problem": warning.message,
    }


def _reports_omitted(fact: m.ReportsOmitted) -> Story:
    numbers = msgspec.structs.asdict(fact)
    return (
        "warning",
        "more objects changed than are logged",
        {name: number for name, number in numbers.items() if number},
    )


def _discovered(fact: m.EndpointsDiscovered) -> Story:
    return "info", "endpoints discovered", {"endpoints": [endpoint.name for endpoint in fact.endpoints]}


def _endpoint_lost(fact: m.EndpointLost) -> Story:
    return "warning", "endpoint lost", {"endpoint": fact.endpoint}


def _fleet_changed(fact: m.FleetChanged) -> Story:
    present = {state: number for state, number in fact.states.items() if number}
    return "info", "fleet changed", {"group": fact.group, "size": fact.size, **present}


def _instance_draining(fact: m.InstanceDraining) -> Story:
    return "info", "instance draining", {
        "instance": fact.instance, "reason": fact.reason, "s": round(fact.seconds, 1),
    }  # fmt: skip


def _instance_operation_failed(fact: m.InstanceOperationFailed) -> Story:
    return "warning", "instance operation failed", {"instance": fact.instance, "error": fact.error}


def _scheduled(fact: m.DeploymentScheduled) -> Story:
    return "debug", "deployment scheduled", {
        "correlation": fact.correlation, "reason": fact.why, "endpoints": len(fact.endpoints),
    }  # fmt: skip


def _deployment_started(fact: m.DeploymentStarted) -> Story:
    return "debug", "deployment started", {
        "correlation": fact.correlation, "generation": fact.generation[:12], "endpoints": list(fact.endpoints),
    }  # fmt: skip


def _instance_deployed(fact: m.InstanceDeployed) -> Story:
    result = fact.result
    values: dict[str, Any] = {"correlation": fact.correlation, "endpoint": result.endpoint, "ms": _ms(result.seconds)}
    if result.held:
        values["held"] = list(result.held)
    if not result.changed:
        return "debug", "instance up to date", values
    if result.reloaded:
        message = "instance started" if result.reasons == (FIRST_GENERATION,) else "instance reloaded"
        before = {"operations": result.operations} if result.operations else {}
        return "info", message, values | {"reasons": list(result.reasons)} | before
    return "info", "instance updated without reload", values | {"operations": result.operations}


def _drift_repaired(fact: m.DriftRepaired) -> Story:
    return "warning", "drift repaired", {
        "correlation": fact.correlation, "endpoint": fact.endpoint, "found": dict(fact.found),
        "operations": fact.operations, "reloaded": fact.reloaded,
    }  # fmt: skip


def _instance_failed(fact: m.InstanceFailed) -> Story:
    return "error", "instance failed", {
        "correlation": fact.correlation, "endpoint": fact.endpoint, "error": fact.error, "ms": _ms(fact.seconds),
    }  # fmt: skip


def _deployment_completed(fact: m.DeploymentCompleted) -> Story:
    level = "warning" if fact.failed else "debug"
    return level, "deployment completed", {
        "correlation": fact.correlation, "succeeded": len(fact.results), "failed": list(fact.failed),
        "ms": _ms(fact.seconds),
    }  # fmt: skip


def _http_fetched(fact: m.HttpFetched) -> Story:
    return "debug", "content fetched", {
        "url": fact.url, "outcome": fact.outcome, "bytes": fact.bytes, "ms": _ms(fact.seconds),
    }  # fmt: skip


def _http_changed(fact: m.HttpContentChanged) -> Story:
    return "debug", "content changed", {"urls": list(fact.urls)}


def _http_accepted(fact: m.HttpContentAccepted) -> Story:
    return "info", "content accepted", {"url": fact.url, "digest": fact.digest[:12], "bytes": fact.bytes}


def _http_rejected(fact: m.HttpContentRejected) -> Story:
    return "error", "content rejected", {
        "url": fact.url,
        "digest": fact.digest[:12],
        "serving": "the previous content" if fact.has_former else "nothing",
        "problem": str(fact.problem),
    }  # fmt: skip


def _drift(fact: m.DriftSuspected) -> Story:
    return "debug", "drift suspected", {"idle_s": round(fact.idle, 1)}


def _synchronized(fact: m.IndexSynchronized) -> Story:
    return "info", "resources synchronized", {"objects": fact.counts}


def _leadership(fact: m.LeadershipChanged) -> Story:
    message = "leadership won" if fact.is_leader else "leadership lost"
    return "info", message, {"identity": fact.identity}


def _config_changed(fact: m.ConfigChanged) -> Story:
    return "info", "configuration changed", {"version": fact.loaded.version}


def _config_invalid(fact: m.ConfigInvalid) -> Story:
    return "error", "invalid configuration ignored", {
        "version": fact.version, "problems": [str(problem) for problem in fact.problems],
    }  # fmt: skip


def _stage(fact: m.StageReached) -> Story:
    return "info", "stage reached", {
        "iteration": fact.iteration, "stage": fact.stage, "name": fact.name, "ms": _ms(fact.seconds),
    }  # fmt: skip


def _iteration_ended(fact: m.IterationEnded) -> Story:
    return "info", "iteration ended", {
        "iteration": fact.iteration, "reason": fact.reason, "s": round(fact.seconds, 1),
    }  # fmt: skip


def _problems(fact: m.ProblemsReported) -> Story:
    if not fact.problems:
        return "info", "problems resolved", {"source": fact.source}
    return "warning", "problems reported", {
        "source": fact.source, "problems": [str(problem) for problem in fact.problems],
    }  # fmt: skip


STORIES: Mapping[type[msgspec.Struct], Callable[[Any], Story]] = {
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
    m.IterationEnded: _iteration_ended,
    m.ProblemsReported: _problems,
}
