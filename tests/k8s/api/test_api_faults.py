"""A watch bridges whatever an API server does, and its reader never sees less than there is."""

from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio

from haptic_trio.k8s.api.auth import load_kubeconfig
from haptic_trio.k8s.api.cluster import ApiCluster
from haptic_trio.k8s.client import Deleted, Listed, Selection, Upserted
from haptic_trio.k8s.resource import Resource, ResourceType
from tests.k8s.api.api_cluster import FAST, Reports, View, connected, viewing
from tests.k8s.objects import INGRESSES, SERVICES
from tests.support.api_server.kinds import make_kind
from tests.support.api_server.server import ApiServer, serving
from tests.support.kubernetes import ingress, service

ALL_SERVICES = Selection(type=SERVICES)
WIDGETS = ResourceType("demo.example.org/v1", "widgets")
DEFINITION: Resource = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.demo.example.org"},
    "spec": {
        "group": "demo.example.org",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": True, "storage": True}],
    },
}


def widget(name: str) -> Resource:
    return {"apiVersion": "demo.example.org/v1", "kind": "Widget", "metadata": {"name": name, "namespace": "default"}}


def count(server: ApiServer, text: str) -> int:
    """Return how many requests have *text* in them."""
    return sum(text in request for request in server.requests)


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    return tmp_path / "config"


@pytest.mark.parametrize("stream_lists", [True, False])
async def test_cut_watches_go_on_where_they_were(kubeconfig: Path, stream_lists: bool) -> None:
    reports = Reports()
    async with (
        serving(service("a")) as server,
        connected(server, kubeconfig, reports=reports, stream_lists=stream_lists) as cluster,
        viewing(cluster, ALL_SERVICES) as view,
    ):
        await view.until("a")
        for number in range(10):
            server.put(service(f"new-{number}"))
            server.cut_watches()
            server.remove(service("a" if number == 0 else f"new-{number - 1}"))
            await view.until(f"new-{number}")

        assert view.lists == 1
        assert reports.messages == ""
        assert cluster.counts.lists == {"services.v1": 1}
        assert cluster.counts.connections["services.v1"] > 1


@pytest.mark.parametrize("expired_status", [True, False])
@pytest.mark.parametrize("stream_lists", [True, False])
async def test_compaction_leads_to_a_new_list_and_no_deletion_is_missed(
    kubeconfig: Path, expired_status: bool, stream_lists: bool
) -> None:
    async with (
        serving(service("a"), service("b")) as server,
        connected(server, kubeconfig, stream_lists=stream_lists) as cluster,
        viewing(cluster, ALL_SERVICES) as view,
    ):
        await view.until("a", "b")
        server.faults.expired_status = expired_status

        server.stop()
        server.remove(service("a"))
        server.put(service("c"))
        server.compact()
        await server.start()

        await view.until("b", "c")
        assert view.lists == 2
        server.put(service("d"))
        assert isinstance(await view.step(), Upserted)


async def test_expiry_of_an_open_watch_leads_to_a_new_list(kubeconfig: Path) -> None:
    async with (
        serving(service("a")) as server,
        connected(server, kubeconfig) as cluster,
        viewing(cluster, ALL_SERVICES) as view,
    ):
        await view.until("a")
        server.expire_watches()
        assert isinstance(await view.step(), Listed)
        assert set(view.objects) == {"a"}
        assert cluster.counts.lists == {"services.v1": 2}
        assert cluster.counts.failures == {("services.v1", "Expired"): 1}


async def test_restarted_server_is_found_again_and_the_outage_is_reported_meanwhile(kubeconfig: Path) -> None:
    reports = Reports()
    async with (
        serving(service("a")) as server,
        connected(server, kubeconfig, reports=reports) as cluster,
        viewing(cluster, ALL_SERVICES) as view,
    ):
        await view.until("a")
        server.stop()
        await reports.wait(lambda reports: "services.v1" in reports.messages)
        assert "is the API server running" in reports.messages

        server.put(service("b"))
        await server.start()
        await view.until("a", "b")
        await reports.wait(lambda reports: not reports.messages)
        assert view.lists == 1


async def test_forbidden_kind_is_reported_and_disturbs_no_other(kubeconfig: Path) -> None:
    reports = Reports()
    async with serving(service("a"), ingress("i")) as server, connected(server, kubeconfig, reports=reports) as cluster:
        server.faults.forbidden.add("ingresses")
        async with (
            viewing(cluster, ALL_SERVICES) as services,
            viewing(cluster, Selection(type=INGRESSES)) as ingresses,
        ):
            await services.until("a")
            opened = count(server, "services?watch=true")
            await reports.wait(lambda reports: "ingresses is forbidden" in reports.messages)
            assert "grant it" in reports.messages
            await server.until(lambda: count(server, "/ingresses") >= 6)
            server.put(service("b"))
            await services.until("a", "b")
            assert count(server, "services?watch=true") == opened

            server.faults.forbidden.clear()
            assert isinstance(await ingresses.step(), Listed)
            assert set(ingresses.objects) == {"i"}
            await reports.wait(lambda reports: not reports.messages)


async def test_kind_that_becomes_forbidden_keeps_what_is_known_of_it(kubeconfig: Path) -> None:
    reports = Reports()
    async with (
        serving(service("a")) as server,
        connected(server, kubeconfig, reports=reports) as cluster,
        viewing(cluster, ALL_SERVICES) as view,
    ):
        await view.until("a")
        server.faults.forbidden.add("services")
        server.cut_watches()
        await reports.wait(lambda reports: "forbidden" in reports.messages)
        server.put(service("b"))
        server.faults.forbidden.clear()
        event = await view.step()
        assert isinstance(event, Upserted)
        assert set(view.objects) == {"a", "b"}


@pytest.mark.parametrize("fault", ["throttled", "failing"])
async def test_busy_or_failing_server_is_asked_until_it_answers(kubeconfig: Path, fault: str) -> None:
    async with serving(service("a")) as server, connected(server, kubeconfig) as cluster:
        server.faults.retry_after = 0
        setattr(server.faults, fault, 6)
        async with viewing(cluster, ALL_SERVICES) as view:
            first = await view.step()
            assert isinstance(first, Listed)
            assert set(view.objects) == {"a"}


async def test_definition_that_comes_goes_and_comes_back_is_followed(kubeconfig: Path) -> None:
    reports = Reports()
    async with (
        serving() as server,
        connected(server, kubeconfig, reports=reports) as cluster,
        viewing(cluster, Selection(type=WIDGETS)) as view,
    ):
        assert await view.step() == Listed(())
        await reports.wait(lambda reports: "does not serve widgets" in reports.messages)
        for name in ("a", "b"):
            server.put(DEFINITION)
            server.put(widget(name))
            await view.until(name)
            await reports.wait(lambda reports: not reports.messages)
            server.remove(DEFINITION)
            await view.until()
            await reports.wait(lambda reports: "does not serve widgets" in reports.messages)


async def test_kind_that_is_missing_for_a_moment_loses_nothing(kubeconfig: Path) -> None:
    reports = Reports()
    patient = msgspec.structs.replace(FAST, absence_grace=30.0)
    kind = make_kind("demo.example.org/v1", "Widget")
    async with serving() as server, connected(server, kubeconfig, reports=reports, pace=patient) as cluster:
        server.serve_kind(kind)
        server.put(widget("a"))
        async with viewing(cluster, Selection(type=WIDGETS)) as view:
            await view.until("a")
            # As a server that has just started and does not know its custom kinds yet.
            collection = server.state.collections.pop(WIDGETS)
            collection.wake()
            await reports.wait(lambda reports: "does not serve widgets" in reports.messages)
            server.state.collections[WIDGETS] = collection
            again = await view.step()

            assert isinstance(again, Listed)
            assert set(view.objects) == {"a"}


async def test_typing_error_in_a_plural_is_answered_with_what_may_be_meant(kubeconfig: Path) -> None:
    reports = Reports()
    async with (
        serving() as server,
        connected(server, kubeconfig, reports=reports) as cluster,
        viewing(cluster, Selection(type=ResourceType("networking.k8s.io/v1", "ingress"))) as view,
    ):
        assert await view.step() == Listed(())
        assert "is one of these meant: ingresses?" in reports.messages


async def test_list_whose_pages_expire_is_made_again_in_one_piece(kubeconfig: Path) -> None:
    async with (
        serving(*(service(f"s{number}") for number in range(1200))) as server,
        connected(server, kubeconfig, stream_lists=False) as cluster,
    ):
        server.faults.expire_pages = 1
        async with viewing(cluster, ALL_SERVICES) as view:
            await view.step()

        assert len(view.objects) == 1200
        lists = [request for request in server.requests if "/services" in request and "watch=" not in request]
        assert ["limit" in request for request in lists] == [True, True, False]


async def test_list_comes_in_pages_and_changes_between_them_are_not_lost(kubeconfig: Path) -> None:
    async with (
        serving(*(service(f"s{number:04}") for number in range(1100))) as server,
        connected(server, kubeconfig, stream_lists=False) as cluster,
    ):
        server.faults.delay = 0.05
        async with viewing(cluster, ALL_SERVICES) as view, trio.open_nursery() as nursery:
            nursery.start_soon(view.step)
            await server.until(lambda: count(server, "continue=") >= 1)
            server.remove(service("s0001"))
            server.remove(service("s1099"))
            server.put(service("s0000a"))
        expected = {f"s{number:04}" for number in range(1100)} - {"s0001", "s1099"} | {"s0000a"}
        async with viewing(cluster, ALL_SERVICES) as fresh:
            await fresh.until(*expected)
        assert count(server, "continue=") >= 2


@pytest.mark.parametrize("fault", ["rejects", "fails", "ignores"])
async def test_server_without_streamed_lists_is_asked_for_lists(kubeconfig: Path, fault: str) -> None:
    async with serving(service("a")) as server, connected(server, kubeconfig) as cluster:
        server.faults.list_streaming = fault == "ignores"
        server.faults.list_streaming_rejection = 500 if fault == "fails" else 422
        server.faults.ignores_list_streaming = fault == "ignores"
        async with viewing(cluster, ALL_SERVICES) as view:
            await view.until("a")
            async with viewing(cluster, Selection(type=INGRESSES)) as other:
                await other.step()

        # Found out once, for all kinds.
        assert count(server, "sendInitialEvents") == 1
        assert count(server, "limit=500") == 2


async def test_watch_that_falls_silent_is_opened_again(kubeconfig: Path) -> None:
    impatient = msgspec.structs.replace(FAST, silence=0.2)
    async with (
        serving(service("a")) as server,
        connected(server, kubeconfig, pace=impatient) as cluster,
        viewing(cluster, ALL_SERVICES) as view,
    ):
        await view.until("a")
        server.faults.silent = True
        server.put(service("b"))
        server.cut_watches()
        await server.until(lambda: count(server, "watch=true") >= 3)
        server.faults.silent = False
        await view.until("a", "b")
        assert view.lists == 1


async def test_bookmarks_move_a_quiet_watch_past_a_compaction(kubeconfig: Path) -> None:
    async with serving(service("a")) as server:
        server.bookmark_interval = 0.05
        async with connected(server, kubeconfig) as cluster, viewing(cluster, ALL_SERVICES) as view:
            await view.until("a")
            for number in range(20):
                server.put(ingress(f"i{number}"))
            server.state.compact()
            before = server.bookmarks
            # When the third one goes out, the client has had an interval for each before it.
            await server.until(lambda: server.bookmarks >= before + 3)
            server.cut_watches()
            server.put(service("b"))
            await view.until("a", "b")
            assert view.lists == 1


async def test_flood_of_changes_arrives_completely_and_in_order(kubeconfig: Path) -> None:
    async with (
        serving(service("a", externalName="0")) as server,
        connected(server, kubeconfig) as cluster,
        cluster.watch(ALL_SERVICES) as events,
    ):
        view = View(events)
        await view.until("a")
        # More than the buffer between watch and reader holds.
        for number in range(1, 12_001):
            server.put(service("a", externalName=str(number)))
        for number in range(1, 12_001):
            event = await view.step()
            assert isinstance(event, Upserted)
            assert event.object["spec"]["externalName"] == str(number)


async def test_namespace_that_is_listed_again_replaces_no_other(kubeconfig: Path) -> None:
    selection = Selection(type=SERVICES, namespaces=("one", "two"))
    async with (
        serving(service("a", namespace="one"), service("b", namespace="two")) as server,
        connected(server, kubeconfig) as cluster,
        viewing(cluster, selection) as view,
    ):
        await view.until("a", "b")
        server.stop()
        server.remove(service("a", namespace="one"))
        server.put(service("c", namespace="two"))
        server.compact()
        await server.start()
        changes = [await view.step(), await view.step()]

        assert {type(change) for change in changes} == {Deleted, Upserted}
        assert set(view.objects) == {"b", "c"}
        assert view.lists == 1


async def test_end_of_the_client_ends_its_watches(kubeconfig: Path) -> None:
    async with serving(service("a")) as server, trio.open_nursery() as nursery:
        load = partial(load_kubeconfig, server.write_kubeconfig(kubeconfig))
        cluster = ApiCluster(load, report=Reports(), pace=FAST)
        running = trio.CancelScope()

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            with running:
                await cluster.run(task_status=task_status)

        await nursery.start(run)
        async with cluster.watch(ALL_SERVICES) as events:
            await View(events).step()
            running.cancel()
            with trio.fail_after(5):
                assert [event async for event in events] == []


async def test_no_connection_is_left_when_watches_end(kubeconfig: Path) -> None:
    async with serving(service("a")) as server, connected(server, kubeconfig) as cluster:
        for _ in range(5):
            async with viewing(cluster, ALL_SERVICES) as view:
                await view.until("a")
        await server.until(lambda: not server.open_watches)
