"""One watch for several readers: who lists, who is told what, and how it ends."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from haptic_trio.errors import HapticError
from haptic_trio.k8s import shared_watches
from haptic_trio.k8s.client import Deleted, Listed, Selection, Upserted, WatchEvent
from haptic_trio.k8s.reflector import ResourceChanged, run_reflector
from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.k8s.shared_watches import Reader, SharedWatches, WatchSession
from haptic_trio.k8s.store import FieldRemover, Store
from tests.support.components.cluster import MemoryCluster
from tests.support.components.controller import SERVICES
from tests.support.kubernetes import service

SELECTION = Selection(type=SERVICES)


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(service("web"))


@pytest.fixture
async def watches(nursery: trio.Nursery, cluster: MemoryCluster) -> AsyncIterator[SharedWatches]:
    shared = SharedWatches(cluster)
    await nursery.start(shared.run)
    yield shared
    nursery.cancel_scope.cancel()


async def next_of(events: AsyncIterator[WatchEvent]) -> WatchEvent:
    with trio.fail_after(30):
        return await anext(events)


def name_of(event: WatchEvent) -> str:
    assert isinstance(event, Upserted)
    return ref_of(event.object).name


def names(event: WatchEvent) -> list[str]:
    objects = event.objects if isinstance(event, Listed) else (event.object,)
    return [str(resource["metadata"]["name"]) for resource in objects]


async def test_later_reader_gets_the_known_objects_without_another_list(
    watches: SharedWatches, cluster: MemoryCluster
) -> None:
    async with watches.open_session().watch(SELECTION) as first, watches.open_session().watch(SELECTION) as second:
        assert names(await next_of(first)) == ["web"]
        cluster.put(service("api"))
        assert names(await next_of(first)) == ["api"]
        cluster.remove(service("web"))
        assert isinstance(await next_of(first), Deleted)
        async with watches.open_session().watch(SELECTION) as third:
            assert await next_of(third) == Listed((cluster._list(SERVICES)[0],))
            cluster.put(service("late"))
            assert [names(await next_of(reader)) for reader in (first, third)] == [["late"], ["late"]]
        # The second one has read nothing so far, and has missed nothing.
        assert [type(await next_of(second)) for _ in range(4)] == [Listed, Upserted, Deleted, Upserted]
    assert cluster.opened == 1


async def test_watch_that_is_opened_again_goes_on_after_the_last_processed_event(
    watches: SharedWatches, cluster: MemoryCluster
) -> None:
    session = watches.open_session()
    async with session.watch(SELECTION) as reader:
        await next_of(reader)
        assert not reader.is_resumed
        with trio.move_on_after(0):
            await anext(reader)
    cluster.put(service("api"))
    async with session.watch(SELECTION) as again:
        assert again.is_resumed
        assert names(await next_of(again)) == ["api"]


async def test_list_that_was_received_and_not_processed_is_repeated(watches: SharedWatches) -> None:
    session = watches.open_session()
    async with session.watch(SELECTION) as reader:
        await next_of(reader)
    async with session.watch(SELECTION) as again:
        assert not again.is_resumed
        assert isinstance(await next_of(again), Listed)


async def test_watch_ends_with_its_last_reader_and_another_reader_opens_a_new_one(
    watches: SharedWatches, cluster: MemoryCluster
) -> None:
    first, second = watches.open_session(), watches.open_session()
    for session in (first, second):
        async with session.watch(SELECTION) as reader:
            await next_of(reader)
    first.close()
    await wait_all_tasks_blocked()
    assert cluster.watches == 1

    second.close()
    # Before the watch has ended.
    third = watches.open_session()
    async with third.watch(SELECTION) as reader:
        assert names(await next_of(reader)) == ["web"]
    await wait_all_tasks_blocked()
    assert (cluster.watches, cluster.opened) == (1, 2)


async def test_selections_that_differ_are_not_shared(watches: SharedWatches, cluster: MemoryCluster) -> None:
    session = watches.open_session()
    removers = FieldRemover(["spec"]), FieldRemover(["spec"]), FieldRemover(["status"])
    kept: list[Resource] = []
    for one in (session, watches.open_session(), watches.open_session()):
        remover = removers[len(kept)]
        async with one.watch(Selection(type=SERVICES, reduce=remover)) as reader:
            event = await next_of(reader)
            assert isinstance(event, Listed)
            kept += event.objects
    assert ["spec" in resource for resource in kept] == [False, False, True]
    assert kept[0] is kept[1]
    assert cluster.opened == 2


async def test_reader_that_is_far_behind_gets_the_list_of_all_objects(
    watches: SharedWatches, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_watches, "BUFFER", 3)
    async with watches.open_session().watch(SELECTION) as reader:
        await next_of(reader)
        for number in range(5):
            cluster.put(service(f"s{number}"))
        await wait_all_tasks_blocked()
        assert len(names(await next_of(reader))) == 6
        cluster.put(service("late"))
        assert names(await next_of(reader)) == ["late"]


async def test_error_of_a_watch_is_raised_in_every_reader_and_a_new_one_tries_again(
    watches: SharedWatches, cluster: MemoryCluster
) -> None:
    cluster.failures[SERVICES] = [OSError("no route to host")]
    sessions = [watches.open_session() for _ in range(2)]

    async def fails(session: WatchSession) -> None:
        async with session.watch(SELECTION) as reader:
            with pytest.raises(OSError, match="no route"):
                await anext(reader)

    async with trio.open_nursery() as nursery:
        for session in sessions:
            nursery.start_soon(fails, session)
    async with watches.open_session().watch(SELECTION) as reader:
        assert names(await next_of(reader)) == ["web"]


async def test_error_that_nothing_reads_ends_the_program_only_if_it_is_a_bug(cluster: MemoryCluster) -> None:
    with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            shared = SharedWatches(cluster)
            await nursery.start(shared.run)
            for error in (HapticError("again"), ZeroDivisionError("a bug")):
                session = shared.open_session()
                async with session.watch(SELECTION) as reader:
                    await next_of(reader)
                reader._watch.readers.clear()
                cluster.break_watches(SERVICES, error)
                await wait_all_tasks_blocked()


async def test_stores_are_filled_once_and_followed_by_one_reader_after_another(
    nursery: trio.Nursery, watches: SharedWatches, cluster: MemoryCluster
) -> None:
    session, store = watches.open_session(), Store("services", ("metadata.name",))
    changes: list[ResourceChanged] = []

    async def follow(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async def emit(change: ResourceChanged) -> None:
            changes.append(change)
            await trio.lowlevel.checkpoint()

        await run_reflector(
            session, SELECTION, (store,), emit, report=lambda *_: None, in_thread=True, task_status=task_status
        )

    async with trio.open_nursery() as inner:
        await inner.start(follow)
        await wait_all_tasks_blocked()
        inner.cancel_scope.cancel()
    cluster.put(service("api"))
    assert [change.initial for change in changes] == [True]
    await nursery.start(follow)
    await wait_all_tasks_blocked()
    assert [(change.initial, change.refs) for change in changes[1:]] == [(False, (ref_of(service("api")),))]
    assert len(store) == 2
    assert isinstance(session._readers[SELECTION], Reader)


async def test_a_session_goes_on_after_what_another_one_has_processed(
    watches: SharedWatches, cluster: MemoryCluster
) -> None:
    former, session, early = (watches.open_session() for _ in range(3))
    async with former.watch(SELECTION) as reader:
        early.go_on_after(former, SELECTION)
        assert names(await next_of(reader)) == ["web"]
        cluster.put(service("api"))
        await wait_all_tasks_blocked()
        assert name_of(await next_of(reader)) == "api"
        cluster.put(service("shop"))
        await wait_all_tasks_blocked()

        session.go_on_after(former, SELECTION)

        assert name_of(await next_of(reader)) == "shop"
    async with session.watch(SELECTION) as later, early.watch(SELECTION) as whole:
        assert later.is_resumed
        assert name_of(await next_of(later)) == "shop"
        former.close()
        cluster.put(service("mail"))
        assert name_of(await next_of(later)) == "mail"
        # `former` had processed nothing yet.
        assert not whole.is_resumed
        assert len(names(await next_of(whole))) > 1


async def test_watch_that_goes_on_while_another_takes_a_list_in_gets_that_list(
    watches: SharedWatches, cluster: MemoryCluster
) -> None:
    former, session = watches.open_session(), watches.open_session()
    async with former.watch(SELECTION) as reader:
        assert names(await next_of(reader)) == ["web"]
        cluster.put(service("api"))
        assert name_of(await next_of(reader)) == "api"
        # A list after an expired watch, of which the stores of `former` may have a part only.
        cluster.relist()
        assert names(await next_of(reader)) == ["web", "api"]

        session.go_on_after(former, SELECTION)
        async with session.watch(SELECTION) as later:
            assert names(await next_of(later)) == ["web", "api"]

    # The same for one that begins another iteration.
    async with former.watch(SELECTION) as reader:
        assert names(await next_of(reader)) == ["web", "api"]
        cluster.put(service("mail"))
        assert name_of(await next_of(reader)) == "mail"
