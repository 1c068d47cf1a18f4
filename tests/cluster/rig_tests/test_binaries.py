"""Each program is built completely and once, and a build that is impossible reports the reason."""

import threading
from pathlib import Path

import pytest

from tests.cluster.control_plane.binaries import BinaryUnavailableError, find_binaries, provide_folder, provide_helm


def test_interrupted_build_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    def fail(staged: Path) -> None:
        (staged / "half").touch()
        raise BinaryUnavailableError("the disk is full")

    with pytest.raises(BinaryUnavailableError):
        provide_folder(tmp_path / "built", "program", fail)

    assert [one.name for one in tmp_path.iterdir()] == [".built.lock"]
    assert (
        provide_folder(tmp_path / "built", "program", lambda staged: (staged / "whole").touch()) == tmp_path / "built"
    )
    assert [one.name for one in (tmp_path / "built").iterdir()] == ["whole"]


def test_second_builder_waits_for_the_first_and_takes_what_it_made(tmp_path: Path) -> None:
    begun, may_end = threading.Event(), threading.Event()
    builds = []

    def build(staged: Path) -> None:
        builds.append(staged)
        begun.set()
        may_end.wait(10)

    builders = [threading.Thread(target=provide_folder, args=(tmp_path / "built", "program", build)) for _ in range(2)]
    builders[0].start()
    begun.wait(10)
    builders[1].start()
    may_end.set()
    for one in builders:
        one.join(10)

    assert len(builds) == 1
    assert (tmp_path / "built").is_dir()


def test_what_is_not_there_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAPTIC_CLUSTER_CACHE", str(tmp_path))

    with pytest.raises(BinaryUnavailableError, match=r"python -m tests\.cluster\.control_plane\.binaries"):
        find_binaries()


def test_machine_without_go_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAPTIC_CLUSTER_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(BinaryUnavailableError, match="no Go here"):
        provide_helm()
