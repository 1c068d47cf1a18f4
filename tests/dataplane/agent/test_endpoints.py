"""Endpoints of a list of agents: present from the start, never removed, renewed after a reconnection."""

from pathlib import Path

import pytest
import structlog.testing
import trio

from haptic_trio.dataplane import presence
from haptic_trio.dataplane.agent.client import AgentAddress
from haptic_trio.dataplane.agent.endpoint import RemoteAgent
from haptic_trio.dataplane.agent.endpoints import RemoteAgents
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.dataplane.sync import sync_endpoint
from tests.k8s.api.api_cluster import Reports
from tests.support.components.agents import Authority, serving, serving_haproxy
from tests.support.components.endpoints import MemoryEndpoint
from tests.support.processes.haproxy import answering
from tests.support.processes.ports import free_port


class Published:
    """Published endpoints, newest last."""

    def __init__(self) -> None:
        self.endpoints: list[tuple[Endpoint, ...]] = []
        self._more = trio.Event()

    def take(self, endpoints: tuple[Endpoint, ...]) -> None:
        self.endpoints.append(endpoints)
        self._more.set()
        self._more = trio.Event()

    async def more(self, than: int) -> tuple[Endpoint, ...]:
        """Return what was published after the first *than* times."""
        with trio.fail_after(10):
            while len(self.endpoints) <= than:
                await self._more.wait()
        return self.endpoints[-1]


async def test_agent_that_reconnects_is_a_new_endpoint_of_the_same_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    endpoint, other = MemoryEndpoint("local"), MemoryEndpoint("local")
    published = Published()
    controller = authority.issue("controller")
    async with trio.open_nursery() as nursery:
        async with serving(other, tmp_path / "b", authority=authority) as second:
            async with serving(endpoint, tmp_path / "a", authority=authority) as first:
                addresses = [AgentAddress(name="one", url=first.url), AgentAddress(name="two", url=second.url)]
                agents = RemoteAgents(addresses, controller, report=Reports())
                before = await nursery.start(agents.run, published.take)
                assert [one.name for one in before] == ["one", "two"]
                # Both say hello, and nothing is known of them.
                await published.more(1)
                for one in published.endpoints[-1]:
                    await one.activate(answering(1, "one"))
                count = len(published.endpoints)
            port = int(first.url.rpartition(":")[2])
            endpoint.running = None
            options_at = f"127.0.0.1:{port}"
            async with serving(endpoint, tmp_path / "a", authority=authority, listen=options_at):
                after = await published.more(count)
                assert [one.name for one in after] == ["one", "two"]
                assert after[0] is not before[0]
                await after[0].activate(answering(1, "two"))
                assert endpoint.text == answering(1, "two").text
        nursery.cancel_scope.cancel()


async def test_agent_that_reconnects_with_the_same_generation_is_a_new_endpoint_too(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    endpoint, published = MemoryEndpoint("local"), Published()
    wanted = answering(1, "one")
    port = free_port()
    listen = f"127.0.0.1:{port}"
    address = AgentAddress(name="one", url=f"https://127.0.0.1:{port}")
    async with trio.open_nursery() as nursery:
        agents = RemoteAgents([address], authority.issue("controller"), report=Reports())
        await nursery.start(agents.run, published.take)
        async with serving(endpoint, tmp_path / "a", authority=authority, listen=listen):
            (before,) = await published.more(0)
            await before.activate(wanted)
            count = len(published.endpoints)
        async with serving(endpoint, tmp_path / "a", authority=authority, listen=listen):
            # Deployments failed meanwhile; without a new endpoint the next one waits for its backoff.
            (after,) = await published.more(count)
            assert after is not before
            assert await after.fetch_running() == wanted
        nursery.cancel_scope.cancel()


@pytest.mark.haproxy
async def test_old_workers_behind_an_agent_are_known_while_it_answers(
    instance_root: Path, haproxy_binary: Path
) -> None:
    published, port = Published(), free_port()
    async with trio.open_nursery() as nursery:
        async with serving_haproxy(instance_root, haproxy_binary, heartbeat=0.05) as served:
            address = AgentAddress(name="one", url=served.url)
            agents = RemoteAgents([address], served.authority.issue("controller"), report=Reports())
            (agent,) = await nursery.start(agents.run, published.take)
            assert isinstance(agent, RemoteAgent)

            async def wait_for(count: int | None) -> None:
                while agent.old_workers != count:  # noqa: ASYNC110  there is no event
                    await trio.sleep(0.02)

            await sync_endpoint(agent, answering(port, "one"))
            await wait_for(0)
            # A request that is not complete keeps the worker alive.
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(b"GET / HTTP/1.1\r\n")
                await sync_endpoint(agent, answering(port, "two"))
                await wait_for(1)
        await wait_for(None)
        nursery.cancel_scope.cancel()


async def test_agent_that_stays_away_is_kept_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "SILENCE_REPORTED", 0.3)
    monkeypatch.setattr(presence, "LOST_AFTER", 0.3)
    authority, published, reports = Authority(tmp_path / "tls"), Published(), Reports()
    listen = f"127.0.0.1:{free_port()}"
    address = AgentAddress(name="one", url=f"https://{listen}")
    agents = RemoteAgents([address], authority.issue("controller"), report=reports)
    with structlog.testing.capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            (before,) = await nursery.start(agents.run, published.take)
            await reports.wait(lambda reports: "does not answer" in reports.messages)
            assert list(reports.problems) == ["agent one"]
            assert published.endpoints == []
            async with serving(MemoryEndpoint("local"), tmp_path / "a", authority=authority, listen=listen):
                assert (await published.more(0))[0] is not before
                assert reports.messages == ""
            await reports.wait(lambda reports: "does not answer" in reports.messages)
            assert all(len(endpoints) == 1 for endpoints in published.endpoints)
            nursery.cancel_scope.cancel()
    assert "agent does not answer" in [log["event"] for log in logs]
