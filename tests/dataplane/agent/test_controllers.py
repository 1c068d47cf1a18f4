"""Two controllers at one agent are found when they deploy in turns, and a failover is none."""

from functools import partial
from pathlib import Path

import pytest
import structlog
import trio

from haptic_trio.dataplane.agent import client as client_module
from haptic_trio.dataplane.agent.client import AgentAddress, AgentClient, open_http
from haptic_trio.dataplane.agent.controllers import RETURN_WINDOW, Controllers
from haptic_trio.dataplane.agent.endpoint import AgentLink, Cuts, RemoteAgent
from haptic_trio.dataplane.agent.follower import follow_agent
from haptic_trio.dataplane.agent.tls import RenewedContext
from haptic_trio.dataplane.presence import Presence, Renewal
from haptic_trio.errors import Problem
from tests.support.components.agents import serving
from tests.support.components.endpoints import MemoryEndpoint, generation


def notes(*names: str, pause: float = 1.0) -> list[str]:
    """Return the rivals that deployments by *names* find, *pause* seconds apart."""
    controllers = Controllers()
    return [controllers.note(name, number * pause) for number, name in enumerate(names)]


def test_controllers_that_deploy_in_turns_are_rivals() -> None:
    assert notes("a", "a", "b", "a", "a", "b") == ["", "", "", "b", "b", "a"]


def test_a_failover_is_not_rivalry() -> None:
    assert notes("a", "b", "c", "c") == ["", "", "", ""]
    assert notes("a", "b", "a", pause=RETURN_WINDOW) == ["", "", ""]


def test_a_rivalry_is_over_when_the_other_one_has_not_returned() -> None:
    controllers = Controllers()
    assert [controllers.note(name, 0.0) for name in ("a", "b", "a")] == ["", "", "b"]
    assert controllers.note("a", RETURN_WINDOW - 1) == "b"
    assert controllers.note("a", RETURN_WINDOW + 1) == ""


def test_controllers_without_a_name_are_ignored() -> None:
    assert notes("", "a", "", "a") == ["", "", "", ""]


async def test_agent_and_controllers_report_a_second_controller(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: dict[str, tuple[Problem, ...]] = {}
    endpoint = MemoryEndpoint("local", running=generation("none"))
    async with serving(endpoint, tmp_path, heartbeat=0.05) as served:
        context = RenewedContext(served.authority.issue("controller"), server=False)
        links = []
        for name in ("first", "second"):
            monkeypatch.setattr(client_module, "CONTROLLER", name)
            http = await nursery.start(partial(_hold_http, context))
            links.append(AgentLink(AgentClient(http, AgentAddress(name="edge-1", url=served.url)), Cuts()))
        presence = Presence("agent edge-1", lambda _endpoint: None, reports.__setitem__)
        nursery.start_soon(partial(follow_agent, links[0], context, presence, Renewal(), is_published=True))
        with structlog.testing.capture_logs() as logs, trio.fail_after(30):
            for number, link in enumerate((links[0], links[1], links[0])):
                await RemoteAgent(link).activate(generation(str(number)))
            while not reports.get("controllers of agent edge-1"):  # noqa: ASYNC110 - there is no event
                await trio.sleep(0.01)
        assert "second" in reports["controllers of agent edge-1"][0].message
        assert [entry["controllers"] for entry in logs if "controllers" in entry] == [["first", "second"]]
        nursery.cancel_scope.cancel()


async def _hold_http(context: RenewedContext, *, task_status: trio.TaskStatus[object]) -> None:
    async with open_http(context) as http:
        task_status.started(http)
        await trio.sleep_forever()
