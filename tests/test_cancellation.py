import threading
from collections.abc import Iterator
from functools import partial

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from haptic_trio import cancellation
from haptic_trio.cancellation import cancelled_first, clean_up_in_thread, finish_despite_cancel


@pytest.fixture
def volume() -> Iterator[threading.Event]:
    """Return the event at which a hung volume works again."""
    works = threading.Event()
    yield works
    works.set()


async def test_cancelled_task_cleans_up_off_the_event_loop() -> None:
    threads = list[int]()
    with trio.CancelScope() as scope:
        scope.cancel()
        await clean_up_in_thread(lambda: threads.append(threading.get_ident()))

    assert threads
    assert threading.get_ident() not in threads


def _wait(volume: threading.Event) -> None:
    volume.wait()


async def test_cleanup_on_a_hung_volume_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, volume: threading.Event
) -> None:
    monkeypatch.setattr(cancellation, "CLEANUP_LIMIT", 0.05)
    with capture_logs() as logs, trio.CancelScope() as scope:
        scope.cancel()
        await clean_up_in_thread(partial(_wait, volume))

    assert [entry["event"] for entry in logs] == ["removing files takes too long: it goes on in the background"]


async def test_other_tasks_end_after_the_one_that_is_cancelled_first(autojump_clock: MockClock) -> None:
    story: list[str] = []

    async def serve() -> None:
        try:
            await trio.sleep_forever()
        finally:
            story.append("server ends")

    async def run() -> None:
        async with cancelled_first() as first, trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            with first:
                try:
                    await trio.sleep_forever()
                finally:
                    with trio.move_on_after(5, shield=True):
                        await trio.sleep_forever()
                    story.append("first ends")
            nursery.cancel_scope.cancel()

    with trio.move_on_after(1):
        await run()

    assert story == ["first ends", "server ends"]
    assert trio.current_time() == 6


async def test_finish_despite_cancel_raises_what_the_work_raises(autojump_clock: MockClock) -> None:
    async def work() -> None:
        await trio.sleep(1)
        raise ValueError("broken")

    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="broken")):
        await finish_despite_cancel(work, grace=5)
