"""Live tree of Trio tasks, from Trio's public API."""

import math
from types import CodeType, FrameType

import trio

from haptic_trio.console.protocol import NurseryView, ScopeView, TaskTree, TaskView

MOST_TASKS = 500
MOST_DEPTH = 60
_PACKAGE = "haptic_trio."


class _Budget:
    def __init__(self, tasks: int) -> None:
        self.left = tasks
        self.total = 0


def read_tasks(root: trio.lowlevel.Task | None = None, *, most: int = MOST_TASKS) -> TaskTree:
    """Return the tree below *root*, or of all tasks; limited to the *most* tasks nearest to the root."""
    top = root or trio.lowlevel.current_root_task()
    assert top is not None
    budget = _Budget(most)
    chosen = _choose(top, budget)
    return TaskTree(root=_read(top, chosen), shown=len(chosen), total=budget.total)


def _choose(top: trio.lowlevel.Task, budget: _Budget) -> set[trio.lowlevel.Task]:
    """Return the tasks to show, breadth first: one nursery of thousands must not hide all others."""
    chosen: set[trio.lowlevel.Task] = set()
    level = [top]
    for _depth in range(MOST_DEPTH):
        budget.total += len(level)
        taken = level[: max(0, budget.left)]
        budget.left -= len(taken)
        chosen.update(taken)
        level = [child for task in level for nursery in task.child_nurseries for child in _ordered(nursery)]
        if not level:
            break
    return chosen


def _read(task: trio.lowlevel.Task, chosen: set[trio.lowlevel.Task]) -> TaskView:
    nurseries = []
    left_out = 0
    for nursery in task.child_nurseries:
        children = _ordered(nursery)
        shown = [child for child in children if child in chosen]
        left_out += len(children) - len(shown)
        tasks = tuple(_read(child, chosen) for child in shown)
        nurseries.append(NurseryView(scope=_scope(nursery.cancel_scope), tasks=tasks))
    place, waits_for = _waits(task)
    return TaskView(
        name=task.name.removeprefix(_PACKAGE),
        place=place,
        waits_for=waits_for,
        nurseries=tuple(nurseries),
        left_out=left_out,
    )


def _ordered(nursery: trio.Nursery) -> list[trio.lowlevel.Task]:
    # `child_tasks` is a set: sort it for a stable order.
    return sorted(nursery.child_tasks, key=lambda task: (task.name, id(task)))


def _scope(scope: trio.CancelScope) -> ScopeView:
    deadline = None if math.isinf(scope.deadline) else scope.deadline
    return ScopeView(deadline=deadline, shield=scope.shield, cancelled=scope.cancel_called)


def _waits(task: trio.lowlevel.Task) -> tuple[str, str]:
    place = waits_for = ""
    for frame, line in task.iter_await_frames():
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(_PACKAGE):
            place = f"{module.removeprefix(_PACKAGE)}:{line} {frame.f_code.co_name}"
        if not module.startswith("trio._core"):
            waits_for = _name_of(frame)
    return place, waits_for


def _name_of(frame: FrameType) -> str:
    code: CodeType = frame.f_code
    return code.co_qualname
