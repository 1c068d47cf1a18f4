"""A removed state directory is created again, with a warning."""

import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import structlog
import trio

from haptic_trio.cli.serving import state_directory
from haptic_trio.cli.serving.state_directory import keep_directories, make_scratch
from haptic_trio.state_files.reader import StateFileError
from tests.support.processes.read_only import read_only

__all__ = ["read_only"]


@pytest.fixture(autouse=True)
def short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for removed directories all the time."""
    monkeypatch.setattr(state_directory, "KEEP_INTERVAL", 0.001)


async def until(holds: Callable[[], bool]) -> None:
    """Return once *holds* is true."""
    with trio.fail_after(30):
        while not holds():  # noqa: ASYNC110 - there is no event
            await trio.sleep(0.001)


def test_remnants_in_the_scratch_directory_are_removed(tmp_path: Path) -> None:
    scratch, _ = make_scratch(tmp_path / "state")
    (scratch / "key.pem").write_text("secret")
    assert make_scratch(tmp_path / "state") == (scratch, ())
    assert list(scratch.iterdir()) == []
    assert scratch.stat().st_mode & 0o077 == 0


def test_nothing_is_removed_behind_a_link_in_place_of_the_scratch_directory(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "letter").touch()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "scratch").symlink_to("../elsewhere")
    with pytest.raises(StateFileError, match="it is a symbolic link, and must be a directory"):
        make_scratch(tmp_path / "state")
    assert (tmp_path / "elsewhere" / "letter").exists()


@pytest.mark.process
async def test_remnants_of_a_read_only_directory_are_removed_later(
    tmp_path: Path, nursery: trio.Nursery, read_only: Callable[[Path], AbstractContextManager[None]]
) -> None:
    remnant = make_scratch(tmp_path / "state")[0] / "check"
    remnant.mkdir()
    with read_only(tmp_path / "state"):
        _, remnants = make_scratch(tmp_path / "state")
        assert remnants == (remnant,)
        nursery.start_soon(keep_directories, tmp_path / "state", remnants)
        assert remnant.exists()
    await until(lambda: not remnant.exists())


async def test_a_removed_directory_is_created_again(tmp_path: Path, nursery: trio.Nursery) -> None:
    state = tmp_path / "state"
    make_scratch(state)
    with structlog.testing.capture_logs() as logs:
        nursery.start_soon(keep_directories, state)
        # As one step, so that it is found without both directories.
        state.rename(tmp_path / "elsewhere")
        await until(lambda: bool(logs))
    assert (state / "scratch").is_dir()
    assert [entry["missing"] for entry in logs] == [("state", "scratch")]


async def test_a_directory_that_cannot_be_created_is_reported_once(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Path] = []

    def fail(state: Path) -> tuple[str, ...]:
        tried.append(state)
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(state))

    with structlog.testing.capture_logs() as logs, monkeypatch.context() as patch:
        patch.setattr(state_directory, "_make_missing", fail)
        nursery.start_soon(keep_directories, tmp_path / "state")
        await until(lambda: len(tried) > 3)
        assert len(logs) == 1
    await until((tmp_path / "state/scratch").is_dir)
