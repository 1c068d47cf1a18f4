"""A thousand reinitialisations leave nothing behind."""

import gc
import os
import sys
import threading
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from haptic_trio.messages import IterationEnded
from tests.support.components.controller import ControllerRig, config_map
from tests.support.kubernetes import service
from tests.support.processes.haproxy import paths_named

pytestmark = pytest.mark.soak

ITERATIONS = 1000
WARM = 200
"""Iterations after which everything that is allocated once has been."""
MAX_GROWTH = 8 << 20
"""Bytes; coarse, for what Python's allocator does not count: the C library's heap breathes by megabytes."""
MAX_OBJECTS = (ITERATIONS - WARM) // 4
"""Fewer than one per iteration, so that a leak of one per iteration is found."""
MAX_THREADS = 10
"""Trio keeps idle threads for ten seconds; how many it had to start depends on the other load of the machine."""
MAX_BLOCKS = 4 * (ITERATIONS - WARM)
"""Trio keeps the deadlines of up to a thousand ended scopes, of three blocks each."""


class Footprint(msgspec.Struct, frozen=True, kw_only=True):
    """What the process holds at a moment."""

    tasks: int
    descriptors: int
    threads: int
    objects: int
    """Objects that may hold others, without cancel scopes: Trio keeps up to a thousand ended ones for a while."""
    blocks: int
    """What Python's allocator has given out: everything that is small, strings and numbers included."""
    resident: int
    """Bytes of the process that are in memory."""


def text_of(iteration: int) -> int:
    """Return which of a few configurations an iteration runs: what is cached by content must not look like a leak."""
    return 100 + iteration % 50


def count_tasks(task: trio.lowlevel.Task) -> int:
    """Return how many tasks there are, *task* and all below it."""
    return 1 + sum(count_tasks(child) for nursery in task.child_nurseries for child in nursery.child_tasks)


def is_deadline(each: object) -> bool:
    """Return whether *each* is a cancel scope, or an entry of one in the heap of deadlines."""
    members = each if type(each) is tuple else (each,)
    return any(isinstance(member, trio.CancelScope) for member in members)


async def settle(rig: ControllerRig) -> None:
    """Return when the files of former iterations are removed, which is done in the background."""
    with trio.fail_after(60):
        while len([*rig.process.scratch.glob("haptic-trio-check-*")]) > 1:  # noqa: ASYNC110  a thread removes files
            await trio.sleep(0.01)
    await trio.testing.wait_all_tasks_blocked(0.05)


def footprint() -> Footprint:
    gc.collect()
    root = trio.lowlevel.current_root_task()
    assert root is not None
    return Footprint(
        tasks=count_tasks(root),
        descriptors=sum(1 for _ in Path("/proc/self/fd").iterdir()),
        threads=threading.active_count(),
        objects=sum(not is_deadline(each) for each in gc.get_objects()),
        blocks=sys.getallocatedblocks(),
        resident=int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
    )


async def test_thousand_reinitialisations_leak_no_task_descriptor_thread_or_memory(tmp_path: Path) -> None:
    rig = ControllerRig(tmp_path)
    rig.cluster.put(config_map(number=text_of(1)), *(service(f"web-{number}") for number in range(5)))
    early: Footprint | None = None
    async with rig.running(within=400):
        for number in range(1, ITERATIONS + 1):
            await rig.deployed(f"maxconn {text_of(number)}\n")
            if number == WARM:
                await settle(rig)
                early = footprint()
            if number < ITERATIONS:
                # The log of the test itself is no leak.
                rig.forget()
                rig.cluster.put(config_map(number=text_of(number + 1)))
        await settle(rig)
        late = footprint()
        assert rig.events.all(IterationEnded)[-1].iteration == ITERATIONS - 1

    assert early is not None
    assert late.tasks <= early.tasks
    assert late.descriptors <= early.descriptors
    assert late.threads - early.threads < MAX_THREADS
    assert late.objects - early.objects < MAX_OBJECTS
    assert late.blocks - early.blocks < MAX_BLOCKS
    assert late.resident - early.resident < MAX_GROWTH
    assert rig.cluster.watches == 0
    assert paths_named(tmp_path, "*") == []
