import threading
from collections.abc import Iterator

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from haptic_trio.dataplane.local.files.last_write import WRITE_LIMIT, LastWrite


@pytest.fixture
def volume() -> Iterator[threading.Event]:
    """Return the event at which a hung volume works again."""
    works = threading.Event()
    yield works
    works.set()


async def test_write_of_a_cancelled_deployment_is_finished() -> None:
    last_write, written = LastWrite(), list[str]()
    with trio.CancelScope() as scope:
        scope.cancel()
        await last_write.finish(lambda: written.append("journal"))

    assert written == ["journal"]
    assert not last_write.is_running


async def test_error_of_the_disk_is_raised() -> None:
    def fail() -> None:
        raise OSError("disk full")

    last_write = LastWrite()
    with pytest.raises(OSError, match="disk full"):
        await last_write.finish(fail)
    assert not last_write.is_running


async def test_hung_volume_is_left_behind_and_its_files_are_not_used(
    autojump_clock: MockClock, volume: threading.Event
) -> None:
    last_write, began, ended = LastWrite(), threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        volume.wait()
        ended.set()

    with trio.CancelScope() as scope:
        scope.cancel()
        with pytest.raises(TimeoutError, match="took longer than 30 s"):
            await last_write.finish(hang)

    assert trio.current_time() == WRITE_LIMIT
    await trio.to_thread.run_sync(began.wait)
    assert last_write.is_running
    volume.set()
    await trio.to_thread.run_sync(ended.wait)
    with trio.fail_after(1000):
        while last_write.is_running:  # noqa: ASYNC110  a thread changes it
            await trio.lowlevel.checkpoint()
