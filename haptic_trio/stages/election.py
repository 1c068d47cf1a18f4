"""Leader election: keeps the leadership of the process equal to the Lease."""

import os
import secrets
import socket
from typing import NoReturn

import trio

from haptic_trio.channels import EventBuffer, Latest
from haptic_trio.config.model import LeaderElection
from haptic_trio.errors import Problem
from haptic_trio.k8s.api.lease import LeaseElector, LeaseServer, Standing
from haptic_trio.k8s.lease_election import LeaseSettings
from haptic_trio.logs import get_logger
from haptic_trio.messages import LeadershipChanged, ProblemsReported


def make_identity() -> str:
    """Return an identity for this run of the process: the host name (in a pod, its name) and a random suffix."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


def lead_alone(leadership: Latest[LeadershipChanged], events: EventBuffer) -> None:
    """Make this process the leader without an election, for setups with a single replica."""
    message = LeadershipChanged(is_leader=True, identity=f"local-{os.getpid()}", transitions=1)
    leadership.put(message)
    events.record(message)


async def run_leadership(
    server: LeaseServer,
    namespace: str,
    settings: Latest[LeaderElection],
    leadership: Latest[LeadershipChanged],
    *,
    identity: str,
    events: EventBuffer,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> NoReturn:
    """Elect a leader with the Lease in *namespace* until cancelled, and put each change into *leadership*.

    The newest value of *settings* applies; the election begins with the
    first. Changed durations take effect without loss of the Lease; after a
    changed name this process joins another election and lets the old Lease
    expire. started() after *leadership* has its first value: not the leader.
    The Lease is released at the end, so everything that acts as the leader
    must have ended before.
    """
    log = get_logger("leadership")
    seen_leader = ""

    def publish(standing: Standing) -> None:
        nonlocal seen_leader
        if not standing.is_leader and standing.leader not in {"", identity, seen_leader}:
            log.info("another replica leads", leader=standing.leader)
        seen_leader = standing.leader
        _publish(leadership, events, is_leader=standing.is_leader, identity=identity, transitions=standing.transitions)

    def report(source: str, problems: tuple[Problem, ...]) -> None:
        events.record(ProblemsReported(source=source, problems=problems))

    leadership.put(LeadershipChanged(is_leader=False, identity=identity, transitions=0))
    task_status.started()
    seen, wanted = await settings.wait_newer(0)
    while True:
        if not wanted.enabled:
            _publish(leadership, events, is_leader=True, identity=identity, transitions=1)
            seen, wanted = await settings.wait_newer(seen)
            continue
        _publish(leadership, events, is_leader=False, identity=identity, transitions=0)
        elector = LeaseElector(
            server, namespace, wanted.lease_name, identity=identity, settings=_lease_settings(wanted), report=report
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(elector.run, publish)
            before = wanted
            while (wanted.enabled, wanted.lease_name) == (True, before.lease_name):
                elector.change_settings(_lease_settings(wanted))
                seen, wanted = await settings.wait_newer(seen)
            elector.abandon()
            nursery.cancel_scope.cancel(reason="another election is configured")


def _publish(
    leadership: Latest[LeadershipChanged], events: EventBuffer, *, is_leader: bool, identity: str, transitions: int
) -> None:
    if leadership.value is None or leadership.value.is_leader != is_leader:
        term = (leadership.value.term if leadership.value is not None else 0) + is_leader
        message = LeadershipChanged(is_leader=is_leader, identity=identity, transitions=transitions, term=term)
        leadership.put(message)
        events.record(message)


def _lease_settings(wanted: LeaderElection) -> LeaseSettings:
    return LeaseSettings(
        duration=float(wanted.lease_duration),
        renew_deadline=float(wanted.renew_deadline),
        retry_period=float(wanted.retry_period),
    )
