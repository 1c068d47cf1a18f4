from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from haptic_trio.errors import Problem
from haptic_trio.k8s.client import Client, Deleted, Listed, Listing, NotFoundError, Selection, Upserted, WatchEvent
from haptic_trio.k8s.reflector import SLICE, ResourceChanged, run_reflector
from haptic_trio.k8s.resource import Resource, ResourceRef, ResourceType, ref_of
from haptic_trio.k8s.store import Store
from haptic_trio.slow_steps import SlowSteps
from tests.k8s.objects import SERVICES, service, service_ref

SELECTION = Selection(type=SERVICES)


class ScriptedCluster:
    """A cluster whose watch yields what the test sends."""

    def __init__(self) -> None:
        self.events, self._events_out = trio.open_memory_channel[WatchEvent](10)
        self.watches = 0

    listing = Listing(0)

    @asynccontextmanager
    async def watch(self, selection: Selection) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        assert selection == SELECTION
        self.watches += 1
        try:
            yield self._events_out
        finally:
            self.watches -= 1

    async def get(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        raise NotFoundError(ResourceRef(resource_type.plural, namespace, name))


class Bench:
    """A reflector with everything round it."""

    def __init__(self) -> None:
        self.cluster = ScriptedCluster()
        self.store = Store("services", ("metadata.namespace", "metadata.name"), ("status",))
        self.changes_in, self.changes_out = trio.open_memory_channel[ResourceChanged](10)
        self.reports: list[tuple[str, tuple[Problem, ...]]] = []

    def reflector(self) -> Callable[..., Awaitable[None]]:
        """Return the reflector, ready to be started."""
        client: Client = self.cluster
        return partial(run_reflector, client, SELECTION, (self.store,), self.changes_in.send, report=self.report)

    def report(self, source: str, problems: tuple[Problem, ...]) -> None:
        self.reports.append((source, problems))

    def new_changes(self) -> list[ResourceChanged]:
        found = []
        while self.changes_out.statistics().current_buffer_used:
            found.append(self.changes_out.receive_nowait())
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_reflector_is_ready_when_the_first_list_is_in_the_store(bench: Bench, nursery: trio.Nursery) -> None:
    await bench.cluster.events.send(Listed((service("b"), service("a"))))

    await nursery.start(bench.reflector())

    assert len(bench.store) == 2
    assert await bench.changes_out.receive() == ResourceChanged(
        stores=("services",), refs=(service_ref("a"), service_ref("b")), initial=True
    )
    nursery.cancel_scope.cancel()


async def test_a_reflector_is_not_ready_before_the_first_list(
    bench: Bench, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    with pytest.raises(trio.TooSlowError), trio.fail_after(60):
        await nursery.start(bench.reflector())

    assert bench.cluster.watches == 0


async def test_an_empty_first_list_is_emitted_too(bench: Bench, nursery: trio.Nursery) -> None:
    await bench.cluster.events.send(Listed(()))
    await nursery.start(bench.reflector())

    assert await bench.changes_out.receive() == ResourceChanged(stores=("services",), refs=(), initial=True)
    nursery.cancel_scope.cancel()


async def test_the_start_does_not_wait_for_the_reader_of_changes(bench: Bench, nursery: trio.Nursery) -> None:
    bench.changes_in, bench.changes_out = trio.open_memory_channel[ResourceChanged](0)
    await bench.cluster.events.send(Listed((service("a"),)))

    with trio.fail_after(5):
        await nursery.start(bench.reflector())

    assert (await bench.changes_out.receive()).initial
    nursery.cancel_scope.cancel()


async def test_each_real_change_is_emitted_after_the_store_has_it(bench: Bench) -> None:
    async with trio.open_nursery() as nursery:
        await bench.cluster.events.send(Listed((service("a"), service("b"))))
        await nursery.start(bench.reflector())
        for event in (
            Upserted(service("a", version="2", status={"x": 1})),
            Upserted(service("a", version="3", spec=1)),
            Deleted(service("missing")),
            Deleted(service("b")),
            Listed((service("a", version="4", spec=1), service("c"))),
            Listed((service("a", version="4", spec=1), service("c"))),
        ):
            await bench.cluster.events.send(event)
        bench.cluster.events.close()

    assert bench.new_changes() == [
        ResourceChanged(stores=("services",), refs=(service_ref("a"), service_ref("b")), initial=True),
        ResourceChanged(stores=("services",), refs=(service_ref("a"),)),
        ResourceChanged(stores=("services",), refs=(service_ref("b"),)),
        ResourceChanged(stores=("services",), refs=(service_ref("c"),)),
    ]
    assert [resource["metadata"]["name"] for resource in bench.store.list()] == ["a", "c"]
    assert not bench.reports


async def test_objects_without_a_name_are_left_out_and_reported_until_a_list_is_complete(bench: Bench) -> None:
    nameless = {"apiVersion": "v1", "kind": "Service", "metadata": {}}
    async with trio.open_nursery() as nursery:
        await bench.cluster.events.send(Listed((service("a"), nameless)))
        await nursery.start(bench.reflector())
        await bench.cluster.events.send(Upserted(nameless))
        await bench.cluster.events.send(Listed((service("a"),)))
        bench.cluster.events.close()

    assert [len(problems) for _source, problems in bench.reports] == [1, 1, 0]
    assert len(bench.store) == 1


async def test_a_reflector_ends_with_the_watch(bench: Bench) -> None:
    await bench.cluster.events.send(Listed(()))
    bench.cluster.events.close()

    with trio.fail_after(5):
        await bench.reflector()()

    assert bench.cluster.watches == 0


async def test_a_cancelled_reflector_leaves_no_watch_and_a_whole_store(bench: Bench) -> None:
    # No task reads: the reflector is cancelled while it emits.
    bench.changes_in, bench.changes_out = trio.open_memory_channel[ResourceChanged](0)
    await bench.cluster.events.send(Listed((service("a"),)))

    async with trio.open_nursery() as nursery:
        await nursery.start(bench.reflector())
        nursery.cancel_scope.cancel()

    assert bench.cluster.watches == 0
    assert len(bench.store) == 1


async def test_a_failing_reader_fails_the_reflector(bench: Bench) -> None:
    async def reject(change: ResourceChanged) -> None:
        await trio.lowlevel.checkpoint()
        raise KeyError(change.stores)

    await bench.cluster.events.send(Listed(()))
    run = partial(run_reflector, bench.cluster, SELECTION, (bench.store,), reject, report=lambda *_: None)

    with pytest.raises(KeyError):
        await run()


async def test_stores_of_one_reflector_share_objects_and_report_changes_once(
    bench: Bench, nursery: trio.Nursery
) -> None:
    by_name = Store("byName", ("metadata.name",), ("status",))
    stores = (bench.store, by_name)
    await bench.cluster.events.send(Listed((service("a"),)))
    await nursery.start(
        partial(run_reflector, bench.cluster, SELECTION, stores, bench.changes_in.send, report=lambda *_: None)
    )
    await bench.cluster.events.send(Upserted(service("b")))

    changes = [await bench.changes_out.receive() for _ in range(2)]

    assert changes == [
        ResourceChanged(stores=("services", "byName"), refs=(service_ref("a"),), initial=True),
        ResourceChanged(stores=("services", "byName"), refs=(service_ref("b"),)),
    ]
    assert by_name.by_ref(service_ref("b")) is bench.store.by_ref(service_ref("b"))
    nursery.cancel_scope.cancel()


async def test_list_after_an_expired_watch_lets_other_tasks_run(bench: Bench, nursery: trio.Nursery) -> None:
    objects = [service(f"app-{number:05d}", labels={"app": str(number)}) for number in range(5_000)]
    more = [Store(f"more-{number}", ("labels.app",), ("status",)) for number in range(3)]
    await bench.cluster.events.send(Listed(tuple(objects)))
    client: Client = bench.cluster
    stores = (bench.store, *more)
    await nursery.start(partial(run_reflector, client, SELECTION, stores, bench.changes_in.send, report=bench.report))
    await bench.changes_out.receive()
    again = [
        {**resource, "metadata": {**resource["metadata"], "resourceVersion": "9"}}
        for resource in [*objects[1:], service("new")]
    ]

    steps: list[float] = []
    instrument = SlowSteps(lambda step: steps.append(step.seconds), limit=0.0)
    trio.lowlevel.add_instrument(instrument)
    await bench.cluster.events.send(Listed(tuple(again)))
    change = await bench.changes_out.receive()
    trio.lowlevel.remove_instrument(instrument)

    assert change.refs == (service_ref("new"), service_ref("app-00000"))
    assert {store.present() == {ref_of(resource) for resource in again} for store in stores} == {True}
    assert max(steps) < sum(steps) / 4


async def test_objects_that_are_gone_from_a_list_leave_the_stores_at_its_end(
    bench: Bench, nursery: trio.Nursery
) -> None:
    objects = [service(f"app-{number:05d}") for number in range(5 * SLICE)]
    other = Store("other", ("metadata.name",), ("status",))
    await bench.cluster.events.send(Listed((service("gone"), *objects)))
    client: Client = bench.cluster
    await nursery.start(
        partial(run_reflector, client, SELECTION, (bench.store, other), bench.changes_in.send, report=bench.report)
    )
    await bench.changes_out.receive()
    changed = [service(f"app-{number:05d}", labels={"a": "b"}) for number in range(5 * SLICE)]
    await bench.cluster.events.send(Listed(tuple(changed)))

    partly = False
    while bench.changes_out.statistics().current_buffer_used == 0:
        await trio.lowlevel.checkpoint()
        seen = [[bool(resource.get("labels")) for resource in store.list()] for store in (bench.store, other)]
        assert seen[0] == seen[1]
        is_whole = sum(seen[0]) == len(changed)
        partly |= any(seen[0]) and not is_whole
        assert is_whole or bench.store.by_ref(service_ref("gone")) is not None
    assert partly
    assert len(bench.store) == len(changed)
