import os
from pathlib import Path

import trio
from trio.testing import wait_all_tasks_blocked

from haptic_trio.config.load import load_config
from haptic_trio.k8s.client import Selection
from haptic_trio.k8s.shared_watches import SharedWatches
from haptic_trio.stages.components import build_components
from tests.support.components.controller import SERVICES, ControllerRig, config_map
from tests.support.components.endpoints import generation


async def test_closed_components_leave_no_watch_and_no_file(nursery: trio.Nursery, tmp_path: Path) -> None:
    rig = ControllerRig(tmp_path)
    watches = SharedWatches(rig.cluster)
    await nursery.start(watches.run)
    loaded = load_config(config_map(), None)
    process = rig.process
    components = await build_components(process, loaded, process.retained.contents, process.events, watches)
    async with components.watches.watch(Selection(type=SERVICES)) as events:
        await anext(events)
    components.directory.write(generation("a"))
    assert (rig.cluster.watches, len(os.listdir(tmp_path))) == (1, 1)  # noqa: PTH208

    with trio.CancelScope() as scope:
        scope.cancel()
        await components.aclose()

    await wait_all_tasks_blocked()
    assert (rig.cluster.watches, os.listdir(tmp_path)) == (0, [])  # noqa: PTH208
