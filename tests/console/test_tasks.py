"""The task tree as viewers see it."""

import trio
import trio.testing

from haptic_trio.console.protocol import TaskView
from haptic_trio.console.tasks import read_tasks


def names(view: TaskView) -> list[str]:
    """Return the names of all tasks below *view*."""
    return [child.name for nursery in view.nurseries for child in nursery.tasks]


async def test_tree_names_tasks_and_what_they_wait_for() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever, name="waits forever")
        await trio.testing.wait_all_tasks_blocked()

        tree = read_tasks(trio.lowlevel.current_task())
        nursery.cancel_scope.cancel()

    (child,) = tree.root.nurseries[-1].tasks
    assert (child.name, child.waits_for) == ("waits forever", "sleep_forever")
    assert tree.shown == tree.total == 2
    assert child.place == ""


async def test_scopes_show_deadline_and_shield() -> None:
    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.deadline = trio.current_time() + 60
        nursery.cancel_scope.shield = True

        seen = read_tasks(trio.lowlevel.current_task()).root.nurseries[-1]

        assert seen.scope.deadline == nursery.cancel_scope.deadline
        assert seen.scope.shield
        assert not seen.scope.cancelled


async def test_too_many_tasks_are_counted_and_those_near_the_root_shown() -> None:
    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(trio.sleep_forever, name=f"child {number:02}")
        await trio.testing.wait_all_tasks_blocked()

        tree = read_tasks(trio.lowlevel.current_task(), most=11)
        nursery.cancel_scope.cancel()

    assert (tree.shown, tree.total, tree.root.left_out) == (11, 51, 40)
    assert names(tree.root) == [f"child {number:02}" for number in range(10)]
