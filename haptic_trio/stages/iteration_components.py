"""Components of an iteration that are not tasks: built by stage `components`, or for a candidate."""

from dataclasses import dataclass

from haptic_trio.config.model import Config
from haptic_trio.dataplane.local.check import CheckDirectory
from haptic_trio.heartbeat import Heartbeats
from haptic_trio.httpstore.entry import ContentMemory
from haptic_trio.httpstore.store import HttpStore
from haptic_trio.k8s.shared_watches import WatchSession
from haptic_trio.k8s.store import Stores
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.review.dry_run import DryRuns


@dataclass(frozen=True, kw_only=True)
class IterationComponents:
    """The components of one iteration that are not tasks. The owner closes them."""

    config: Config
    watches: WatchSession
    stores: Stores
    contents: HttpStore
    memory: ContentMemory
    quarantine: Quarantine
    pipeline: Pipeline
    dry_runs: DryRuns
    heartbeats: Heartbeats
    directory: CheckDirectory
    """Files of the last `haproxy -c`."""

    async def aclose(self) -> None:
        """End the watches and remove the files, also in a cancelled task."""
        self.watches.close()
        await self.directory.aclose()
