"""Runtime changes reach the files that HAProxy loads, whatever the disk does meanwhile."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from haptic_trio import cancellation
from haptic_trio.dataplane.local import instance
from haptic_trio.dataplane.local.check import CheckDirectory
from haptic_trio.dataplane.local.files.instance_directory import GenerationFiles
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import Generation
from tests.support.processes.haproxy import instances, mapping
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "WRITE_OUT_INTERVAL", 0.02)


class Writes:
    """Attempts to write out runtime changes, the first of which fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, failures: int = 0) -> None:
        self.failures = failures
        self.attempts = 0
        self.done = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        self._join = GenerationFiles.join
        monkeypatch.setattr(GenerationFiles, "join", self._attempt(self._join))

    def _attempt(self, join: object) -> object:
        def attempt(files: GenerationFiles, generation: Generation) -> None:
            self.attempts += 1
            if self.attempts <= self.failures:
                raise OSError(28, "No space left on device")
            self._join(files, generation)
            self._token.run_sync_soon(self.done.set)

        return attempt


async def test_write_out_that_meets_a_full_disk_is_logged_and_retried(
    instance_root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = Writes(monkeypatch, failures=2)
    port = free_port()
    with capture_logs() as logs:
        async with instances(instance_root, haproxy_binary) as (agent,):
            await sync_endpoint(agent, mapping(port, {"a.example": "1"}))
            assert not (await sync_endpoint(agent, mapping(port, {"a.example": "2"}))).reloaded
            with trio.fail_after(30):
                await writes.done.wait()

    assert writes.attempts == 3
    failures = [entry for entry in logs if entry["event"] == "runtime changes are not written out"]
    assert len(failures) == 2
    assert all("No space left on device" in entry["error"] for entry in failures)


async def test_files_of_checks_are_removed_off_the_event_loop(
    instance_root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = list[int]()
    remove = CheckDirectory.remove

    def record(directory: CheckDirectory) -> None:
        threads.append(threading.get_ident())
        remove(directory)

    monkeypatch.setattr(CheckDirectory, "remove", record)
    async with instances(instance_root, haproxy_binary):
        pass

    assert threads
    assert threading.get_ident() not in threads


@pytest.fixture
def volume() -> Iterator[threading.Event]:
    """Return the event at which a hung volume works again."""
    works = threading.Event()
    yield works
    works.set()


async def test_instance_ends_although_the_volume_of_its_checks_hangs(
    instance_root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch, volume: threading.Event
) -> None:
    monkeypatch.setattr(CheckDirectory, "remove", lambda _directory: volume.wait())
    monkeypatch.setattr(cancellation, "CLEANUP_LIMIT", 0.05)
    with capture_logs() as logs:
        async with instances(instance_root, haproxy_binary):
            pass

    assert "removing files takes too long: it goes on in the background" in [entry["event"] for entry in logs]
