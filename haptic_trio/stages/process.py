"""State that the process owns and lends to each iteration."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import msgspec

from haptic_trio.channels import Channels, Facts, Latest
from haptic_trio.config.load import LoadedConfig
from haptic_trio.config.model import InstancesConfig, LeaderElection
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.deployment.pods import PodEndpoints
from haptic_trio.deployment.taken_ports import TakenPorts
from haptic_trio.fleet.owner import FleetOwner
from haptic_trio.fleet.providers.observed_pods import ObservedPods
from haptic_trio.heartbeat import Pulses
from haptic_trio.httpstore.entry import ContentMemory
from haptic_trio.k8s.api.cluster import ApiCluster
from haptic_trio.k8s.client import Client
from haptic_trio.k8s.resource import Resource
from haptic_trio.messages import ConfigValidated, DeploymentCompleted, LeadershipChanged
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.stages.iteration_components import Parts
from haptic_trio.workqueue.metrics import WorkQueueMetrics

Load: TypeAlias = Callable[[Resource, Resource | None], LoadedConfig]
"""Decodes and checks ConfigMap and Secret, or raises a `ProblemsError`. Takes CPU: run in a thread."""


class ConfigSource(msgspec.Struct, frozen=True):
    """Where the configuration is in the cluster."""

    namespace: str
    config_map: str
    secret: str


STAGES = (
    ("load_config", "waits for a valid ConfigMap"),
    ("components", "compiles the templates"),
    ("watch_resources", "waits for the first lists"),
    ("watch_config", "waits for the watch of the ConfigMap"),
    ("reconcile", "starts"),
)
"""The startup stages, and what each does until it is ready."""


@dataclass(kw_only=True)
class IterationState:
    """One iteration as it is now: what health and console show of it."""

    number: int
    opened: float
    """Clock time."""
    stage: int = 0
    """The last startup stage that is ready, 0 to 5."""
    loaded: LoadedConfig | None = None
    pulses: Pulses = field(default_factory=Pulses)
    channels: Channels | None = None
    parts: Parts | None = None
    """Once stage 2 is ready."""
    validated: Latest[ConfigValidated] | None = None
    completed: Latest[DeploymentCompleted] | None = None
    leadership: Latest[LeadershipChanged] | None = None

    unlisted: set[str] = field(default_factory=set)
    """Stores whose first list stage 3 waits for."""

    @property
    def is_ready(self) -> bool:
        """Whether all stages are up and a valid configuration was made, and, by the leader, deployed somewhere."""
        return not self.missing

    @property
    def missing(self) -> tuple[str, ...]:
        """What is not there yet, in words for people; the first of it is what the rest waits for."""
        if self.stage < len(STAGES):
            name, waits = STAGES[self.stage]
            awaited = f": {', '.join(sorted(self.unlisted))}" if self.stage == 2 and self.unlisted else ""
            return (f"stage {self.stage + 1} ({name}) {waits}{awaited}",)
        if self.validated is None or self.validated.value is None:
            refused = self.channels.refused.value if self.channels is not None else None
            why = f"; the newest was refused in phase {refused.phase}" if refused is not None else ""
            return (f"no valid configuration was made yet{why}",)
        leadership = self.leadership.value if self.leadership is not None else None
        completed = self.completed.value if self.completed is not None else None
        if leadership is None or not leadership.is_leader or (completed is not None and completed.results):
            return ()
        if completed is not None and completed.failed:
            return (f"no HAProxy instance has taken the configuration; failed: {', '.join(completed.failed[:5])}",)
        return ("no HAProxy instance has the configuration yet",)


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """How the leader tells the cluster what it does."""

    server: ApiCluster
    instance: str
    """Identity of this replica."""
    service: tuple[str, str] | None = None
    """Namespace and name of the Service before HAProxy, whose addresses Ingresses get."""
    addresses: tuple[str, ...] = ()
    """Those addresses, where no Service has them."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """The owner of ports, cluster client, instances and leadership; outlives every iteration."""

    client: Client
    source: ConfigSource
    load: Load
    haproxy: Path
    """The binary that phase 2 asks."""
    scratch: Path
    """A private directory of this process for short-lived files, which may hold keys."""
    instances: Latest[tuple[Endpoint, ...]]
    leadership: Latest[LeadershipChanged]
    facts: Facts
    quarantine: Quarantine = field(default_factory=Quarantine)
    """What stands in for broken objects: the last good outputs outlive an iteration."""
    contents: ContentMemory = field(default_factory=ContentMemory)
    """What templates fetch, as it was last accepted, outlives an iteration, too."""
    taken_ports: TakenPorts = field(default_factory=TakenPorts)
    """Addresses that HAProxy could not listen on: no other configuration frees them."""
    queue_metrics: WorkQueueMetrics | None = None
    election: Latest[LeaderElection] = field(default_factory=Latest)
    """What the newest iteration that has come up says of the lease."""
    wished: Latest[InstancesConfig] = field(default_factory=Latest)
    """What the newest iteration that has come up says of the controller's own instances."""
    newest: Latest[ConfigValidated] = field(default_factory=Latest)
    """The newest valid configuration, of whatever iteration: what a new instance starts with."""
    fleet: FleetOwner | None = None
    """Who owns the instances; None where they are somebody else's."""
    observed: ObservedPods | None = None
    """The pods, where the configuration names no PodTemplate to make them from."""
    aim_fleet: Callable[[LoadedConfig], None] | None = None
    """Where the instances are pods: told by each iteration that comes up which ones it means."""
    pods: PodEndpoints | None = None
    """Where the instances are pods: who finds them, aimed by each iteration that comes up."""
    telling: Telling | None = None
    """None: there is nobody to tell."""
    tunes_gc: bool = False
    """Keep the cycle collector of this Python away from what lasts as long as an iteration; see `stages/garbage`."""
    follow_log_level: bool = False
    """Log as `logging.level` says; False where the command line has decided."""
    running: Latest[IterationState | None] = field(default_factory=Latest)
    """The iteration that runs now; None between two."""
