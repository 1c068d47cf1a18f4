"""One-shot waits that make a key run when they return."""

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import trio

from haptic_trio.workqueue.limiter import Limiter
from haptic_trio.workqueue.outcome import contained

K = TypeVar("K", bound=Hashable)

Wait = Callable[[], Awaitable[None]]


class _Trigger:
    def __init__(self, wait: Wait) -> None:
        self.wait = wait
        self.scope = trio.CancelScope()


class Triggers(Generic[K]):
    """At most one armed trigger a key; each runs in a task of its own and fires once.

    A trigger that was removed, replaced, or cancelled never fires, not even
    if its wait had just returned.
    """

    def __init__(self, limiter: Limiter[K]) -> None:
        """*limiter* delays the keys whose waits fail; a wait that returns resets it."""
        self._limiter = limiter
        self._armed: dict[K, _Trigger] = {}
        self._unstarted: list[K] = []
        self._added = trio.lowlevel.ParkingLot()

    def set_limiter(self, limiter: Limiter[K]) -> None:
        """Use *limiter* from now on."""
        self._limiter = limiter

    def __contains__(self, key: K) -> bool:
        return key in self._armed

    def add(self, key: K, wait: Wait) -> None:
        """Arm a trigger for *key* in place of an earlier one; its wait begins once run() does."""
        self.remove(key)
        self._armed[key] = _Trigger(wait)
        self._unstarted.append(key)
        self._added.unpark()

    def remove(self, key: K) -> bool:
        """Disarm the trigger of *key*, without waiting for its task; False if none was armed."""
        trigger = self._armed.pop(key, None)
        if trigger is None:
            return False
        trigger.scope.cancel(reason="trigger removed")
        return True

    async def run(self, fire: Callable[[K, float], None], *, on_error: Callable[[K, Exception], None]) -> None:
        """Run the armed triggers until cancelled.

        *fire* gets the key and a delay in seconds: 0, or the limiter's after
        an error.
        """
        async with trio.open_nursery() as nursery:
            while True:
                keys, self._unstarted = self._unstarted, []
                # A trigger that was replaced before it started has its key here twice.
                for key in dict.fromkeys(keys):
                    if (trigger := self._armed.get(key)) is not None:
                        nursery.start_soon(self._run_one, key, trigger, fire, on_error)
                if not self._unstarted:
                    await self._added.park()

    async def _run_one(
        self,
        key: K,
        trigger: _Trigger,
        fire: Callable[[K, float], None],
        on_error: Callable[[K, Exception], None],
    ) -> None:
        errors: list[Exception] = []
        with contained(errors.append), trigger.scope:
            # A scope that is cancelled already would let the wait run to its first checkpoint.
            if self._armed.get(key) is trigger:
                await trigger.wait()
        for error in errors:
            on_error(key, error)
        if self._armed.get(key) is not trigger:
            return
        del self._armed[key]
        if errors:
            fire(key, self._limiter.next_retry(key))
        else:
            self._limiter.forget(key)
            fire(key, 0.0)
