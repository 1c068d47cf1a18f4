"""The generations on disk survive a crash at every step, and nothing leaves the directory."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.dataplane.disk import UnsafePathError, check_files, check_paths
from haptic_trio.dataplane.local.files.instance_directory import RESERVED
from haptic_trio.haproxy.model import FileKind, Generation, make_file, make_files
from tests.support.components.generation_files import (
    Crash,
    crash_at,
    deploy,
    generation,
    loadable,
    make_disk_quick,
    opened,
)
from tests.support.processes.haproxy import BASE, build_generation


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here ends with the power cut that fsync is for."""
    make_disk_quick(monkeypatch)


def test_a_generation_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    first = generation("one")
    deploy(opened(tmp_path), first)
    found = opened(tmp_path).read_running()
    assert found == first
    assert found is not None
    assert found.files["ssl/0.pem"].secret


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _link(path: Path) -> None:
    path.symlink_to(path.rename(path.with_name("elsewhere")))


@pytest.mark.parametrize("put", [_fifo, _directory, _link])
@pytest.mark.parametrize("name", ["current/generation.json", "current/haproxy.cfg", "current/ssl/0.pem"])
def test_a_generation_with_something_else_in_place_of_a_file_is_unknown(
    tmp_path: Path, name: str, put: Callable[[Path], None]
) -> None:
    deploy(opened(tmp_path), generation("one"))
    put(tmp_path / name)
    stored = opened(tmp_path)
    assert stored.read_running() is None
    assert stored.find_edited()


@pytest.mark.parametrize("put", [_fifo, _directory, _link])
def test_something_else_in_place_of_the_journal_counts_as_a_damaged_one(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    deploy(opened(tmp_path), generation("one"))
    put(tmp_path / "journal.json")
    stored = opened(tmp_path)
    assert not stored.clear
    assert stored.read_running() == generation("one")


def test_before_the_first_generation_there_is_nothing(tmp_path: Path) -> None:
    stored = opened(tmp_path)
    assert stored.read_running() is None
    assert stored.clear
    assert not stored.committed


@pytest.mark.process
def test_an_interrupted_change_prevents_no_start_in_a_read_only_directory(
    tmp_path: Path, read_only: Callable[[Path], AbstractContextManager[None]]
) -> None:
    stored = opened(tmp_path)
    deploy(stored, generation("one"))
    name = stored.stage(generation("two"))
    stored.begin(name)
    stored.switch(name)
    with read_only(tmp_path):
        # Which of the two a process runs is unknown.
        assert not opened(tmp_path).clear
    recovered = opened(tmp_path)
    assert recovered.read_running() == generation("one")
    assert [path.name for path in (tmp_path / "generations").iterdir()] == [recovered.committed]


def test_files_are_private(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        deploy(opened(tmp_path), generation("one"))
    finally:
        os.umask(previous)
    for path in (tmp_path / "generations").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_only_files_that_differ_are_written(tmp_path: Path) -> None:
    stored = opened(tmp_path)
    deploy(stored, generation("one"))
    before = (tmp_path / "current/ssl/0.pem").stat().st_ino, (tmp_path / "current/maps/host.map").stat().st_ino
    deploy(stored, generation("two"))
    assert (tmp_path / "current/ssl/0.pem").stat().st_ino == before[0]
    assert (tmp_path / "current/maps/host.map").stat().st_ino != before[1]


def test_a_file_that_is_no_longer_named_is_gone(tmp_path: Path) -> None:
    stored = opened(tmp_path)
    deploy(stored, generation("one", certificates=2))
    deploy(stored, generation("two", certificates=1))
    assert not (tmp_path / "current/ssl/1.pem").exists()


def test_the_former_generation_is_kept_and_older_ones_are_not(tmp_path: Path) -> None:
    stored = opened(tmp_path)
    for answer in ("one", "two", "three"):
        deploy(stored, generation(answer))
    assert len(list((tmp_path / "generations").iterdir())) == 2


def test_a_file_changed_by_hand_is_read_as_it_is(tmp_path: Path) -> None:
    stored = opened(tmp_path)
    deploy(stored, generation("one"))
    assert stored.read_intact() is not None
    (tmp_path / "current/maps/host.map").write_text("example.org hand\n")
    found = stored.read_running()
    assert found is not None
    assert found.files["maps/host.map"].content == b"example.org hand\n"
    assert found.id != generation("one").id
    assert stored.read_intact() is None


def test_a_file_changed_by_hand_does_not_spread_to_the_next_generation(tmp_path: Path) -> None:
    stored = opened(tmp_path)
    deploy(stored, generation("one"))
    with (tmp_path / "current/ssl/0.pem").open("a") as file:
        file.write("added in place")
    deploy(stored, generation("two"))
    assert (tmp_path / "current/ssl/0.pem").read_text() == "key 0"


@pytest.mark.parametrize("spoil", ["haproxy.cfg", "generation.json"])
def test_an_unusable_directory_counts_as_nothing(tmp_path: Path, spoil: str) -> None:
    stored = opened(tmp_path)
    deploy(stored, generation("one"))
    (tmp_path / "current" / spoil).write_bytes(b"\xff\xfe")
    assert stored.read_running() is None
    assert stored.read_intact() is None
    deploy(stored, generation("one"))
    assert loadable(tmp_path) == "one/one"


def test_giving_up_goes_back_to_the_committed_generation(tmp_path: Path) -> None:
    stored = opened(tmp_path)
    deploy(stored, generation("one"))
    name = stored.stage(generation("two"))
    stored.begin(name)
    stored.switch(name)
    stored.abandon(clear=True)
    assert loadable(tmp_path) == "one/one"
    assert stored.clear
    assert stored.read_running() == generation("one")


def test_a_crash_at_any_step_leaves_one_whole_generation(tmp_path: Path) -> None:
    steps = 0
    while crash_and_recover(tmp_path / str(steps), steps):
        steps += 1
    assert steps > 15


def crash_and_recover(root: Path, step: int) -> bool:
    """Crash in a deployment at *step*, look at what is there, and go on; False when the deployment has fewer steps."""
    stored = opened(root)
    deploy(stored, generation("one"))
    crashed = False
    with pytest.MonkeyPatch.context() as patch:
        crash_at(step, patch)
        try:
            deploy(stored, generation("two"))
        except Crash:
            crashed = True

    assert loadable(root) in {"one/one", "two/two"}
    successor = opened(root)
    if successor.clear:
        assert successor.read_intact() is not None
        assert successor.read_running() in (generation("one"), generation("two"))
    else:
        assert loadable(root) == "one/one", "what never was known to work must not be started"
    deploy(successor, generation("three"))
    assert loadable(root) == "three/three"
    assert successor.read_running() == generation("three")
    assert len(list((root / "generations").iterdir())) == 2
    return crashed


@pytest.mark.parametrize(
    "path",
    [
        *("/etc/passwd", "../outside", "maps/../../outside", "maps//a", "./a", "maps/", "", "a\0b"),
        *("haproxy.cfg", "generation.json", "process.cfg", "haproxy.cfg/a"),
    ],
)
def test_a_path_that_would_leave_the_directory_is_rejected(tmp_path: Path, path: str) -> None:
    stored = opened(tmp_path)
    with pytest.raises(UnsafePathError) as caught:
        stored.stage(build_generation(BASE, [make_file(FileKind.FILE, path, "x")]))
    assert caught.value.problems[0].source == path
    assert not list((tmp_path / "generations").iterdir())


def test_a_path_cannot_be_file_and_directory() -> None:
    with pytest.raises(UnsafePathError, match="file and a directory"):
        check_paths(["maps/a", "maps/a/b"], RESERVED)


@given(st.text(alphabet="ab./\\\0\n", max_size=12))
def test_an_accepted_path_stays_inside(path: str) -> None:
    try:
        check_paths([path], RESERVED)
    except UnsafePathError:
        return
    root = Path("/srv/instance")
    assert Path(os.path.normpath(root / path)).is_relative_to(root)
    assert os.path.normpath(path) == path


def many(answer: str, *, changed: str = "") -> Generation:
    """A generation of more files than a reading looks at."""
    files = [make_file(FileKind.CERT, f"ssl/{n:04}.pem", f"key {n}{changed if n == 7 else ''}") for n in range(600)]
    return build_generation(
        f"{BASE}\nbackend {answer}\n", [make_file(FileKind.MAP, "maps/host.map", f"a {answer}\n"), *files]
    )


def test_a_folder_without_a_difference_is_the_former_one(tmp_path: Path) -> None:
    stored = opened(tmp_path)
    deploy(stored, many("one"))
    folder = (tmp_path / "current/ssl").resolve()
    deploy(stored, many("two"))
    assert (tmp_path / "current/ssl").resolve() == folder
    deploy(stored, many("two", changed="x"))
    assert (tmp_path / "current/ssl").resolve() != folder
    assert (tmp_path / "current/ssl/0008.pem").stat().st_ino == (folder / "0008.pem").stat().st_ino
    assert (tmp_path / "current/ssl/0007.pem").read_text() == "key 7x"
    deploy(stored, many("three", changed="x"))
    assert not folder.exists()
    assert opened(tmp_path).read_running() == many("three", changed="x")


def test_folder_with_a_file_replaced_by_hand_is_written_again(tmp_path: Path) -> None:
    stored = opened(tmp_path)
    deploy(stored, many("one"))
    (tmp_path / "current/ssl/0599.pem").unlink()
    (tmp_path / "current/ssl/0599.pem").write_text("hand")
    assert stored.read_intact() is None
    deploy(stored, many("two"))
    assert (tmp_path / "current/ssl/0599.pem").read_text() == "key 599"


def test_a_file_among_thousands_that_was_edited_in_place_is_found_in_the_end(tmp_path: Path) -> None:
    stored = opened(tmp_path)
    deploy(stored, many("one"))
    with (tmp_path / "current/ssl/0599.pem").open("a") as file:
        file.write("more")
    assert stored.find_edited() == ("ssl/0599.pem",)
    deploy(stored, many("two"))
    with (tmp_path / "current/ssl/0300.pem").open("a") as file:
        file.write("more")
    assert not all(stored.read_intact() for _ in range(12))


@given(st.lists(st.text(alphabet="ab./", max_size=6), max_size=6))
def test_files_in_pages_are_rejected_as_their_paths_are(paths: list[str]) -> None:
    files = make_files(make_file(FileKind.FILE, path, "") for path in paths)

    def outcome(check: Callable[[], None]) -> object:
        try:
            check()
        except UnsafePathError as exc:
            return exc.problems
        return None

    reserved = frozenset({"a"})
    assert outcome(lambda: check_files(files, reserved)) == outcome(lambda: check_paths(list(files), reserved))
