"""State of the process that every iteration uses."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from haptic_trio.channels import Channels, ConfigSeen, EventBuffer, Latest
from haptic_trio.config.load import ConfigSource, Load, LoadedConfig
from haptic_trio.config.model import InstancesConfig, LeaderElection
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.deployment.pods import PodEndpoints
from haptic_trio.deployment.reload_pacing import ReloadPacing
from haptic_trio.deployment.taken_ports import TakenPorts
from haptic_trio.deployment.verification import Verification
from haptic_trio.fleet.owner import FleetOwner
from haptic_trio.fleet.providers.observed_pods import ObservedPods
from haptic_trio.heartbeat import Heartbeats
from haptic_trio.httpstore.entry import ContentMemory
from haptic_trio.k8s.api.cluster import ApiCluster
from haptic_trio.k8s.client import Client, Listing
from haptic_trio.k8s.resource import Places, nowhere
from haptic_trio.messages import ConfigInvalid, ConfigValidated, DeploymentCompleted, LeadershipChanged
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.stages.gc_tuning import Collections
from haptic_trio.stages.iteration_components import IterationComponents
from haptic_trio.workqueue.metrics import WorkQueueMetrics

STAGES = (
    ("load_config", "waits for a valid ConfigMap"),
    ("components", "compiles the templates"),
    ("watch_resources", "waits for the first lists"),
    ("watch_config", "waits for the watch of the ConfigMap"),
    ("reconcile", "starts"),
)
"""The startup stages, each with its activity until it is ready."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A configuration that passed every check with the present objects. The owner closes it."""

    loaded: LoadedConfig
    components: IterationComponents
    valid: ConfigValidated
    report: Callable[[], None]
    """Reports what was found while it was checked. Called by the iteration that runs it, so that reports about the
    iteration before it come first."""


@dataclass(kw_only=True)
class IterationState:
    """Present state of one iteration, for health checks and the console."""

    number: int
    opened: float
    """Clock time."""
    stage: int = 0
    """The last startup stage that is ready, 0 to 5."""
    loaded: LoadedConfig | None = None
    heartbeats: Heartbeats = field(default_factory=Heartbeats)
    channels: Channels | None = None
    components: IterationComponents | None = None
    """Set when stage `components` is ready."""
    owned: IterationComponents | None = None
    """The components to be closed at the end."""
    candidate: Candidate | None = None
    """The configuration that ended this iteration, for the next one."""
    validated: Latest[ConfigValidated] | None = None
    completed: Latest[DeploymentCompleted] | None = None
    leadership: Latest[LeadershipChanged] | None = None

    listing: Callable[[], Listing] | None = None
    """Amount that the cluster has listed so far."""
    pending_lists: set[str] = field(default_factory=set)
    """Stores whose first list stage `watch_resources` waits for."""

    def own(self, components: IterationComponents) -> None:
        """Let the end of the iteration close *components*."""
        self.owned = components

    @property
    def is_ready(self) -> bool:
        """Whether all stages are up and a valid configuration was made, and, by the leader, deployed somewhere."""
        return not self.missing

    @property
    def missing(self) -> tuple[str, ...]:
        """The first reason why the iteration is not ready, as text; empty if it is ready."""
        if self.stage < len(STAGES):
            name, waits = STAGES[self.stage]
            awaited = f": {', '.join(sorted(self.pending_lists))}" if self.stage == 2 and self.pending_lists else ""
            return (f"stage `{name}` {waits}{awaited}{self._so_far}",)
        if self.validated is None or self.validated.value is None:
            rejected = self.channels.rejected.value if self.channels is not None else None
            why = f"; the newest was rejected in phase {rejected.phase}" if rejected is not None else ""
            return (f"no valid configuration was made yet{why}{self._so_far}",)
        leadership = self.leadership.value if self.leadership is not None else None
        completed = self.completed.value if self.completed is not None else None
        if leadership is None or not leadership.is_leader or (completed is not None and completed.results):
            return ()
        if completed is not None and completed.failed:
            return (f"the deployment of the configuration failed on: {', '.join(completed.failed[:5])}",)
        return ("no HAProxy instance has the configuration yet",)

    @property
    def progress(self) -> str:
        """Progress of the lists or of the present render, as text; empty while there is neither."""
        if self.stage == 2 and self.pending_lists and self.listing is not None:
            return str(self.listing())
        return self.components.pipeline.progress if self.components is not None and self.stage == len(STAGES) else ""

    @property
    def _so_far(self) -> str:
        return f"; {progress}" if (progress := self.progress) else ""


class StatusAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Cluster access of the leader for status, Kubernetes Events and Services."""

    server: ApiCluster
    instance: str
    """Identity of this replica."""
    service: tuple[str, str] | None = None
    """Namespace and name of the Service in front of HAProxy; its addresses are written to Ingresses."""
    addresses: tuple[str, ...] = ()
    """Addresses for Ingresses if there is no Service."""
    nodes: str = ""
    """One of `ADDRESS_KINDS`: those addresses of the nodes that run HAProxy pods are written; empty: none of nodes."""


@dataclass(kw_only=True)
class RetainedState:
    """State that outlives an iteration."""

    quarantine: Quarantine = field(default_factory=Quarantine)
    """Rejected objects and the last good outputs of all objects, of the newest iteration."""
    contents: ContentMemory = field(default_factory=ContentMemory)
    """Fetched contents that were accepted last."""
    taken_ports: TakenPorts = field(default_factory=TakenPorts)
    """Addresses that HAProxy could not bind; another configuration does not free them."""
    verification: Verification = field(default_factory=Verification)
    """When endpoints were verified: a changed configuration does not verify them again."""
    reload_pacing: ReloadPacing = field(default_factory=ReloadPacing)
    """Reloads of namespaces, counted on when the configuration of haptic-trio changes."""
    rejected: set[str] = field(default_factory=set)
    """Versions of configurations that could not be used."""
    newest_valid: Latest[ConfigValidated] = field(default_factory=Latest)
    """The newest valid configuration of any iteration; a new instance starts with it."""


@dataclass(frozen=True, kw_only=True)
class ProcessFleet:
    """Instances that this process owns or observes. All None where others own them and no pods are watched."""

    desired: Latest[InstancesConfig] = field(default_factory=Latest)
    """Section `instances` of the newest configuration that has started."""
    owner: FleetOwner | None = None
    """Owner of the instances."""
    observed: ObservedPods | None = None
    """Pods that others create: the configuration has no PodTemplate."""
    aim: Callable[[LoadedConfig], None] | None = None
    """Called with the configuration of each iteration that starts, where instances are pods."""
    pods: PodEndpoints | None = None
    """Discovery of endpoints in pods; each iteration sets its selector."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """Owner of ports, cluster client, endpoints and leadership; outlives every iteration."""

    client: Client
    source: ConfigSource
    load: Load
    haproxy: Path
    """The binary for `haproxy -c`."""
    scratch: Path
    """Private directory of this process for temporary files, which may contain keys."""
    endpoints: Latest[tuple[Endpoint, ...]]
    leadership: Latest[LeadershipChanged]
    events: EventBuffer
    places: Places = nowhere
    """Places of objects in manifest files."""
    retained: RetainedState = field(default_factory=RetainedState)
    fleet: ProcessFleet = field(default_factory=ProcessFleet)
    queue_metrics: WorkQueueMetrics | None = None
    election: Latest[LeaderElection] = field(default_factory=Latest)
    """Settings of the Lease from the newest configuration that has started."""
    status_access: StatusAccess | None = None
    """None: there is no API server to write to."""
    collections: Collections = field(default_factory=lambda: Collections(wanted=False))
    """When garbage is collected."""
    follow_log_level: bool = False
    """Set the log level to `logging.level`; False where the command line has set it."""
    candidates: Latest[ConfigSeen] = field(default_factory=Latest)
    """The present ConfigMap and Secret; no value before the first list of both."""
    invalid: Latest[ConfigInvalid] = field(default_factory=Latest)
    """The last rejection of a ConfigMap or Secret."""
    running: Latest[IterationState | None] = field(default_factory=Latest)
    """The running iteration; None between two iterations."""
