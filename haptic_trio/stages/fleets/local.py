"""Local HAProxy instances as a fleet: connects owner, provider and store with the process."""

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import trio

from haptic_trio.channels import Latest
from haptic_trio.dataplane.binary import list_keywords, probe_version
from haptic_trio.dataplane.local.check import PRELUDE
from haptic_trio.dataplane.local.supervisor import OnExit
from haptic_trio.fleet.desired_state import DesiredGroup
from haptic_trio.fleet.model import GroupKey
from haptic_trio.fleet.owner import FleetOwner
from haptic_trio.fleet.providers.local import LocalProvider, hash_instance
from haptic_trio.fleet.store import FileStore
from haptic_trio.haproxy.model import Generation
from haptic_trio.messages import LeadershipChanged
from haptic_trio.stages.process import Process

LOCAL = GroupKey("local")
BINARY_INTERVAL = 2.0
"""Seconds between checks for a changed HAProxy binary."""


@dataclass(frozen=True, kw_only=True)
class LocalFleet:
    """Provider and owner of the HAProxy processes on this machine."""

    provider: LocalProvider
    owner: FleetOwner
    basis: Latest[str]
    binary: Path

    async def run(self) -> None:
        """Reconcile the instances until cancelled. The provider must run meanwhile, and end later."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch_binary, self.binary, self.basis)
            await self.owner.run()


def make_local_fleet(process: Process, state: Path, *, size: int, on_exit: OnExit) -> LocalFleet:
    """Return the fleet with the state directory *state*; *size* applies unless the configuration sets a size.

    The process that holds the state directory always owns its instances,
    independently of the leadership for deployments.
    """
    leadership, basis, newest = Latest[LeadershipChanged](), Latest[str](), process.retained.newest_valid
    leadership.put(LeadershipChanged(is_leader=True, identity=str(state), transitions=1))

    def find_newest() -> Generation | None:
        return newest.value.generation if newest.value is not None else None

    provider = LocalProvider(
        state,
        process.haproxy,
        find_newest=find_newest,
        report_ports=process.retained.taken_ports.report,
        endpoints=process.endpoints,
        unmarked=LOCAL,
        on_exit=on_exit,
    )
    owner = FleetOwner(
        provider,
        FileStore(state / "fleet"),
        DesiredGroup(key=LOCAL, default_size=size),
        leadership=leadership,
        config=process.fleet.desired,
        basis=basis,
        newest=newest,
        events=process.events,
        new_id=provider.make_id,
        size_override_path=state / "fleet-size.json",
        metrics=process.queue_metrics,
    )
    return LocalFleet(provider=provider, owner=owner, basis=basis, binary=process.haproxy)


async def watch_binary(binary: Path, basis: Latest[str], *, interval: float = BINARY_INTERVAL) -> NoReturn:
    """Put the hash of *binary* and its prelude into *basis* whenever the binary on disk changes, until cancelled."""
    while True:
        try:
            found = await trio.to_thread.run_sync(hash_instance, binary, PRELUDE)
        except OSError:
            # The binary is being replaced.
            found = basis.value or ""
        if found != basis.value and found:
            if basis.value:
                # Both functions cache by path.
                probe_version.cache_clear()
                list_keywords.cache_clear()
            basis.put(found)
        await trio.sleep(interval)
