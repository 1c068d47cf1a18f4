"""Accepted contents are written to disk, used by the next process while servers fail, and removed once unused."""

import time
from collections.abc import Callable
from pathlib import Path

import trio
from trio.testing import MockClock

from haptic_trio.errors import Problem
from haptic_trio.httpstore.content import FetchError
from haptic_trio.httpstore.content_files import ContentFiles
from haptic_trio.httpstore.entry import ContentMemory
from haptic_trio.httpstore.events import FetchProblem
from haptic_trio.httpstore.keeping import RETRY, keep_contents
from tests.support.components.contents import Kept, Servers, request_of

URL = "https://lists.example.com/deny.txt"
OTHER = "https://lists.example.com/other.txt"
DOWN = FetchError("the server answered 503")


class Process:
    """Store and files of one process with the state *directory*."""

    def __init__(self, directory: Path, servers: Servers) -> None:
        self.memory = ContentMemory(ContentFiles(directory))
        self.kept = Kept(servers, memory=self.memory)
        self.reported: list[object] = []

    async def run(self) -> None:
        """Keep the contents."""
        await keep_contents(self.memory, self.reported.append)

    def problem(self) -> str:
        """Return the last problem of a fetch."""
        event = self.kept.reported(FetchProblem)[-1]
        assert isinstance(event, FetchProblem)
        return str(event.problem)


def files_in(directory: Path) -> list[Path]:
    """Return the files of contents."""
    return list(directory.glob("*.content"))


async def until(is_reached: Callable[[], bool]) -> None:
    """Return once *is_reached*; threads need real time, whatever the virtual clock does."""
    for _ in range(6_000):
        if is_reached():
            return
        await trio.to_thread.run_sync(time.sleep, 0.01)
    raise AssertionError


async def written(directory: Path, number: int) -> None:
    """Return once *directory* has *number* contents."""
    await until(lambda: len(files_in(directory)) == number)


async def stored(directory: Path, texts: dict[str, str | FetchError], nursery: trio.Nursery) -> Process:
    """Return a process that has accepted *texts* and written them."""
    process = Process(directory, Servers(texts))
    await process.kept.want(*map(request_of, texts))
    process.kept.accept()
    nursery.start_soon(process.run)
    await written(directory, len(texts))
    return process


async def test_next_process_uses_the_stored_content_as_a_pending_one_where_its_server_fails(
    tmp_path: Path, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await stored(tmp_path, {URL: "one"}, nursery)
    after = Process(tmp_path, Servers({URL: DOWN}))
    request = request_of(URL, interval=60)
    await after.kept.want(request)

    assert after.kept.text(request) == "one"
    # Another version of HAProxy, or another template, may reject it.
    assert list(after.kept.store.pending()) == [request.key]
    assert after.problem().startswith(
        f"{URL}: the server answered 503; the content that was stored before the restart is used: it is "
    )
    assert after.problem().endswith("s old")
    age = after.kept.store.oldest(trio.current_time())
    assert age is not None
    assert age >= 0


async def test_answer_of_the_server_counts_more_than_the_stored_content(
    tmp_path: Path, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await stored(tmp_path, {URL: "one"}, nursery)
    after = Process(tmp_path, Servers({URL: "two"}))
    await after.kept.want(request_of(URL))

    assert after.kept.text(request_of(URL)) == "two"
    assert after.kept.reported(FetchProblem) == []


async def test_stored_content_is_used_where_the_fetch_is_not_made_in_time(
    tmp_path: Path, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await stored(tmp_path, {URL: "one"}, nursery)
    after = Process(tmp_path, Servers({URL: "two"}, seconds=100))
    request = request_of(URL, interval=60)
    await after.kept.want(request)
    assert after.kept.text(request) == "one"
    nursery.start_soon(after.kept.run)

    await after.kept.wait_changed()

    assert after.kept.text(request) == "two"


async def test_damaged_file_is_part_of_the_problem_and_gives_no_content(
    tmp_path: Path, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await stored(tmp_path, {URL: "one"}, nursery)
    (path,) = files_in(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    after = Process(tmp_path, Servers({URL: DOWN}))
    await after.kept.want(request_of(URL))

    assert after.kept.text(request_of(URL)) == "[the server answered 503]"
    assert after.problem() == (
        f"{URL}: the server answered 503; there is no content, and the stored one is ignored:"
        f" {path}: the file is damaged: its checksum does not match"
    )


async def test_rejected_content_is_not_written(tmp_path: Path, nursery: trio.Nursery) -> None:
    process = Process(tmp_path, Servers({URL: "bad", OTHER: "good"}))
    request = request_of(URL)
    await process.kept.want(request, request_of(OTHER))
    process.kept.store.reject(request.key, process.kept.store.pending()[request.key], Problem(message="bad"))
    process.kept.accept()
    nursery.start_soon(process.run)
    await written(tmp_path, 1)

    assert ContentFiles(tmp_path).read(request, 1_000) is None


async def test_file_is_removed_once_a_valid_configuration_does_without_the_content(
    tmp_path: Path, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await stored(tmp_path, {URL: "one", OTHER: "two"}, nursery)
    after = Process(tmp_path, Servers({URL: "one"}))
    nursery.start_soon(after.run)
    request = request_of(URL)
    await after.kept.want(request)
    after.kept.store.release(frozenset({request.key}))
    await trio.sleep(5)
    assert len(files_in(tmp_path)) == 2
    after.kept.accept()

    await written(tmp_path, 1)

    assert ContentFiles(tmp_path).read(request, 1_000) is not None


async def test_files_stay_while_a_content_is_missing_that_may_lead_to_further_urls(
    tmp_path: Path, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await stored(tmp_path, {URL: "one"}, nursery)
    after = Process(tmp_path, Servers({OTHER: DOWN}))
    nursery.start_soon(after.run)
    await after.kept.want(request_of(OTHER))
    after.kept.accept()
    await trio.sleep(5)

    assert ContentFiles(tmp_path).read(request_of(URL), 1_000) is not None


async def test_failed_write_is_reported_once_and_made_again(
    tmp_path: Path, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    directory = tmp_path / "contents"
    directory.write_text("a file")
    process = Process(directory, Servers({URL: "one"}))
    await process.kept.want(request_of(URL))
    process.kept.accept()
    nursery.start_soon(process.run)
    await until(lambda: bool(process.reported))
    await trio.sleep(RETRY * 2.5)
    (problem,) = process.reported
    assert isinstance(problem, FetchProblem)
    assert "fetched contents cannot be stored" in str(problem.problem)
    directory.unlink()

    await written(directory, 1)

    await until(lambda: process.reported[-1] == FetchProblem(str(directory), None))
