"""Terms of leadership and the stop of a controller, on a virtual clock."""

from collections import Counter

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.workqueue.fakes import FakeSource, Gate, Recorder, make_controller, make_source_controller


class TestLeadership:
    async def test_keys_gather_until_the_gate_opens_and_run_then(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        recorder, gate, source = Recorder(), Gate(), FakeSource("a")
        await nursery.start(make_source_controller(recorder).with_leader(gate).subscribe(source).run)
        for _ in range(3):
            await wait_all_tasks_blocked()
            source.put("a")
        await trio.sleep(10)
        assert recorder.runs == []
        gate.flip(True)
        await wait_all_tasks_blocked()
        assert recorder.runs == [(10.0, "a")]

    async def test_what_is_in_hand_when_the_gate_closes_is_cancelled_and_runs_in_the_next_term(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        recorder, gate = Recorder(duration=10.0), Gate()
        controller = make_controller(recorder).with_leader(gate).with_workers(2)
        controller.enqueue("a", "b", "c")
        gate.flip(True)
        await nursery.start(controller.run)
        await trio.sleep(1)
        gate.flip(False)
        await wait_all_tasks_blocked()
        assert recorder.running == 0
        await trio.sleep(1)
        gate.flip(True)
        await trio.sleep(100)
        assert Counter(recorder.keys) == {"a": 2, "b": 2, "c": 1}

    async def test_an_error_in_the_cleanup_of_a_cancelled_key_does_not_end_the_controller(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        gate = Gate()
        runs: list[str] = []

        async def fail_late() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise OSError("cleanup")

        async def reconcile(key: str) -> None:
            runs.append(key)
            if len(runs) == 1:
                async with trio.open_nursery() as inner:
                    inner.start_soon(fail_late)
                    inner.start_soon(trio.sleep_forever)

        controller = make_controller(reconcile).with_leader(gate)
        controller.enqueue("a")
        gate.flip(True)
        await nursery.start(controller.run)
        await wait_all_tasks_blocked()
        gate.flip(False)
        await wait_all_tasks_blocked()
        gate.flip(True)
        await wait_all_tasks_blocked()
        assert runs == ["a", "a"]

    async def test_without_the_lease_a_stop_is_immediate(self, autojump_clock: MockClock) -> None:
        controller = make_controller(Recorder()).with_leader(Gate())
        controller.enqueue("a")
        with trio.move_on_after(1):
            await controller.run()
        assert trio.current_time() == 1.0


class LateGate(Gate):
    """Notices a cancellation only after it has opened."""

    async def wait_held(self) -> None:
        with trio.CancelScope(shield=True):
            await super().wait_held()


class TestStop:
    async def test_gate_that_opens_after_the_stop_begins_no_term(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        recorder, gate = Recorder(duration=100.0), LateGate()
        controller = make_controller(recorder).with_leader(gate).with_shutdown(10.0, drain=True)
        controller.enqueue("a")

        async def open_gate() -> None:
            await trio.sleep(2)
            gate.flip(True)

        nursery.start_soon(open_gate)
        with trio.move_on_after(1):
            await controller.run()
        assert recorder.keys == []
        assert trio.current_time() == 2.0

    async def test_the_key_in_hand_is_finished_within_the_grace_time_and_no_other_is_begun(
        self, autojump_clock: MockClock
    ) -> None:
        recorder = Recorder(duration=3.0)
        controller = make_source_controller(recorder).subscribe(FakeSource("a", "b"))
        with trio.move_on_after(1):
            await controller.run()
        assert trio.current_time() == 3.0
        assert recorder.keys == ["a"]
        assert recorder.running == 0

    async def test_with_drain_the_ready_keys_are_finished_too(self, autojump_clock: MockClock) -> None:
        recorder = Recorder(duration=1.0)
        controller = make_controller(recorder).with_shutdown(10.0, drain=True)
        controller.enqueue("a", "b", "c")
        with trio.move_on_after(0.5):
            await controller.run()
        assert recorder.keys == ["a", "b", "c"]
        assert trio.current_time() == 3.0

    @pytest.mark.parametrize("drain", [True, False])
    async def test_after_the_grace_time_everything_is_cancelled(self, autojump_clock: MockClock, drain: bool) -> None:
        recorder = Recorder(duration=100.0)
        controller = make_controller(recorder).with_shutdown(2.0, drain=drain)
        controller.enqueue("a", "b")
        with trio.move_on_after(1):
            await controller.run()
        assert trio.current_time() == 3.0
        assert recorder.keys == ["a"]
        assert recorder.running == 0

    async def test_after_the_stop_keys_and_triggers_are_ignored(self, autojump_clock: MockClock) -> None:
        recorder = Recorder()
        controller = make_source_controller(recorder)
        with trio.move_on_after(1):
            await controller.run()
        controller.enqueue("a")
        controller.add_trigger("a", trio.lowlevel.checkpoint)
        await trio.sleep(5)
        assert recorder.runs == []
        assert controller.remove_trigger("a") is False

    async def test_an_error_that_is_not_an_exception_ends_run(self, autojump_clock: MockClock) -> None:
        async def reconcile(key: str) -> None:
            await trio.lowlevel.checkpoint()
            raise KeyboardInterrupt

        controller = make_controller(reconcile)
        controller.enqueue("a")
        with pytest.RaisesGroup(KeyboardInterrupt, flatten_subgroups=True):
            await controller.run()
