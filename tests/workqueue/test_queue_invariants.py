"""Q1 to Q7, Q10 and Q11: the queue against a plain model, on a clock that the machine turns."""

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from haptic_trio.workqueue.limiter import ExponentialLimiter
from haptic_trio.workqueue.work_queue import NotProcessing, QueueShutdown, WorkQueue
from tests.support.histories import HISTORIES

KEYS = st.sampled_from("abcd")
PRIORITIES = st.sampled_from([0, 0, 0, 5, -100])
BASE, LONGEST = 0.5, 4.0


class ReadyKey:
    def __init__(self, priority: int, place: int) -> None:
        self.priority = priority
        self.place = place
        self.born = place


class QueueMachine(RuleBasedStateMachine):
    """Every call, in any order, has the effect that the model says, and no accepted key is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.places = 0
        self.gets = 0
        self.handed_over = 0
        self.ready: dict[str, ReadyKey] = {}
        self.processing: set[str] = set()
        self.dirty: dict[str, int] = {}
        self.due: dict[str, tuple[float, int, int]] = {}
        self.failures: dict[str, int] = {}
        self.delays: dict[str, float] = {}
        self.phase = "open"
        self.owed: set[str] = set()
        """Keys added since the last get of them began."""

    @initialize(collapse=st.booleans(), earlier_gets=st.integers(0, 15))
    def open_queue(self, collapse: bool, earlier_gets: int) -> None:
        self.collapse = collapse
        self.queue = WorkQueue[str](
            limiter=ExponentialLimiter(BASE, LONGEST), collapse_deferred=collapse, clock=lambda: self.now
        )
        # So that the sixteenth get, which takes the oldest key, is anywhere in the run.
        for _ in range(earlier_gets):
            self.queue.add("warm-up")
            self.queue.done(self.queue.get_nowait())
        self.gets = self.handed_over = earlier_gets

    # -- the model ---------------------------------------------------------

    def put(self, key: str, priority: int) -> None:
        self.handed_over += 1
        self.owed.add(key)
        if key in self.processing:
            self.dirty[key] = max(priority, self.dirty.get(key, priority))
        else:
            self.make_ready(key, priority)

    def make_ready(self, key: str, priority: int) -> None:
        self.places += 1
        present = self.ready.get(key)
        if present is None:
            self.ready[key] = ReadyKey(priority, self.places)
        elif priority > present.priority:
            present.priority, present.place = priority, self.places

    def defer(self, key: str, delay: float, priority: int) -> None:
        until = self.now + delay
        if delay <= 0:
            if self.collapse:
                self.due.pop(key, None)
            self.put(key, priority)
        elif not (self.collapse and (key in self.ready or key in self.dirty)):
            self.places += 1
            present = self.due.get(key)
            if present is None:
                self.due[key] = (until, self.places, priority)
            elif until < present[0]:
                self.due[key] = (until, self.places, max(priority, present[2]))
            else:
                self.due[key] = (present[0], present[1], max(priority, present[2]))

    def expected_next(self) -> str:
        if (self.gets + 1) % 16 == 0:
            return min(self.ready, key=lambda key: self.ready[key].born)
        return min(self.ready, key=lambda key: (-self.ready[key].priority, self.ready[key].place))

    # -- the calls ---------------------------------------------------------

    @rule(key=KEYS, priority=PRIORITIES)
    def add(self, key: str, priority: int) -> None:
        self.queue.add(key, priority=priority)
        if self.phase == "open":
            if self.collapse:
                self.due.pop(key, None)
            self.put(key, priority)

    @rule(
        key=KEYS, delay=st.sampled_from([-1.0, 0.0, 0.25, 1.0, 1.0, 3.0]), override=st.booleans(), priority=PRIORITIES
    )
    def add_after(self, key: str, delay: float, override: bool, priority: int) -> None:
        self.queue.add_after(key, delay, override=override, priority=priority)
        if self.phase == "open":
            if override:
                self.due.pop(key, None)
            self.defer(key, delay, priority)

    @rule(key=KEYS)
    def add_rate_limited(self, key: str) -> None:
        self.queue.add_rate_limited(key)
        if self.phase == "open":
            failures = self.failures.get(key, 0)
            delay = min(LONGEST, BASE * 2**failures)
            assert self.delays.get(key, 0.0) <= delay
            self.delays[key] = delay
            self.failures[key] = failures + 1
            self.defer(key, delay, 0)

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.queue.forget(key)
        self.failures.pop(key, None)
        self.delays.pop(key, None)

    @rule()
    def get(self) -> None:
        if self.phase == "closed" or (self.phase == "draining" and not self.ready and not self.dirty):
            with pytest.raises(QueueShutdown):
                self.queue.get_nowait()
        elif not self.ready:
            with pytest.raises(trio.WouldBlock):
                self.queue.get_nowait()
        else:
            expected = self.expected_next()
            key = self.queue.get_nowait()
            assert key == expected
            assert key not in self.processing
            self.gets += 1
            self.owed.discard(key)
            self.processing.add(key)
            assert self.queue.priority(key) == self.ready.pop(key).priority

    @rule(key=KEYS)
    def done(self, key: str) -> None:
        if key not in self.processing:
            with pytest.raises(NotProcessing):
                self.queue.done(key)
            return
        self.queue.done(key)
        self.processing.remove(key)
        if key in self.dirty:
            self.make_ready(key, self.dirty.pop(key))

    @rule(seconds=st.sampled_from([0.25, 1.0, 2.5]))
    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = sorted((until, place, key) for key, (until, place, _) in self.due.items() if until <= self.now)
        assert self.queue.release_due() == len(due)
        for _, _, key in due:
            self.put(key, self.due.pop(key)[2])

    @precondition(lambda self: self.places > 5)
    @rule(drain=st.booleans())
    def shut_down(self, drain: bool) -> None:
        self.queue.shutdown(drain=drain)
        self.phase = "draining" if drain and self.phase != "closed" else "closed"
        self.due.clear()

    # -- what always holds -------------------------------------------------

    @invariant()
    def agrees_with_the_model(self) -> None:
        if not hasattr(self, "queue"):
            return
        snapshot = self.queue.snapshot()
        ready = [item.key for item in snapshot.ready]
        assert len(ready) == len(set(ready)) == len(self.queue)
        assert ready == sorted(self.ready, key=lambda key: (-self.ready[key].priority, self.ready[key].place))
        assert [item.priority for item in snapshot.ready] == [self.ready[key].priority for key in ready]
        assert {item.key: item.is_dirty for item in snapshot.processing} == {
            key: key in self.dirty for key in self.processing
        }
        assert not set(ready) & self.processing
        assert {item.key: item.due_in + self.now for item in snapshot.deferred} == {
            key: until for key, (until, _, _) in self.due.items()
        }
        assert all(self.queue.retries(key) == self.failures.get(key, 0) for key in "abcd")
        assert self.gets <= self.handed_over

    def teardown(self) -> None:
        """Finish everything: each key that was ever accepted is got again after its last add."""
        if not hasattr(self, "queue") or self.phase == "closed":
            return
        for _ in range(len(self.due)):
            self.advance(LONGEST + 1)
        for _ in range(50):
            for key in tuple(self.processing):
                self.done(key)
            if not self.ready:
                break
            self.get()
        assert not self.owed
        snapshot = self.queue.snapshot()
        assert (snapshot.ready, snapshot.processing, snapshot.deferred) == ((), (), ())


TestQueueMachine = pytest.mark.slow(QueueMachine.TestCase)
TestQueueMachine.settings = settings(max_examples=HISTORIES, stateful_step_count=25)
