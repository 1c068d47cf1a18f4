"""Leader election as a task of the process."""

import os
import secrets
import socket
from typing import NoReturn

import trio

from haptic_trio.channels import Facts, Latest
from haptic_trio.config.model import LeaderElection
from haptic_trio.errors import Problem
from haptic_trio.k8s.api.lease import LeaseElector, LeaseServer, Standing
from haptic_trio.k8s.lease_election import LeaseSettings
from haptic_trio.logs import get_logger
from haptic_trio.messages import LeadershipChanged, ProblemsReported


def make_identity() -> str:
    """Return a name for this run of this process: the pod's, and something that no other run has."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


def lead_alone(leadership: Latest[LeadershipChanged], facts: Facts) -> None:
    """Lead from now on: there is nobody to share the lead with."""
    message = LeadershipChanged(is_leader=True, identity=f"local-{os.getpid()}", transitions=1)
    leadership.put(message)
    facts.tell(message)


async def run_leadership(
    server: LeaseServer,
    namespace: str,
    wishes: Latest[LeaderElection],
    leadership: Latest[LeadershipChanged],
    *,
    identity: str,
    facts: Facts,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> NoReturn:
    """Keep *leadership* as the Lease in *namespace* says, as the newest of *wishes* wants it, until cancelled.

    started() when it is known that nobody leads here yet. Other durations
    take effect without losing the lease; another name is another election,
    and the old lease is left to expire. At the end the lease is given back:
    whatever acts as the leader must have ended before.
    """
    log = get_logger("leadership")
    seen_leader = ""

    def publish(standing: Standing) -> None:
        nonlocal seen_leader
        if not standing.is_leader and standing.leader not in {"", identity, seen_leader}:
            log.info("another replica leads", leader=standing.leader)
        seen_leader = standing.leader
        _put(leadership, facts, is_leader=standing.is_leader, identity=identity, transitions=standing.transitions)

    def report(source: str, problems: tuple[Problem, ...]) -> None:
        facts.tell(ProblemsReported(source=source, problems=problems))

    leadership.put(LeadershipChanged(is_leader=False, identity=identity, transitions=0))
    task_status.started()
    seen, wish = await wishes.wait_newer(0)
    while True:
        if not wish.enabled:
            _put(leadership, facts, is_leader=True, identity=identity, transitions=1)
            seen, wish = await wishes.wait_newer(seen)
            continue
        _put(leadership, facts, is_leader=False, identity=identity, transitions=0)
        elector = LeaseElector(
            server, namespace, wish.lease_name, identity=identity, settings=_settings_of(wish), report=report
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(elector.run, publish)
            former = wish
            while (wish.enabled, wish.lease_name) == (True, former.lease_name):
                elector.change_settings(_settings_of(wish))
                seen, wish = await wishes.wait_newer(seen)
            elector.abandon()
            nursery.cancel_scope.cancel(reason="another election is configured")


def _put(
    leadership: Latest[LeadershipChanged], facts: Facts, *, is_leader: bool, identity: str, transitions: int
) -> None:
    if leadership.value is None or leadership.value.is_leader != is_leader:
        message = LeadershipChanged(is_leader=is_leader, identity=identity, transitions=transitions)
        leadership.put(message)
        facts.tell(message)


def _settings_of(wish: LeaderElection) -> LeaseSettings:
    return LeaseSettings(
        duration=float(wish.lease_duration),
        renew_deadline=float(wish.renew_deadline),
        retry_period=float(wish.retry_period),
    )
