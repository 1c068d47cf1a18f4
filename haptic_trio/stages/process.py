"""What the process owns and lends to each iteration."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import msgspec

from haptic_trio.channels import Facts, Latest
from haptic_trio.config.load import LoadedConfig
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.k8s.client import Client
from haptic_trio.k8s.resource import Resource
from haptic_trio.messages import ConfigValidated, LeadershipChanged
from haptic_trio.pulse import Pulses
from haptic_trio.workqueue.metrics import WorkQueueMetrics

Load: TypeAlias = Callable[[Resource, Resource | None], LoadedConfig]
"""Decodes and checks ConfigMap and Secret, or raises a `ProblemsError`. Takes CPU: run in a thread."""


class ConfigSource(msgspec.Struct, frozen=True):
    """Where the configuration is in the cluster."""

    namespace: str
    config_map: str
    secret: str


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
    validated: Latest[ConfigValidated] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether all five stages are up and a valid configuration was made."""
        return self.stage == 5 and self.validated is not None and self.validated.value is not None


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
    queue_metrics: WorkQueueMetrics | None = None
    follow_log_level: bool = False
    """Log as `logging.level` says; False where the command line has decided."""
    running: Latest[IterationState | None] = field(default_factory=Latest)
    """The iteration that runs now; None between two."""
