"""Messages that components send to each other; each describes an event, in the past tense; `channels` has the topology.

They are immutable. `seen`, `scheduled` and `started` (of the reconciliation) are clock times of Trio."""

import math
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from haptic_trio.config.load import LoadedConfig
from haptic_trio.dataplane.endpoint import Endpoint, SyncResult
from haptic_trio.errors import Problem
from haptic_trio.haproxy.model import Generation
from haptic_trio.heartbeat import ProgressMade as ProgressMade
from haptic_trio.httpstore.events import HttpContentAccepted as HttpContentAccepted
from haptic_trio.httpstore.events import HttpContentChanged as HttpContentChanged
from haptic_trio.httpstore.events import HttpContentRejected as HttpContentRejected
from haptic_trio.httpstore.events import HttpFetched as HttpFetched
from haptic_trio.k8s.reflector import IndexSynchronized as IndexSynchronized
from haptic_trio.k8s.reflector import ResourceChanged as ResourceChanged
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.templating.values.subjects import ObjectWarning


class Reason(StrEnum):
    """Why a reconciliation was triggered."""

    SYNCHRONIZED = "index synchronized"
    CHANGED = "resources changed"
    DRIFT = "drift suspected"
    REJECTED = "rejected by HAProxy"
    """Render again without the output that HAProxy rejected."""
    WAITED = "changes have waited"


class DeploymentReason(StrEnum):
    """Why a deployment was scheduled."""

    PREPARED = "prepared"
    VALIDATED = "validated"
    HELD_BACK = "held back"
    """Endpoints hold back a change that reloads, and may reload now."""
    ROLLBACK = "rollback"
    """`haproxy -c` rejected a change that was applied at runtime."""
    DRIFT = "drift"
    ENDPOINTS = "endpoints"
    """New endpoints need a configuration."""

    @property
    def keeps_interval(self) -> bool:
        """Whether a reload counts for the minimum interval: no traffic uses a new endpoint yet."""
        return self is not DeploymentReason.ENDPOINTS


class Outcome(StrEnum):
    """Outcome of a reconciliation."""

    DEPLOYED = "deployed"
    VALIDATED = "validated"
    """On a follower: valid; the leader deploys it."""
    UNCHANGED = "unchanged"
    """Every endpoint already ran this generation."""
    INCOMPLETE = "incomplete"
    """At least one endpoint did not take it."""
    SUPERSEDED = "superseded"
    """A newer reconciliation took its place."""


class Phases(msgspec.Struct, frozen=True, kw_only=True):
    """Duration of each phase of a cycle, in seconds."""

    render: float = 0.0
    parse: float = 0.0
    check: float = 0.0


class DriftSuspected(msgspec.Struct, frozen=True, kw_only=True):
    """There was no deployment for *idle* seconds, a drift prevention interval; endpoints should be compared again."""

    idle: float


class ReconcileTriggered(msgspec.Struct, frozen=True, kw_only=True):
    """A reconciliation should run now; *objects* are the first changed ones."""

    correlation: str
    reason: Reason
    changes: int
    """Number of changes that it covers; 0 if it was triggered by something else."""
    seen: float = 0.0
    """Clock time of the first of these changes, or, without changes, of the trigger."""
    objects: tuple[ResourceRef, ...] = ()


class ReconcileStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A reconciliation runs."""

    correlation: str
    reason: Reason
    changes: int


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """The output of an object was rejected; its last good version (or nothing) is used until it is valid again."""

    correlation: str
    ref: ResourceRef
    version: str
    problem: Problem
    has_fallback: bool
    quarantined: int


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """A quarantined object is valid again, or was deleted."""

    correlation: str
    ref: ResourceRef
    quarantined: int


class WarningRaised(msgspec.Struct, frozen=True, kw_only=True):
    """An object is served, but not as its owner may expect."""

    correlation: str
    warning: ObjectWarning
    place: str = ""  # file and line of the object, if it is in a manifest file


class WarningResolved(msgspec.Struct, frozen=True, kw_only=True):
    """A warning about an object no longer applies."""

    correlation: str
    warning: ObjectWarning


class ReportsOmitted(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of changes of one cycle that no message of their own reports, because there are too many."""

    correlation: str
    quarantined: int = 0
    """Objects that were quarantined, or whose problem changed."""
    released: int = 0
    warnings: int = 0  # raised ones
    resolved: int = 0


class ConfigRendered(msgspec.Struct, frozen=True, kw_only=True):
    """The templates produced a configuration, not yet validated."""

    correlation: str
    bytes: int
    files: int
    seconds: float
    fragments_rendered: int = 0
    fragments_reused: int = 0
    """Fragments whose lookups gave the same answers as in the previous render."""
    waiting: Mapping[str, int] = {}
    """Numbers of changed objects that wait for the next cycles, by namespace; see `k8s.intake`."""


class RenderDiffered(msgspec.Struct, frozen=True, kw_only=True):
    """A complete render differed from the incremental one: a bug in haptic-trio."""

    correlation: str
    outputs: tuple[str, ...]


class ConfigPrepared(msgspec.Struct, frozen=True, kw_only=True):
    """The parser accepted a configuration: its runtime changes may be deployed while `haproxy -c` checks all of it."""

    correlation: str
    reason: Reason
    generation: Generation
    phases: Phases
    started: float = 0.0


class ConfigValidated(msgspec.Struct, frozen=True, kw_only=True):
    """The parser and `haproxy -c` accepted a configuration; it may be deployed."""

    correlation: str
    reason: Reason
    generation: Generation
    phases: Phases
    warnings: tuple[Problem, ...] = ()
    started: float = 0.0
    is_deployed: bool = False  # all endpoints ran it before the reconciliation, which has changed nothing


class ValidationFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A rendered configuration was rejected in *phase*, `render`, `parse` or `check`; the deployed one stays."""

    correlation: str
    reason: Reason
    phase: str
    problems: tuple[Problem, ...]
    is_verdict: bool = True
    """False: `haproxy -c` gave no verdict, for example because of its time limit; applied runtime changes stay."""
    keeps_data: bool = False
    """Only the structure is rejected: the last valid one with the new data is valid. Applied runtime changes stay."""


class ReconcileFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A reconciliation ended without a valid configuration."""

    correlation: str
    phase: str
    seconds: float
    phases: Phases


class ReconcileCompleted(msgspec.Struct, frozen=True, kw_only=True):
    """A reconciliation ended: deployed, validated (on a follower) or superseded."""

    correlation: str
    outcome: Outcome
    seconds: float


class EndpointsDiscovered(msgspec.Struct, frozen=True, kw_only=True):
    """All endpoints, that is, HAProxy instances that deployments go to."""

    endpoints: tuple[Endpoint, ...]


class EndpointLost(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint is gone."""

    endpoint: str


class FleetChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A group of instances that the controller owns has changed."""

    group: str
    size: int
    """Number of instances that should be ready."""
    states: Mapping[str, int]
    """Number of instances by state: `pending`, `starting`, `ready`, `draining`, `deleting`."""


class InstanceDraining(msgspec.Struct, frozen=True, kw_only=True):
    """An instance accepts no new connections and finishes its present ones within *seconds*; repeated each term."""

    instance: str
    group: str
    reason: str
    """Such as `scale-down` or `config-drift`."""
    seconds: float


class InstanceOperationFailed(msgspec.Struct, frozen=True, kw_only=True):
    """An operation on an instance that the controller owns has failed and will be retried."""

    instance: str
    group: str
    error: str
    is_repeated: bool = False
    """Whether another instance of the group failed for the same reason a short time ago."""


class DeploymentScheduled(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment should run now; *generation* may be *checked*, which `haproxy -c` accepted, with newer data."""

    correlation: str
    generation: Generation
    endpoints: tuple[Endpoint, ...]
    why: DeploymentReason
    may_reload: bool = True
    """False: endpoints apply the changes that need no reload, and hold back the others."""
    slowed: frozenset[str] = frozenset()
    """Namespaces whose changes alone reload no endpoint now."""
    checked: Generation | None = None
    scheduled: float = 0.0
    started: float = 0.0


class DeploymentStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment to these endpoints runs."""

    correlation: str
    generation: str
    endpoints: tuple[str, ...]


class InstanceDeployed(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint runs the generation, or the part of it that the result says."""

    correlation: str
    result: SyncResult


class DriftRepaired(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment found and repaired a change on an endpoint that haptic-trio did not make."""

    correlation: str
    endpoint: str
    found: Mapping[str, int]
    """Number of differences by kind, such as `server`."""
    operations: int
    """Runtime operations of the whole deployment."""
    reloaded: bool


class InstanceFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment to one endpoint failed; the endpoint runs the same configuration as before."""

    correlation: str
    endpoint: str
    error: str
    seconds: float


class DeploymentState(msgspec.Struct, frozen=True, kw_only=True):
    """State of all deployments, complete in each message; a deployment is named by the clock time of its schedule."""

    held: tuple[str, ...] = ()
    """Endpoints that hold back a change because they may not reload."""
    reloaded: float = -math.inf
    """The newest deployment that has reloaded an endpoint."""
    open: tuple[float, ...] = ()
    """Deployments that may reload and are not completed yet."""
    begun: float = -math.inf
    """The newest deployment that has started."""
    paused: tuple[tuple[str, float], ...] = ()
    """Endpoints that failed to apply what they hold back, or hold it back as slowed, each with the next attempt."""
    slowed: tuple[tuple[str, float], ...] = ()
    """Namespaces whose changes alone reload no endpoint until these times."""


class DeploymentCompleted(msgspec.Struct, frozen=True, kw_only=True):
    """Every endpoint runs the generation, failed once (perhaps by the time limit), or was superseded."""

    correlation: str
    generation: str
    results: tuple[SyncResult, ...]
    failed: tuple[str, ...]
    superseded: tuple[str, ...] = ()
    """Endpoints that got a newer deployment, or that are gone."""
    is_continued: bool = False
    """Whether the newer deployment of such an endpoint belongs to the same reconciliation."""
    seconds: float
    state: DeploymentState = DeploymentState()
    started: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether every endpoint runs the whole generation."""
        return not (self.failed or self.superseded or self.state.held)


class LeadershipChanged(msgspec.Struct, frozen=True, kw_only=True):
    """This replica became, or ceased to be, the leader."""

    is_leader: bool
    identity: str
    transitions: int
    term: int = 0
    """Number of the terms that this process has won, so that one which was lost and won again is another one."""


class ConfigChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A validated ConfigMap or Secret differs from the running one: the iteration ends."""

    loaded: LoadedConfig


class ConfigInvalid(msgspec.Struct, frozen=True, kw_only=True):
    """A changed ConfigMap or Secret was rejected (without *is_verdict*: its check is repeated); the old one stays."""

    version: str
    problems: tuple[Problem, ...]
    is_verdict: bool = True


class StageReached(msgspec.Struct, frozen=True, kw_only=True):
    """A startup stage is ready, *seconds* after the iteration opened."""

    iteration: int
    stage: int
    name: str
    seconds: float


class IterationEnded(msgspec.Struct, frozen=True, kw_only=True):
    """An iteration is closed: every task of it has finished."""

    iteration: int
    reason: str
    seconds: float


class ProblemsReported(msgspec.Struct, frozen=True, kw_only=True):
    """All problems of one source of input, such as a manifest file or a watched kind."""

    source: str
    problems: tuple[Problem, ...]
    """Empty: the problems reported before are resolved."""
