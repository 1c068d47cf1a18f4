"""Owners of objects get an Event about each state once, and another one when it changes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from haptic_trio.channels import ConfigSeen, Latest
from haptic_trio.errors import Problem
from haptic_trio.k8s.errors import ForbiddenError
from haptic_trio.k8s.resource import Resource, ResourceRef, ResourceType
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.messages import ConfigInvalid, ConfigValidated, Phases, Reason, ValidationFailed
from haptic_trio.status.kubernetes_events import EVENTS
from haptic_trio.status.object_events import EventWriter, quarantined
from haptic_trio.templating.values.subjects import ObjectWarning, Subject
from tests.k8s.api.api_cluster import connected
from tests.support.api_server.server import ApiServer, serving
from tests.support.components.endpoints import generation
from tests.support.kubernetes import ingress


class Held(msgspec.Struct, frozen=True):
    ref: ResourceRef
    version: str = "1"
    problem: Problem = Problem(message="a quote in a path")
    has_fallback: bool = False


WEB = Held(ResourceRef("Ingress", "default", "web"))
NO_ENDPOINTS = ObjectWarning(Subject("Ingress", "default", "web"), "NoEndpoints", "nobody is there")
CONFIG_MAP: Resource = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config", "namespace": "default"}}


class Board:
    """Quarantined objects, the cells with results of cycles, and the Events at the server."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.quarantined: list[Held] = []
        self.warnings: tuple[ObjectWarning, ...] = ()
        self.validated: Latest[ConfigValidated] = Latest()
        self.rejected: Latest[ValidationFailed] = Latest()
        self.configuration: Latest[ConfigSeen] = Latest()
        self.configuration.put(ConfigSeen(CONFIG_MAP, None))
        self.invalid: Latest[ConfigInvalid] = Latest()
        self.stores = Stores([Store("ingresses", ["metadata.name"])])
        self.stores["ingresses"].replace([ingress("web"), ingress("api")])

    def end_cycle(self, *held: Held) -> None:
        self.quarantined = list(held)
        self.validated.put(
            ConfigValidated(correlation="1-1", reason=Reason.CHANGED, generation=generation("a"), phases=Phases())
        )

    def reject(self, *, is_verdict: bool = True) -> None:
        problems = (Problem(message="unknown keyword"),) * 2
        self.rejected.put(
            ValidationFailed(
                correlation="1-1", reason=Reason.CHANGED, phase="check", problems=problems, is_verdict=is_verdict
            )
        )

    @property
    def events(self) -> list[Resource]:
        return [stored.resource for stored in self.server.state.collections[EVENTS].objects.values()]

    def reasons(self) -> list[str]:
        return sorted(event["reason"] for event in self.events)


@pytest.fixture
async def board(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[Board]:
    async with serving() as server, connected(server, tmp_path / "kubeconfig") as cluster:
        board = Board(server)
        writer = EventWriter(
            cluster,
            board.stores,
            quarantined=lambda: board.quarantined,
            warnings=lambda: board.warnings,
            configuration=board.configuration,
            invalid=board.invalid,
            instance="me",
            burst=5,
            interval=0.2,
        )
        nursery.start_soon(writer.run, board.validated, board.rejected)
        await trio.testing.wait_all_tasks_blocked()
        yield board
        nursery.cancel_scope.cancel()


async def test_quarantine_and_release_are_reported_once_each(board: Board) -> None:
    board.end_cycle(WEB)
    await board.server.until(lambda: board.reasons() == ["Quarantined"])
    board.end_cycle(WEB)
    board.end_cycle()
    await board.server.until(lambda: board.reasons() == ["Quarantined", "Released"])

    quarantined = next(event for event in board.events if event["reason"] == "Quarantined")
    assert quarantined["type"] == "Warning"
    assert quarantined["regarding"]["name"] == "web"
    assert quarantined["note"] == "a quote in a path; it is not served"
    assert quarantined["reportingInstance"] == "me"
    assert "series" not in quarantined


def test_event_of_a_quarantined_object_names_fields_first_and_the_template_last() -> None:
    problem = Problem(
        message="the value is long", path="spec.rules[0].host", hint="shorten it", source="ingress-route", line=7,
        excerpt="{{ host | hostname }}", subject="Ingress default/web",
    )  # fmt: skip
    held = msgspec.structs.replace(WEB, problem=problem, has_fallback=True)

    assert quarantined(ingress("web"), held).note == (
        "spec.rules[0].host: the value is long (shorten it); its last good version is served [ingress-route:7]"
    )


async def test_each_warning_is_reported_once_and_when_it_is_resolved(board: Board) -> None:
    board.warnings = (NO_ENDPOINTS,)
    board.end_cycle()
    await board.server.until(lambda: board.reasons() == ["NoEndpoints"])
    # Another cycle that says the same, in the same words but not in the same tuple.
    board.warnings = (ObjectWarning(NO_ENDPOINTS.subject, "HostPathConflict", "an older one goes first"), NO_ENDPOINTS)
    board.end_cycle()
    await board.server.until(lambda: board.reasons() == ["HostPathConflict", "NoEndpoints"])
    board.warnings = ()
    board.end_cycle()
    await board.server.until(lambda: board.reasons() == ["HostPathConflict", "NoEndpoints", "Resolved", "Resolved"])

    said = next(event for event in board.events if event["reason"] == "NoEndpoints")
    assert (said["type"], said["note"], said["regarding"]["name"]) == ("Warning", "nobody is there", "web")
    assert not any("series" in event for event in board.events)
    assert {event["note"] for event in board.events if event["type"] == "Normal"} == {
        "resolved: NoEndpoints: nobody is there",
        "resolved: HostPathConflict: an older one goes first",
    }


async def test_no_warning_of_a_quarantined_object_is_reported_as_resolved(board: Board) -> None:
    board.warnings = (NO_ENDPOINTS,)
    board.end_cycle()
    await board.server.until(lambda: board.reasons() == ["NoEndpoints"])
    board.warnings = ()
    board.end_cycle(WEB)
    await board.server.until(lambda: board.reasons() == ["NoEndpoints", "Quarantined"])
    board.end_cycle()

    await board.server.until(lambda: board.reasons() == ["NoEndpoints", "Quarantined", "Released"])


async def test_same_thing_again_is_counted_in_one_event(board: Board) -> None:
    for held in ([WEB], [], [WEB], []):
        seen = len(board.server.requests)
        board.end_cycle(*held)
        await board.server.until(lambda seen=seen: len(board.server.requests) > seen)  # type: ignore[misc]
    await board.server.until(lambda: all(event.get("series", {}).get("count") == 2 for event in board.events))

    assert board.reasons() == ["Quarantined", "Released"]


async def test_a_rejected_configuration_is_reported_on_the_config_map(board: Board) -> None:
    board.reject()
    await board.server.until(lambda: board.reasons() == ["ConfigurationRejected"])

    assert board.events[0]["regarding"]["kind"] == "ConfigMap"
    assert board.events[0]["note"] == "unknown keyword (and 1 more); the deployed configuration stays in use"


@pytest.mark.parametrize(
    ("is_verdict", "reason"), [(True, "ConfigurationRejected"), (False, "ConfigurationNotChecked")]
)
async def test_a_present_config_map_that_is_invalid_is_reported_on_it(
    board: Board, is_verdict: bool, reason: str
) -> None:
    seen = board.configuration.value
    assert seen is not None
    problems = (Problem(message="unknown field", source="ConfigMap"),)
    board.invalid.put(ConfigInvalid(version=seen.version, problems=problems, is_verdict=is_verdict))
    await board.server.until(lambda: board.reasons() == [reason])
    board.invalid.put(ConfigInvalid(version="a former one", problems=problems))
    board.end_cycle(WEB)
    await board.server.until(lambda: "Quarantined" in board.reasons())

    assert board.reasons() == [reason, "Quarantined"]
    written = next(event for event in board.events if event["reason"] == reason)
    assert (written["regarding"]["kind"], written["note"]) == (
        "ConfigMap",
        "ConfigMap: unknown field; the deployed configuration stays in use",
    )


async def test_an_unchecked_configuration_is_reported_on_the_config_map(board: Board) -> None:
    board.reject(is_verdict=False)

    await board.server.until(lambda: board.reasons() == ["ConfigurationNotChecked"])


async def test_many_events_are_written_at_a_limited_rate_and_none_is_lost(board: Board) -> None:
    names = [f"ingress-{number}" for number in range(8)]
    board.stores["ingresses"].replace([ingress(name) for name in names])
    began = trio.current_time()

    board.end_cycle(*[Held(ResourceRef("Ingress", "default", name)) for name in names])
    await board.server.until(lambda: len(board.events) == 8)

    assert trio.current_time() - began >= 0.5


async def test_what_is_rejected_does_not_wait_behind_many_warnings(board: Board) -> None:
    names = [f"web-{number}" for number in range(40)]
    board.stores["ingresses"].replace([ingress(name) for name in (*names, "web")])
    board.warnings = tuple(
        ObjectWarning(Subject("Ingress", "default", name), "NoEndpoints", "nobody is there") for name in names
    )
    board.end_cycle()
    await board.server.until(lambda: "NoEndpoints" in board.reasons())

    board.end_cycle(WEB)
    await board.server.until(lambda: "Quarantined" in board.reasons())

    assert board.reasons().count("NoEndpoints") < 20


async def test_object_that_is_gone_gets_no_event(board: Board) -> None:
    board.end_cycle(Held(ResourceRef("Ingress", "default", "gone")), WEB)
    await board.server.until(lambda: bool(board.events))

    assert [event["regarding"]["name"] for event in board.events] == ["web"]


async def test_event_that_cannot_be_written_now_is_written_later(board: Board) -> None:
    board.server.faults.failing = 1
    board.end_cycle(WEB)

    await board.server.until(lambda: board.reasons() == ["Quarantined"])


class Fair:
    """A writer whose server is a list, and which forbids Events in one namespace."""

    def __init__(self, *names: tuple[str, str]) -> None:
        self.tries: list[str] = []
        self.written: list[str] = []
        self.reasons: list[str] = []
        self.quarantined: list[Held] = []
        self.warnings: tuple[ObjectWarning, ...] = ()
        self.validated: Latest[Any] = Latest()
        stores = Stores([Store("ingresses", ["metadata.name"])])
        stores["ingresses"].replace([ingress(name, namespace=namespace) for namespace, name in names])
        self.writer = EventWriter(
            self,
            stores,
            quarantined=lambda: self.quarantined,
            warnings=lambda: self.warnings,
            configuration=Latest(),
            invalid=Latest(),
            instance="me",
        )

    def hold(self, *names: tuple[str, str]) -> None:
        self.quarantined += [Held(ResourceRef("Ingress", *name)) for name in names]
        self.validated.put(None)

    def warn(self, *warnings: ObjectWarning) -> None:
        self.warnings = warnings
        self.validated.put(None)

    async def create(self, resource: Resource) -> Resource:
        namespace = resource["metadata"]["namespace"]
        self.tries.append(namespace)
        await trio.sleep(0.005)
        if namespace == "closed":
            raise ForbiddenError("create events", "exceeded quota", status=403)
        self.written.append(namespace)
        self.reasons.append(resource["reason"])
        return resource

    async def get(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        raise AssertionError

    async def replace(self, resource: Resource) -> Resource:
        raise AssertionError


async def test_events_of_a_namespace_do_not_wait_behind_many_of_another(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    many = [("many", f"web-{number}") for number in range(300)]
    fair = Fair(*many, ("few", "web"))
    nursery.start_soon(fair.writer.run, fair.validated, Latest())
    await trio.testing.wait_all_tasks_blocked()
    fair.hold(*many)
    await trio.sleep(1)
    fair.hold(("few", "web"))
    await trio.sleep(5)
    nursery.cancel_scope.cancel()

    assert "few" in fair.written
    assert fair.written.count("many") >= 50


async def test_an_object_of_another_tenant_that_is_toggled_uses_up_no_other_event(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    fair = Fair(("default", "web"))
    nursery.start_soon(fair.writer.run, fair.validated, Latest())
    await trio.testing.wait_all_tasks_blocked()
    for number in range(20):
        fair.warn(ObjectWarning(NO_ENDPOINTS.subject, "HostPathConflict", f"Ingress evil/{number} has this path, too"))
        await trio.testing.wait_all_tasks_blocked()
        fair.warn()
        await trio.testing.wait_all_tasks_blocked()
    fair.warn(NO_ENDPOINTS)
    await trio.testing.wait_all_tasks_blocked()
    fair.warn()
    await trio.testing.wait_all_tasks_blocked()
    fair.hold(("default", "web"))
    await trio.sleep(5)
    nursery.cancel_scope.cancel()

    assert fair.reasons.count("HostPathConflict") == 5
    assert sorted(set(fair.reasons)) == ["HostPathConflict", "NoEndpoints", "Quarantined", "Resolved"]
    assert fair.reasons.count("Resolved") == 6


async def test_events_that_the_owner_of_a_namespace_forbids_are_not_tried_again(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    """As in a namespace whose quota allows no Event, or that is being deleted."""
    fair = Fair(("closed", "web"), ("few", "web"))
    nursery.start_soon(fair.writer.run, fair.validated, Latest())
    await trio.testing.wait_all_tasks_blocked()
    fair.hold(("closed", "web"), ("few", "web"))
    await trio.sleep(600)
    nursery.cancel_scope.cancel()

    assert sorted(fair.tries) == ["closed", "few"]
    assert fair.written == ["few"]
