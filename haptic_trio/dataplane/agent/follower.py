"""Follower of one agent: receives its events, probes it, and renews the endpoint after an unexpected event."""

import ssl
from typing import Final, NoReturn

import trio

from haptic_trio.backoff import Backoff
from haptic_trio.dataplane.agent.client import AgentAnswerError
from haptic_trio.dataplane.agent.endpoint import AgentLink, RemoteAgent
from haptic_trio.dataplane.agent.event_stream import follow_once
from haptic_trio.dataplane.agent.messages import AgentEvent, EventKind
from haptic_trio.dataplane.binary import OLDEST, read_version
from haptic_trio.dataplane.endpoint import EndpointError
from haptic_trio.dataplane.presence import Presence, Renewal
from haptic_trio.errors import text_of
from haptic_trio.logs import get_logger

FIRST_DELAY: Final = 0.1
LONGEST_DELAY: Final = 5.0
"""Seconds before the next attempt: doubled from the first to the longest."""

SUSPICIOUS: Final = frozenset({EventKind.STARTED, EventKind.CRASHED, EventKind.DRIFT, EventKind.RESYNC})


async def follow_agent(
    link: AgentLink, context: ssl.SSLContext, presence: Presence, renewal: Renewal, *, is_published: bool
) -> NoReturn:
    """Publish a new endpoint each time the agent may run something else than was deployed; runs until cancelled.

    That is after an unexpected event, after a lost connection and on each
    *renewal*, as soon as the agent describes a supported HAProxy. Without
    *is_published* the first answer publishes the endpoint too.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_receive_events, link, context, presence, renewal, is_published)
        await _publish_renewals(link, presence, renewal)
    raise AssertionError("the loop ends by an exception")


def is_suspicious(event: AgentEvent, known: str) -> bool:
    """Whether the agent may run another generation than *known*; empty: the generation is unknown."""
    if event.kind is EventKind.HELLO:
        return not known or event.generation != known
    return event.kind in SUSPICIOUS and not event.deployed


async def _receive_events(
    link: AgentLink, context: ssl.SSLContext, presence: Presence, renewal: Renewal, is_published: bool
) -> NoReturn:
    address = link.client.address
    log = get_logger("agents").bind(agent=address.name)
    was_away = not is_published

    def take(event: AgentEvent) -> None:
        nonlocal was_away
        if event.kind is EventKind.HELLO:
            log.info("agent connected", generation=event.generation[:12])
        elif event.kind is not EventKind.HEARTBEAT and not event.deployed:
            log.warning("agent reports", what=event.kind.value, pid=event.pid)
        link.old_workers = event.old_workers
        presence.answered()
        presence.report_rival(link.rival)
        known = link.running.id if link.running is not None else ""
        # Deployments failed while the agent was away, and their retry may be up to a minute off.
        if was_away or is_suspicious(event, known):
            renewal.request()
        was_away = False

    backoff = Backoff(base=FIRST_DELAY, limit=LONGEST_DELAY)
    while True:
        received, reason = await follow_once(address, context, take)
        if received:
            backoff.reset()
        was_away, link.old_workers = True, None
        reason = await _explain_failure(link, reason)
        if presence.failed(reason):
            log.warning("agent does not answer", error=reason)
        # With jitter: many controllers may have lost the agent at the same moment.
        await trio.sleep(backoff.next())


async def _explain_failure(link: AgentLink, reason: str) -> str:
    """Return the error of a plain request, which is more precise about certificates than a websocket's *reason*."""
    try:
        await RemoteAgent(link).describe()
    except EndpointError as exc:
        return str(exc)
    return reason


async def _publish_renewals(link: AgentLink, presence: Presence, renewal: Renewal) -> NoReturn:
    log = get_logger("agents").bind(agent=link.client.address.name)
    backoff = Backoff(base=FIRST_DELAY, limit=LONGEST_DELAY)
    logged = ""
    while True:
        await renewal.wait()
        agent = RemoteAgent(link)
        while True:
            try:
                info = await agent.describe()
            except AgentAnswerError as exc:
                presence.report_problem(str(exc), "is the agent of the same version as the controller?")
            except EndpointError as exc:
                log.debug("agent probe failed", error=text_of(exc))
            else:
                break
            # A request for renewal ends the pause: the agent may be back.
            with trio.move_on_after(backoff.next()):
                await renewal.wait()
        backoff.reset()
        if (version := read_version(info.version)) is not None and version < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            presence.report_problem(
                f"HAProxy {info.version} is not supported, {oldest} or later is", "update HAProxy beside the agent"
            )
            continue
        if info.version != logged:
            logged = info.version
            log.info("agent answers", haproxy=info.version, generation=info.generation[:12])
        presence.clear_problem()
        presence.publish(agent)
