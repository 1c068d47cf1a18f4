"""Record of what stage `components` builds and the later stages use."""

from dataclasses import dataclass

from haptic_trio.config.model import Config
from haptic_trio.heartbeat import Pulses
from haptic_trio.httpstore.store import HttpStore
from haptic_trio.k8s.store import Stores
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.review.dry_run import DryRuns


@dataclass(frozen=True, kw_only=True)
class IterationComponents:
    """The components of one iteration that are not tasks."""

    config: Config
    stores: Stores
    contents: HttpStore
    pipeline: Pipeline
    dry_runs: DryRuns
    pulses: Pulses
