"""Heavy changes: objects on which so many fragments depend that one cycle would delay the changes of others.

Such a change waits, and readers of the stores see the former version of its
object. Meanwhile what depends on it is rendered ahead, in steps between the
cycles (see `templating.incremental.ahead`). Then the change is taken in as a
whole: what was rendered replaces the former output, in one cycle.
"""

from math import inf
from typing import Final

from haptic_trio.k8s.resource import Resource, ResourceRef
from haptic_trio.k8s.store import Stores
from haptic_trio.pipeline.render import Renderer

MOST_DEPENDENTS: Final = 300
"""Turns that the changed objects of a namespace may make pending in one cycle, unless few depend on each."""


_MOST_REPEATED: Final = 2
"""Times that all turns of a change may render ahead, on average, before changes of other namespaces go first."""


class HeavyChanges:
    """Decides which changes are heavy, and renders ahead for one of them at a time."""

    def __init__(self, stores: Stores, renderer: Renderer) -> None:
        self._stores = stores
        self._renderer = renderer
        self._current: ResourceRef | None = None
        self._versions: dict[str, Resource | None] = {}
        self._most: int | None = None
        """Turns after which the present change lets those of other namespaces go first; None before its first step."""
        self._is_ready = False
        self._released: ResourceRef | None = None

    @property
    def is_ready(self) -> bool:
        """Whether `take_in` would take in a change."""
        return self._is_ready

    def put_back(self) -> None:
        """Undo heavy changes in the stores before a render. The caller holds the turn of the pipeline."""
        is_limited = self._stores.intake.is_limited
        self._renderer.most_dependents = MOST_DEPENDENTS if is_limited else inf
        if is_limited:
            for ref in self._renderer.find_heavy(self._stores, MOST_DEPENDENTS):
                if ref != self._released:
                    self._stores.put_back(ref)
                    self._renderer.forget(ref)

    def settle(self) -> None:
        """Take note that a render has seen the stores."""
        self._stores.settle()
        self._released = None
        intake = self._stores.intake
        for ref in self._renderer.held:
            # Its place among those that wait stays.
            if not intake.holds(ref):
                intake.hold(ref)

    def take_in(self) -> None:
        """Take in the change that has been rendered ahead, if there is one. The stores are not frozen."""
        self._follow()
        if self._current is None or not self._is_ready:
            return
        self._stores.release(self._current, self._versions)
        self._renderer.release(self._current)
        self._released, self._current, self._most, self._is_ready = self._current, None, None, False

    async def render(self) -> None:
        """Render one step ahead for a heavy change, if there is one. The caller holds the turn of the pipeline."""
        # What is rendered ahead is used with the former versions of these.
        self.put_back()
        self._follow()
        intake = self._stores.intake
        if self._current is None:
            self._current = intake.next_heavy()
            if self._current is None:
                return
            self._versions = self._stores.waiting(self._current)
            if not self._versions and self._current not in self._renderer.held:
                self._stores.intake.forget(self._current)
                self._current = None
                return
        if not self._is_ready:
            with self._stores.frozen():
                left = await self._renderer.render_ahead(self._current, self._versions, intake.seconds)
            self._is_ready = not left
            made = self._renderer.made_ahead
            if self._most is None:
                self._most = _MOST_REPEATED * (made + left) + MOST_DEPENDENTS
            elif left and made > self._most and intake.holds_of_others(self._current.namespace):
                # What depends on it changes faster than it is rendered. It begins again when it has its next turn.
                self._give_up()

    def _follow(self) -> None:
        """Forget the present change if it waits no longer, or if its object is deleted now."""
        if self._current is None:
            return
        newest = self._stores.waiting(self._current)
        if (not newest and self._current not in self._renderer.held) or (
            None in newest.values() and None not in self._versions.values()
        ):
            self._give_up()

    def _give_up(self) -> None:
        self._current, self._most, self._is_ready = None, None, False
        self._renderer.forget_ahead()
