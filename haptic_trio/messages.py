"""Messages that components send to each other; each describes an event, in the past tense.

Messages are immutable and carry what their receivers need, no more. The
topology (who sends what to whom) is in `channels`.
"""

import math
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from haptic_trio.config.load import LoadedConfig
from haptic_trio.dataplane.endpoint import Endpoint, SyncResult
from haptic_trio.errors import Problem
from haptic_trio.haproxy.model import Generation
from haptic_trio.k8s.resource import ResourceRef


class Reason(StrEnum):
    """Why a reconciliation was triggered."""

    SYNCHRONIZED = "index synchronized"
    CHANGED = "resources changed"
    DRIFT = "drift suspected"
    REFUSED = "refused by HAProxy"
    """What HAProxy has refused is to be left out."""


class Outcome(StrEnum):
    """How a reconciliation ended."""

    DEPLOYED = "deployed"
    VALIDATED = "validated"
    """On a follower: valid, and the leader's to deploy."""
    UNCHANGED = "unchanged"
    """Every endpoint already ran this generation."""
    INCOMPLETE = "incomplete"
    """At least one endpoint did not take it."""
    SUPERSEDED = "superseded"
    """A newer reconciliation took its place."""


class Phases(msgspec.Struct, frozen=True, kw_only=True):
    """How long each phase of a cycle took, in seconds."""

    render: float = 0.0
    parse: float = 0.0
    check: float = 0.0


class ResourceChanged(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of one watched kind changed, and the stores have them."""

    stores: tuple[str, ...]
    refs: tuple[ResourceRef, ...]
    initial: bool = False
    """Part of the first list: does not trigger, the index synchronisation does."""


class IndexSynchronized(msgspec.Struct, frozen=True, kw_only=True):
    """The first list of every watched kind is in its store."""

    counts: dict[str, int]


class HttpFetched(msgspec.Struct, frozen=True, kw_only=True):
    """A fetch of a content that templates use has ended."""

    url: str
    """Without its query; credentials are never part of it."""
    outcome: str
    """`changed`, `unchanged` or `failed`; why it failed is told as a problem."""
    seconds: float
    bytes: int = 0
    """Of the content, where the server sent one."""


class HttpContentChanged(msgspec.Struct, frozen=True, kw_only=True):
    """Contents that templates use are other than before: pending until a configuration with them is valid."""

    urls: tuple[str, ...]


class HttpContentAccepted(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration with a fetched content is valid."""

    url: str
    digest: str
    bytes: int


class HttpContentRefused(msgspec.Struct, frozen=True, kw_only=True):
    """No configuration is valid with a fetched content; it is left out until it changes."""

    url: str
    digest: str
    problem: Problem
    has_former: bool
    """The content before it stays in use; else there is none."""


class DriftSuspected(msgspec.Struct, frozen=True, kw_only=True):
    """No deployment for a drift prevention interval: the endpoints should be compared again."""

    idle: float
    """Seconds since the last deployment."""


class ReconcileTriggered(msgspec.Struct, frozen=True, kw_only=True):
    """A reconciliation should run now."""

    correlation: str
    reason: Reason
    changes: int
    """How many changes it takes in; 0 where none caused it."""
    seen: float = 0.0
    """Clock time at which the first of these changes was seen, or, without any, at which it was triggered."""


class ReconcileStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A reconciliation runs."""

    correlation: str
    reason: Reason
    changes: int


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """An object cannot be rendered; until it changes, its last good version (or nothing) stands in for it."""

    correlation: str
    ref: ResourceRef
    version: str
    problem: Problem
    has_fallback: bool
    held: int
    """How many objects are in quarantine now."""


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """A quarantined object has changed or is gone, and is taken as it is again."""

    correlation: str
    ref: ResourceRef
    held: int


class ConfigRendered(msgspec.Struct, frozen=True, kw_only=True):
    """The templates produced a configuration, not yet validated."""

    correlation: str
    bytes: int
    files: int
    seconds: float
    fragments_rendered: int = 0
    fragments_reused: int = 0
    """Nothing that they depend on had changed since the render before."""


class RenderDiffered(msgspec.Struct, frozen=True, kw_only=True):
    """Rendering everything anew gave something else than what was put together from reused parts: a bug of ours."""

    correlation: str
    outputs: tuple[str, ...]


class ConfigPrepared(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration passed phase 1: what of it is data may be deployed while phase 2 looks at all of it."""

    correlation: str
    reason: Reason
    generation: Generation
    phases: Phases
    started: float = 0.0
    """Clock time at which its cycle started."""


class ConfigValidated(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration passed both phases and may be deployed."""

    correlation: str
    reason: Reason
    generation: Generation
    phases: Phases
    warnings: tuple[Problem, ...] = ()
    started: float = 0.0
    """Clock time at which its cycle started."""


class ValidationFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A rendered configuration was refused; what is deployed stays."""

    correlation: str
    reason: Reason
    phase: str
    """`render`, `parse` or `check`."""
    problems: tuple[Problem, ...]
    is_verdict: bool = True
    """Else HAProxy has not said what it thinks of it, such as for want of time; what is served of it stays, too."""


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
    """The HAProxy instances that can be deployed to, all of them."""

    endpoints: tuple[Endpoint, ...]


class EndpointLost(msgspec.Struct, frozen=True, kw_only=True):
    """An HAProxy instance is no longer there."""

    endpoint: str


class FleetChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A group of instances that the controller owns is other than it was."""

    group: str
    size: int
    """Instances that shall be ready."""
    states: Mapping[str, int]
    """How many there are of each state: `pending`, `starting`, `ready`, `draining`, `deleting`."""


class InstanceDraining(msgspec.Struct, frozen=True, kw_only=True):
    """An instance takes nothing new and finishes what it has; told again by each term that finds it so."""

    instance: str
    group: str
    reason: str
    """Such as `scale-down` or `config-drift`."""
    seconds: float
    """How long it may take."""


class InstanceTroubled(msgspec.Struct, frozen=True, kw_only=True):
    """Something about an instance of the controller's own has failed; it will be tried again."""

    instance: str
    group: str
    error: str


class DeploymentScheduled(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment should run now."""

    correlation: str
    generation: Generation
    endpoints: tuple[Endpoint, ...]
    why: str
    """`prepared`, `validated`, `held back`, `rollback`, `drift` or `endpoints`."""
    may_reload: bool = True
    """False: endpoints take what needs no reload, and hold back the rest."""
    scheduled: float = 0.0
    """Clock time at which it was scheduled."""
    started: float = 0.0
    """Clock time at which the reconciliation behind it started."""


class DeploymentStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment to these endpoints runs."""

    correlation: str
    generation: str
    endpoints: tuple[str, ...]


class InstanceDeployed(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint runs the generation."""

    correlation: str
    result: SyncResult


class DriftRepaired(msgspec.Struct, frozen=True, kw_only=True):
    """What others had changed on an endpoint, and a deployment found, is as it should be again."""

    correlation: str
    endpoint: str
    found: Mapping[str, int]
    """How many things differed, by kind, such as `server`."""
    operations: int
    """Runtime operations of the whole deployment."""
    reloaded: bool


class InstanceFailed(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint did not take the generation and runs what it ran before."""

    correlation: str
    endpoint: str
    error: str
    seconds: float


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How the deployments stand, all of them: who reads only the newest message has missed nothing.

    A deployment is named by the clock time at which it was scheduled.
    """

    held: tuple[str, ...] = ()
    """Endpoints that hold back a change because they may not reload."""
    reloaded: float = -math.inf
    """The newest deployment that has reloaded an endpoint."""
    open: tuple[float, ...] = ()
    """Deployments that may reload and are not completed."""
    begun: float = -math.inf
    """The newest deployment that was begun."""
    paused: tuple[tuple[str, float], ...] = ()
    """Endpoints that have failed to take what they hold back, each with the time before which it is not tried again."""


class DeploymentCompleted(msgspec.Struct, frozen=True, kw_only=True):
    """Every endpoint took the generation, failed once (perhaps by its time limit), or was superseded."""

    correlation: str
    generation: str
    results: tuple[SyncResult, ...]
    failed: tuple[str, ...]
    superseded: tuple[str, ...] = ()
    """Endpoints that a newer deployment overtook, or that are gone."""
    seconds: float
    standing: Standing = Standing()
    started: float = 0.0
    """Clock time at which the reconciliation behind it started."""


class LeadershipChanged(msgspec.Struct, frozen=True, kw_only=True):
    """This replica became, or ceased to be, the one that deploys."""

    is_leader: bool
    identity: str
    transitions: int


class ConfigChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A validated ConfigMap or Secret differs from the running one: the iteration ends."""

    loaded: LoadedConfig


class ConfigInvalid(msgspec.Struct, frozen=True, kw_only=True):
    """A changed ConfigMap or Secret was refused; the running one stays."""

    version: str
    problems: tuple[Problem, ...]


class StageReached(msgspec.Struct, frozen=True, kw_only=True):
    """A startup stage of the iteration is ready."""

    iteration: int
    stage: int
    name: str
    seconds: float
    """Since the iteration opened."""


class IterationEnded(msgspec.Struct, frozen=True, kw_only=True):
    """An iteration is closed: every task of it has finished."""

    iteration: int
    reason: str
    seconds: float


class ProblemsReported(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with an input from outside (a file of manifests, a kind that is watched), all of it."""

    source: str
    problems: tuple[Problem, ...]
    """Empty: what was reported before is solved."""
