"""Follower of one agent: which events renew the endpoint, and how soon it is probed."""

import ssl
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from haptic_trio.channels import Latest
from haptic_trio.dataplane.agent import follower
from haptic_trio.dataplane.agent.client import AgentAddress, AgentAnswerError, AgentClient
from haptic_trio.dataplane.agent.endpoint import AgentLink, Cuts, RemoteAgent
from haptic_trio.dataplane.agent.follower import follow_agent, is_suspicious
from haptic_trio.dataplane.agent.messages import AgentEvent, AgentStatus, EventKind
from haptic_trio.dataplane.endpoint import Endpoint, EndpointError, EndpointInfo, EndpointUnreachableError
from haptic_trio.dataplane.presence import Presence, Renewal
from tests.k8s.api.api_cluster import Reports
from tests.support.processes.ports import free_port


@pytest.mark.parametrize(
    ("event", "known", "suspicious"),
    [
        (AgentEvent(kind=EventKind.HELLO, sequence=0, generation="a"), "a", False),
        (AgentEvent(kind=EventKind.HELLO, sequence=0, generation="b"), "a", True),
        (AgentEvent(kind=EventKind.HELLO, sequence=0, generation=""), "", True),
        (AgentEvent(kind=EventKind.HEARTBEAT, sequence=0, generation="b"), "a", False),
        (AgentEvent(kind=EventKind.GENERATION, sequence=1, generation="b", deployed=True), "a", False),
        (AgentEvent(kind=EventKind.STARTED, sequence=1, generation="a", deployed=True), "a", False),
        (AgentEvent(kind=EventKind.STARTED, sequence=1, generation="a"), "a", True),
        (AgentEvent(kind=EventKind.CRASHED, sequence=1, generation="a"), "a", True),
        (AgentEvent(kind=EventKind.DRIFT, sequence=1, generation=""), "a", True),
        (AgentEvent(kind=EventKind.RESYNC, sequence=1, generation="a"), "a", True),
    ],
)
def test_event_is_suspicious_if_the_agent_may_run_another_generation(
    event: AgentEvent, known: str, suspicious: bool
) -> None:
    assert is_suspicious(event, known) is suspicious


class ScriptedClient(AgentClient):
    """Fails each request until *error* is None; then describes an HAProxy of *version*."""

    def __init__(self) -> None:
        self.address = AgentAddress(name="a", url=f"https://127.0.0.1:{free_port()}")
        self.error: EndpointError | None = EndpointUnreachableError("a", "no route")
        self.version = "2.8.25"
        self.requests: Latest[int] = Latest()

    async def get(self, kind: type[Any], path: str) -> Any:
        self.requests.put(self.requests.version + 1)
        if self.error is not None:
            raise self.error
        info = EndpointInfo(name="a", version=self.version, generation="")
        return AgentStatus(agent="0", boot="1", uptime=0.0, endpoint=info)


class Following:
    """A follower whose retries never come, so that only a renewal makes it probe."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.client, self.renewal, self.reports = ScriptedClient(), Renewal(), Reports()
        into, self.published = trio.open_memory_channel[Endpoint | None](8)
        presence = Presence("agent a", into.send_nowait, self.reports)
        link, context = AgentLink(self.client, Cuts()), ssl.create_default_context()
        nursery.start_soon(partial(follow_agent, link, context, presence, self.renewal, is_published=False))

    async def renew(self) -> None:
        """Ask for a probe, and return once that was made."""
        count = self.client.requests.version
        self.renewal.request()
        await self.client.requests.wait_newer(count)
        await trio.testing.wait_all_tasks_blocked(0.05)


@pytest.fixture
async def following(monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery) -> Following:
    for delay in ("FIRST_DELAY", "LONGEST_DELAY"):
        monkeypatch.setattr(follower, delay, 3600.0)
    following = Following(nursery)
    with trio.fail_after(10):
        # The failed connection is explained by a request.
        await following.client.requests.wait_newer(0)
    await trio.testing.wait_all_tasks_blocked(0.05)
    return following


async def test_renewal_probes_at_once_however_many_probes_failed(following: Following) -> None:
    with trio.fail_after(10):
        await following.renew()
        following.client.error = None
        await following.renew()

        assert isinstance(await following.published.receive(), RemoteAgent)


async def test_agent_that_is_not_understood_is_a_problem_until_it_is(following: Following) -> None:
    with trio.fail_after(10):
        following.client.error = AgentAnswerError("a", "not JSON")
        await following.renew()
        assert "not JSON" in following.reports.messages

        following.client.error = None
        await following.renew()
        assert following.reports.messages == ""


async def test_unsupported_haproxy_is_reported_and_not_published(following: Following) -> None:
    with trio.fail_after(10):
        following.client.error = None
        following.client.version = "2.6.1"
        await following.renew()

        assert "HAProxy 2.6.1 is not supported, 2.8 or later is" in following.reports.messages
        with pytest.raises(trio.WouldBlock):
            following.published.receive_nowait()
