"""Publishes the running configuration and each valid generation to the tasks of the process."""

from typing import NoReturn

from haptic_trio.channels import Latest
from haptic_trio.config.load import LoadedConfig
from haptic_trio.config.model import DataplaneKind
from haptic_trio.dataplane.dataplaneapi.client import Credentials
from haptic_trio.deployment.pods import PodTarget
from haptic_trio.messages import ConfigValidated
from haptic_trio.stages.process import Process


def publish_config(process: Process) -> None:
    """Have the process take part in the election, find pods and own instances as it is configured.

    Before that a replica does not reach for the lease: as long as it has
    nothing to deploy another one does better.
    """
    state = process.running.value
    if state is None or state.loaded is None:
        return
    wish = state.loaded.config.controller.leader_election
    if process.fleet.pods is not None:
        process.fleet.pods.aim(pod_target_of(state.loaded))
    if process.fleet.aim is not None:
        process.fleet.aim(state.loaded)
    if wish != process.election.value:
        process.election.put(wish)
    instances = state.loaded.config.instances
    if instances != process.fleet.desired.value:
        process.fleet.desired.put(instances)


async def publish_valid(process: Process, validated: Latest[ConfigValidated]) -> NoReturn:
    """Tell the process of each valid configuration of this iteration, until cancelled."""
    seen = 0
    while True:
        seen, message = await validated.wait_newer(seen)
        process.retained.newest_valid.put(message)


def pod_target_of(loaded: LoadedConfig) -> PodTarget:
    """Return which pods *loaded* means, and what answers in them; agents if it says nothing."""
    dataplane, credentials = loaded.config.dataplane, loaded.credentials
    is_api = dataplane.kind is DataplaneKind.DATAPLANEAPI
    return PodTarget(
        labels=loaded.config.pod_selector.match_labels,
        kind=DataplaneKind.DATAPLANEAPI if is_api else DataplaneKind.AGENT,
        port=dataplane.port,
        credentials=Credentials(username=credentials.dataplane_username, password=credentials.dataplane_password)
        if is_api and credentials is not None
        else None,
    )
