"""Follower of one HAProxy pod: probes it, publishes it as an endpoint, and renews it after an event."""

import random
import ssl
from collections.abc import Callable
from typing import Final, NoReturn

import trio

from haptic_trio.backoff import Backoff
from haptic_trio.channels import Latest
from haptic_trio.dataplane.agent.client import AgentAnswerError
from haptic_trio.dataplane.agent.endpoint import AgentLink, RemoteAgent
from haptic_trio.dataplane.agent.endpoints import follow_once, is_suspicious
from haptic_trio.dataplane.agent.messages import AgentEvent, EventKind
from haptic_trio.dataplane.dataplaneapi.client import Credentials, open_api_client
from haptic_trio.dataplane.dataplaneapi.endpoint import DataplaneApiEndpoint
from haptic_trio.dataplane.dataplaneapi.probe import OLDEST, probe_api, read_version
from haptic_trio.dataplane.endpoint import Endpoint, EndpointError
from haptic_trio.errors import Problem
from haptic_trio.k8s.client import Report
from haptic_trio.logs import get_logger

LOST_AFTER: Final = 30.0
"""Seconds without an answer after which an endpoint is one no more: shorter than that is a restart."""
SILENCE_REPORTED: Final = 5.0
"""Seconds without an answer after which that is reported: a pod that starts is no problem."""
PROBE_INTERVAL: Final = 10.0
"""Seconds between two looks at a Data Plane API, which tells nothing of itself."""
_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 5.0

Show = Callable[[Endpoint | None], None]
"""Given the endpoint of a pod when it answers, a new one when it is to be looked at again, None when it is lost."""


class PodReport:
    """Tells what is wrong with one pod, once, and that it is no longer."""

    def __init__(self, source: str, report: Report) -> None:
        self._source = source
        self._report = report
        self._told = ""

    def tell(self, message: str, hint: str = "") -> None:
        """Tell *message* unless it was told last."""
        if message != self._told:
            self._told = message
            self._report(self._source, (Problem(message=message, hint=hint),))

    def clear(self) -> None:
        """Nothing is wrong."""
        if self._told:
            self._told = ""
            self._report(self._source, ())


class _Silence:
    """How long a pod has not answered."""

    def __init__(self, show: Show, report: PodReport) -> None:
        self._show = show
        self._report = report
        self._since = trio.current_time()
        self._has_told = False

    def answered(self) -> None:
        """It answers."""
        self._since = trio.current_time()
        if self._has_told:
            self._has_told = False
            self._report.clear()

    def failed(self, why: str) -> None:
        """It does not answer, because of *why*."""
        silent = trio.current_time() - self._since
        if silent >= SILENCE_REPORTED:
            self._has_told = True
            self._report.tell(f"does not answer: {why}")
        if silent >= LOST_AFTER:
            self._show(None)


async def follow_agent(
    link: AgentLink, context: ssl.SSLContext, show: Show, *, restarts: Latest[int], report: PodReport
) -> NoReturn:
    """Show the agent behind *link* once it answers and its HAProxy is known; anew when it may run something else."""
    looks: Latest[None] = Latest()

    async def look_after_restarts() -> NoReturn:
        seen = restarts.version
        while True:
            seen, _number = await restarts.wait_newer(seen)
            looks.put(None)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_listen, link, context, looks, _Silence(show, report))
        nursery.start_soon(look_after_restarts)
        await _probe_agent(link, looks, show, report)
    raise AssertionError("the loop ends by an exception")


async def _listen(link: AgentLink, context: ssl.SSLContext, looks: Latest[None], silence: _Silence) -> NoReturn:
    address = link.client.address
    log = get_logger("agents").bind(agent=address.name)
    was_away = True

    def take(event: AgentEvent) -> None:
        nonlocal was_away
        if event.kind is EventKind.HELLO:
            log.info("agent connected", generation=event.generation[:12])
        elif event.kind is not EventKind.HEARTBEAT and not event.deployed:
            log.warning("agent reports", what=event.kind.value, pid=event.pid)
        silence.answered()
        known = link.running.id if link.running is not None else ""
        # What was meant for it while it was away has failed, and may wait long until it is tried again.
        if was_away or is_suspicious(event, known):
            looks.put(None)
        was_away = False

    backoff = Backoff(base=_FIRST_DELAY, limit=_LONGEST_DELAY)
    while True:
        heard, why = await follow_once(address, context, take)
        if heard:
            backoff.reset()
            log.warning("agent does not answer", error=why)
        was_away = True
        silence.failed(await _ask_why(link, why))
        await trio.sleep(backoff.next())


async def _ask_why(link: AgentLink, why: str) -> str:
    """Return what a plain request meets, which says more about certificates than a websocket does."""
    try:
        await RemoteAgent(link).describe()
    except EndpointError as exc:
        return str(exc)
    return why


async def _probe_agent(link: AgentLink, looks: Latest[None], show: Show, report: PodReport) -> NoReturn:
    name = link.client.address.name
    log = get_logger("agents").bind(agent=name)
    backoff = Backoff(base=_FIRST_DELAY, limit=_LONGEST_DELAY)
    seen, told = 0, ""
    while True:
        seen, _ = await looks.wait_newer(seen)
        agent = RemoteAgent(link)
        while True:
            try:
                info = await agent.describe()
            except AgentAnswerError as exc:
                report.tell(str(exc), "is the agent of the same version as the controller?")
            except EndpointError as exc:
                log.debug("agent probe failed", error=str(exc))
            else:
                break
            # It says something: that it is back, perhaps.
            with trio.move_on_after(backoff.next()):
                seen, _ = await looks.wait_newer(seen)
        backoff.reset()
        if (version := read_version(info.version)) is not None and version < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            report.tell(f"HAProxy {info.version} is not supported, {oldest} or later is", "update it in the pod")
            continue
        if info.version != told:
            told = info.version
            log.info("agent answers", haproxy=info.version, generation=info.generation[:12])
        report.clear()
        show(agent)


async def follow_dataplaneapi(
    name: str, url: str, credentials: Credentials, show: Show, *, restarts: Latest[int], report: PodReport
) -> NoReturn:
    """Show the Data Plane API at *url* once it answers, and anew after it was silent or its pod was restarted."""
    log = get_logger("dataplaneapi").bind(endpoint=name)
    silence = _Silence(show, report)
    backoff = Backoff(base=_FIRST_DELAY, limit=_LONGEST_DELAY)
    seen, is_shown, told = restarts.version, False, ""
    async with open_api_client(name, url, credentials) as api:
        while True:
            try:
                probe = await probe_api(api)
            except EndpointError as exc:
                silence.failed(str(exc))
                is_shown = False
                delay = backoff.next()
            else:
                silence.answered()
                backoff.reset()
                if probe.haproxy_version != told:
                    told = probe.haproxy_version
                    log.info("data plane api answers", haproxy=told, api=probe.api_version)
                if not is_shown:
                    is_shown = True
                    show(DataplaneApiEndpoint(api))
                delay = PROBE_INTERVAL * random.uniform(0.8, 1.0)  # noqa: S311 - not for secrets
            with trio.move_on_after(delay):
                seen, _number = await restarts.wait_newer(seen)
                is_shown = False
    raise AssertionError("the loop ends by an exception")
