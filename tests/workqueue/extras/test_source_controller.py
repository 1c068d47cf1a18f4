"""Sources and triggers of a controller, on a virtual clock."""

from collections import Counter
from collections.abc import Iterable

import pytest
import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.workqueue.extras.source_controller import SourceController
from tests.workqueue.fakes import FakeSource, Recorder, make_source_controller


class TestFeeding:
    async def test_ten_workers_reconcile_each_of_200_listed_objects_exactly_once(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        recorder = Recorder(duration=1.0)
        objects = [f"object-{number}" for number in range(200)]
        controller = make_source_controller(recorder).with_workers(10).subscribe(FakeSource(*objects))
        await nursery.start(controller.run)
        await trio.sleep(100)
        assert Counter(recorder.keys) == Counter(objects)
        assert recorder.most_running == 10
        assert max(at for at, _ in recorder.runs) == 19.0

    async def test_transformers_take_the_place_of_the_objects_own_key(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        recorder = Recorder()

        def owners(obj: str) -> Iterable[str]:
            return [f"owner-of-{obj}", "everybody"]

        def nothing(obj: str) -> Iterable[str]:
            return ["everybody"] if obj == "a" else []

        controller = make_source_controller(recorder).subscribe(FakeSource("a"), owners, nothing)
        controller.subscribe(FakeSource("silent"), nothing)
        await nursery.start(controller.run)
        await wait_all_tasks_blocked()
        assert recorder.keys == ["owner-of-a", "everybody"]

    async def test_every_subscription_delivers_all_its_objects(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        recorder = Recorder()
        controller = make_source_controller(recorder).with_workers(3)
        kinds = ["ingress", "service", "endpoints", "secret", "gateway", "route", "class", "config"]
        for kind in kinds:
            source = FakeSource(*(f"object-{number}" for number in range(200)))
            controller.subscribe(source, lambda obj, kind=kind: [f"{kind}/{obj}"])  # type: ignore[misc]
        await nursery.start(controller.run)
        await wait_all_tasks_blocked()
        assert Counter(key.split("/")[0] for key in set(recorder.keys)) == dict.fromkeys(kinds, 200)
        assert len(recorder.keys) == 8 * 200

    async def test_live_changes_overtake_the_keys_of_a_listing(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        recorder = Recorder(duration=1.0)
        source = FakeSource("a", "b", "c")
        await nursery.start(make_source_controller(recorder).subscribe(source).run)
        await wait_all_tasks_blocked()
        source.put("urgent")
        await trio.sleep(10)
        assert recorder.keys == ["a", "urgent", "b", "c"]

    async def test_a_source_that_fails_is_followed_again_and_missed_deletes_are_reconciled(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        recorder = Recorder()
        source = FakeSource("a", "b")
        await nursery.start(make_source_controller(recorder).subscribe(source).run)
        await wait_all_tasks_blocked()
        recorder.runs.clear()
        source.break_streams(OSError("reset"))
        await wait_all_tasks_blocked()
        source.delete("b")
        source.forget_history()
        await trio.sleep(5)
        assert source.streams == 2
        assert sorted(recorder.keys) == ["a", "b"]

    async def test_strict_ends_run_with_the_error_of_the_source(self, autojump_clock: MockClock) -> None:
        source = FakeSource("a")
        controller = SourceController(Recorder(), name="demo", key_of=str, strict=True).subscribe(source)

        async def break_it() -> None:
            await wait_all_tasks_blocked()
            source.break_streams(OSError("reset"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(break_it)
            with pytest.RaisesGroup(pytest.RaisesExc(OSError, match="reset")):
                await controller.run()

    async def test_an_object_that_a_transformer_fails_for_is_skipped_and_logged(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        recorder = Recorder()

        def map_object(obj: str) -> list[str]:
            if obj == "bad":
                raise ValueError(obj)
            return [obj]

        controller = make_source_controller(recorder).subscribe(FakeSource("a", "bad", "b"), map_object)
        with structlog.testing.capture_logs() as lines:
            await nursery.start(controller.run)
            await wait_all_tasks_blocked()
        assert recorder.keys == ["a", "b"]
        assert [line["event"] for line in lines] == ["event skipped"]

    async def test_keys_enqueued_before_run_are_kept_for_it(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        recorder = Recorder()
        controller = make_source_controller(recorder)
        controller.enqueue("a", "b")
        controller.enqueue("first", priority=1)
        assert controller.snapshot() is None
        await nursery.start(controller.run)
        await wait_all_tasks_blocked()
        assert recorder.keys == ["first", "a", "b"]

    async def test_a_subscription_needs_a_way_from_objects_to_keys(self) -> None:
        with pytest.raises(ValueError, match="key_of"):
            SourceController(Recorder(), name="demo").subscribe(FakeSource())

    async def test_sources_cannot_be_added_once_run_has_begun(self, autojump_clock: MockClock) -> None:
        controller = make_source_controller(Recorder()).subscribe(FakeSource())
        with trio.move_on_after(1):
            await controller.run()
        with pytest.raises(RuntimeError, match="has run"):
            controller.subscribe(FakeSource())


class TestTriggers:
    async def test_a_trigger_runs_its_key_once_and_must_be_armed_again(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        recorder = Recorder()
        controller = make_source_controller(recorder)
        ready = trio.Event()
        controller.add_trigger("a", ready.wait)
        await nursery.start(controller.run)
        await trio.sleep(1)
        assert recorder.runs == []
        ready.set()
        await trio.sleep(1)
        assert recorder.keys == ["a"]
        controller.add_trigger("a", ready.wait)
        await trio.sleep(1)
        assert recorder.keys == ["a", "a"]

    async def test_a_replaced_or_removed_trigger_runs_nothing(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        recorder = Recorder()
        controller = make_source_controller(recorder)
        await nursery.start(controller.run)
        old, new = trio.Event(), trio.Event()
        controller.add_trigger("a", old.wait)
        await wait_all_tasks_blocked()
        controller.add_trigger("a", new.wait)
        old.set()
        await wait_all_tasks_blocked()
        assert controller.remove_trigger("a") is True
        assert controller.remove_trigger("a") is False
        new.set()
        await wait_all_tasks_blocked()
        assert recorder.runs == []

    async def test_a_reconciler_can_watch_a_store_by_arming_a_trigger_each_time(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        store = FakeSource("a")
        seen: list[list[str]] = []
        changed = [trio.Event()]

        async def reconcile(key: str) -> None:
            await trio.lowlevel.checkpoint()
            seen.append(list(store.objects))
            controller.add_trigger(key, changed[-1].wait)

        controller = make_source_controller(reconcile)
        controller.enqueue("all")
        await nursery.start(controller.run)
        for obj in ("b", "c"):
            await wait_all_tasks_blocked()
            store.put(obj)
            changed.append(trio.Event())
            changed[-2].set()
        await wait_all_tasks_blocked()
        assert seen == [["a"], ["a", "b"], ["a", "b", "c"]]

    async def test_a_trigger_that_fails_at_once_and_is_armed_again_is_not_a_hot_loop(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        runs: list[float] = []

        async def fail() -> None:
            await trio.lowlevel.checkpoint()
            raise OSError("no")

        async def reconcile(key: str) -> None:
            await trio.lowlevel.checkpoint()
            runs.append(trio.current_time())
            controller.add_trigger(key, fail)

        controller = make_source_controller(reconcile).with_backoff(1.0, 8.0)
        controller.enqueue("a")
        await nursery.start(controller.run)
        await trio.sleep(30)
        assert runs == [0.0, 1.0, 3.0, 7.0, 15.0, 23.0]
