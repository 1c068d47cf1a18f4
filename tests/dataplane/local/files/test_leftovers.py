import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from haptic_trio.dataplane.local.files import leftovers, set_aside
from haptic_trio.dataplane.local.files.instance_directory import GenerationFiles
from haptic_trio.dataplane.local.files.leftovers import REMOVAL_DELAY, Leftovers
from haptic_trio.logs import get_logger
from tests.support.components.endpoints import generation


def deploy(files: GenerationFiles, text: str) -> None:
    name = files.stage(generation(text))
    files.begin(name)
    files.switch(name)
    files.commit(name, generation(text))


async def test_removal_holds_no_lock_and_waits_until_changes_after_a_load_are_applied(
    tmp_path: Path, nursery: trio.Nursery, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, lock, removing = threading.Event(), trio.Lock(), trio.Event()
    token, remove = trio.lowlevel.current_trio_token(), set_aside.remove

    def remove_slowly(paths: tuple[Path, ...]) -> None:
        token.run_sync_soon(removing.set)
        gate.wait(60)
        remove(paths)

    @asynccontextmanager
    async def exclusive() -> AsyncIterator[None]:
        async with lock:
            yield

    monkeypatch.setattr(leftovers, "remove", remove_slowly)
    files = GenerationFiles(tmp_path)
    files.recover()
    for text in ("one", "two", "three"):
        deploy(files, text)
    assert len([*(tmp_path / "generations").iterdir()]) == 3
    kept = Leftovers(files, exclusive, get_logger("test"))
    nursery.start_soon(kept.run)
    kept.request_removal()
    await trio.testing.wait_all_tasks_blocked()
    mock_clock.jump(REMOVAL_DELAY - 0.1)
    await trio.testing.wait_all_tasks_blocked()
    assert not removing.is_set()

    mock_clock.jump(0.2)
    await removing.wait()
    async with lock:
        deploy(files, "four")
    gate.set()
    while len([*(tmp_path / "generations").iterdir()]) > 3:  # noqa: ASYNC110  a thread removes files
        await trio.lowlevel.checkpoint()
    assert files.read_intact() == generation("four")


def test_files_that_haproxy_may_still_load_stay(tmp_path: Path) -> None:
    files = GenerationFiles(tmp_path)
    files.recover()
    deploy(files, "one")
    # The deployment is cut off after HAProxy was asked to reload.
    name = files.stage(generation("two"))
    files.begin(name)
    files.switch(name)

    assert files.set_aside() == ()
    assert files.path_of(name).is_file()

    # The next controller begins when the reload is over.
    files.recover()
    assert not files.path_of(name).exists()
