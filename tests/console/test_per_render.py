"""A value of a render is computed once for it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from haptic_trio.console.configuration import Configuration, NotNowError
from haptic_trio.console.per_render import PerRender


class Plumbing:
    """Stands for a pipeline: something that can be referred to weakly."""


class Renders:
    """Stands for the configuration: answers for the render *serial* of a pipeline, or not now."""

    def __init__(self) -> None:
        self.pipeline = Plumbing()
        self.serial = 1
        self.is_busy = False
        self.computed = 0

    async def consult(self, ask: Callable[..., Any]) -> Any:
        """Call *ask* for the newest render; a computation takes a second."""
        if self.is_busy:
            raise NotNowError("retry soon")
        before = self.computed
        answer = ask(SimpleNamespace(pipeline=self.pipeline), SimpleNamespace(serial=self.serial), None)
        await trio.sleep(self.computed - before)
        return answer

    def compute(self, *_arguments: object) -> str:
        """Count, and return a value."""
        self.computed += 1
        return f"value {self.computed}"


def make_value(renders: Renders) -> PerRender[str]:
    return PerRender(cast("Configuration", renders), renders.compute)


async def test_a_value_is_computed_once_for_each_render_and_iteration(autojump_clock: trio.testing.MockClock) -> None:
    renders = Renders()
    value = make_value(renders)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(value.get)
    assert renders.computed == 1
    renders.serial = 2
    newest = await value.get()
    assert (newest.serial, newest.value) == (2, "value 2")
    renders.pipeline = Plumbing()
    await value.get()
    assert renders.computed == 3

    value.forget()
    renders.is_busy = True
    with pytest.raises(NotNowError):
        await value.get()


async def test_followers_cost_a_tenth_of_the_time_at_most(autojump_clock: trio.testing.MockClock) -> None:
    renders = Renders()
    value = make_value(renders)
    await value.get(patient=True)

    for serial in range(2, 22):
        renders.serial = serial
        await trio.sleep(1)
        await value.get(patient=True)
    assert renders.computed == 3

    # A request has the newest one, and while changes wait for their render the former one.
    assert (await value.get()).serial == 21
    renders.is_busy = True
    assert (await value.get()).serial == 21
