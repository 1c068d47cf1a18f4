"""HAProxy pods as a fleet: created from a PodTemplate, or only observed."""

from dataclasses import dataclass

import trio

from haptic_trio.channels import Latest
from haptic_trio.config.load import LoadedConfig
from haptic_trio.errors import Problem
from haptic_trio.fleet.desired_state import DesiredGroup
from haptic_trio.fleet.model import ReconcileEvent
from haptic_trio.fleet.owner import FleetOwner
from haptic_trio.fleet.providers.observed_pods import ObservedPods
from haptic_trio.fleet.providers.pod_objects import group_of
from haptic_trio.fleet.providers.pods import PodProvider, PodStore
from haptic_trio.k8s.api.cluster import ApiCluster
from haptic_trio.messages import ProblemsReported
from haptic_trio.stages.process import Process


@dataclass(frozen=True, kw_only=True)
class PodFleet:
    """Provider, owner and observer of the HAProxy pods of a controller."""

    provider: PodProvider
    owner: FleetOwner
    observed: ObservedPods

    def aim(self, loaded: LoadedConfig) -> None:
        """Create the pods from the PodTemplate of *loaded*; without a template, only observe the selected pods."""
        template, labels = loaded.config.instances.pod_template, loaded.config.pod_selector.match_labels
        self.provider.aim(template, labels)
        self.observed.aim({} if template else labels)

    async def run(self) -> None:
        """Observe the pods, and reconcile them while this replica leads, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.provider.run)
            nursery.start_soon(self.observed.run)
            await self.owner.run()


def make_pod_fleet(process: Process, server: ApiCluster) -> PodFleet:
    """Return the fleet of pods in the namespace of the controller; the name of its ConfigMap prefixes pod names."""
    source, basis = process.source, Latest[str]()
    key = group_of(source.config_map)

    def report(about: str, problems: tuple[Problem, ...]) -> None:
        process.events.record(ProblemsReported(source=about, problems=problems))

    def notice(event: ReconcileEvent) -> None:
        owner.notice(event)

    provider = PodProvider(server, source.namespace, key, basis=basis, notice=notice, report=report)
    owner = FleetOwner(
        provider,
        PodStore(provider),
        DesiredGroup(key=key, default_size=1, needs_template=True),
        leadership=process.leadership,
        config=process.fleet.desired,
        basis=basis,
        newest=process.retained.newest_valid,
        events=process.events,
        metrics=process.queue_metrics,
    )
    return PodFleet(provider=provider, owner=owner, observed=ObservedPods(server, source.namespace))
