"""Files that a restart loads: complete generations only, and patches where they can be written."""

import errno
import os
from pathlib import Path

import pytest

from haptic_trio.dataplane.local.files.instance_directory import GenerationFiles
from haptic_trio.dataplane.local.files.restart_files import DamagedFilesError, find_damaged, prepare_restart
from haptic_trio.haproxy.plan.delta import make_delta
from tests.support.components.generation_files import deploy, generation, make_disk_quick, opened


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here ends with the power cut that fsync is for."""
    make_disk_quick(monkeypatch)


def patched(root: Path) -> GenerationFiles:
    """Return files with the generation `one` and a recorded patch that leads to `two`."""
    files = opened(root)
    one, two = generation("one"), generation("two")
    deploy(files, one)
    files.record_patch(make_delta(one, two))
    files.settle(two)
    return files


def test_recorded_patches_are_written(tmp_path: Path) -> None:
    files = patched(tmp_path)
    assert prepare_restart(files, instance="one")
    assert files.read_running() == generation("two")
    assert not files.read_patches()


def test_without_space_the_patches_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = patched(tmp_path)

    def stage(_files: GenerationFiles, _generation: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(GenerationFiles, "stage", stage)
    assert prepare_restart(files, instance="one")
    files.mark_loaded()
    assert files.read_running() == generation("one")
    assert files.clear


@pytest.mark.parametrize("name", ["maps/host.map", "ssl/0.pem", "haproxy.cfg"])
def test_a_damaged_generation_is_left_out(tmp_path: Path, name: str) -> None:
    files = opened(tmp_path)
    deploy(files, generation("one"))
    deploy(files, generation("two"))
    path = tmp_path / "current" / name
    damaged = path.read_bytes()[:-4]
    path.unlink()
    path.write_bytes(damaged)
    files = opened(tmp_path)
    assert find_damaged(files) == (name,)
    if name == "ssl/0.pem":
        # Both generations share the folder of the file.
        with pytest.raises(DamagedFilesError, match=r"ssl/0\.pem"):
            prepare_restart(files, instance="one")
        return
    assert not prepare_restart(files, instance="one")
    assert files.read_running() == generation("one")


def test_an_unreadable_manifest_is_not_damage(tmp_path: Path) -> None:
    files = opened(tmp_path)
    deploy(files, generation("one"))
    (tmp_path / "current/generation.json").write_text("{}")
    assert find_damaged(opened(tmp_path)) == ()
