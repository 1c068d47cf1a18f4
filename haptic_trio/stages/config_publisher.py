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
    """Pass the settings of the running iteration to leader election, pod discovery and the owner of the fleet.

    Before the first call the process does not take part in the election: a
    replica that has nothing to deploy should not hold the Lease.
    """
    state = process.running.value
    if state is None or state.loaded is None:
        return
    election = state.loaded.config.controller.leader_election
    if process.fleet.pods is not None:
        process.fleet.pods.aim(pod_target_of(state.loaded))
    if process.fleet.aim is not None:
        process.fleet.aim(state.loaded)
    if election != process.election.value:
        process.election.put(election)
    instances = state.loaded.config.instances
    if instances != process.fleet.desired.value:
        process.fleet.desired.put(instances)


async def publish_valid(process: Process, validated: Latest[ConfigValidated]) -> NoReturn:
    """Copy each valid configuration of this iteration to the retained state of the process, until cancelled."""
    seen = 0
    while True:
        seen, message = await validated.wait_newer(seen)
        process.retained.newest_valid.put(message)


def pod_target_of(loaded: LoadedConfig) -> PodTarget:
    """Return the selector of the HAProxy pods in *loaded* and how to reach them; by default, agents."""
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
