"""Runtime changes since the files were written are known after any crash, and join the files."""

from pathlib import Path

import pytest

from haptic_trio.dataplane.local.files.instance_directory import GenerationFiles
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.delta import make_delta
from tests.support.components.generation_files import (
    Crash,
    crash_at,
    deploy,
    generation,
    loadable,
    make_disk_quick,
    opened,
)


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here ends with the power cut that fsync is for."""
    make_disk_quick(monkeypatch)


def apply(stored: GenerationFiles, desired: Generation, *, taken: bool = True) -> None:
    """Note a change as a process takes it, or rejects it."""
    running = stored.read_running()
    assert running is not None
    stored.record_patch(make_delta(running, desired))
    stored.settle(desired if taken else None)


def test_recorded_patch_is_part_of_the_running_generation(tmp_path: Path) -> None:
    stored = opened(tmp_path)
    deploy(stored, generation("one"))
    apply(stored, generation("two"))
    apply(stored, generation("three"))
    assert loadable(tmp_path) == "one/one"
    for each in (stored, opened(tmp_path)):
        assert each.clear
        assert each.read_running() == generation("three")
        assert each.read_intact() is not None
        assert not each.find_edited()


def test_what_the_process_rejected_is_not_running(tmp_path: Path) -> None:
    stored = opened(tmp_path)
    deploy(stored, generation("one"))
    apply(stored, generation("two"), taken=False)
    apply(stored, generation("three"))
    assert opened(tmp_path).read_running() == generation("three")
    assert len(opened(tmp_path).read_patches()) == 1


def test_unsettled_patch_makes_the_running_generation_unknown(tmp_path: Path) -> None:
    stored = opened(tmp_path)
    deploy(stored, generation("one"))
    stored.record_patch(make_delta(generation("one"), generation("two")))
    assert not stored.clear
    successor = opened(tmp_path)
    assert not successor.clear
    assert loadable(tmp_path) == "one/one"
    successor.mark_loaded()
    assert opened(tmp_path).clear
    assert opened(tmp_path).read_running() == generation("one")


def test_joining_writes_out_what_was_noted_and_keeps_what_came_later(tmp_path: Path) -> None:
    stored = opened(tmp_path)
    deploy(stored, generation("one"))
    for answer in ("two", "three", "four"):
        apply(stored, generation(answer))
    stored.join(generation("three"))
    assert loadable(tmp_path) == "three/three"
    for each in (stored, opened(tmp_path)):
        assert each.read_running() == generation("four")
        assert [delta.id for delta in each.read_patches()] == [generation("four").id]
    apply(stored, generation("five"))
    stored.join(generation("five"))
    assert opened(tmp_path).read_running() == generation("five")
    assert not stored.read_patches()
    with pytest.raises(ValueError, match="no settled patch"):
        stored.join(generation("two"))


def test_a_deployment_makes_notes_void(tmp_path: Path) -> None:
    stored = opened(tmp_path)
    deploy(stored, generation("one"))
    apply(stored, generation("two"))
    deploy(stored, generation("three"))
    assert opened(tmp_path).read_running() == generation("three")
    assert not stored.read_patches()


def test_notes_on_files_changed_by_hand_lead_nowhere(tmp_path: Path) -> None:
    stored = opened(tmp_path)
    deploy(stored, generation("one"))
    apply(stored, generation("two"))
    (tmp_path / "current/maps/host.map").write_text("example.org hand\n")
    assert stored.read_running() is None
    assert stored.read_intact() is None
    assert stored.find_edited() == ("maps/host.map",)


def test_a_crash_while_joining_loses_nothing(tmp_path: Path) -> None:
    steps = 0
    crashed = True
    while crashed:
        root = tmp_path / str(steps)
        stored = opened(root)
        deploy(stored, generation("one"))
        for answer in ("two", "three"):
            apply(stored, generation(answer))
        with pytest.MonkeyPatch.context() as patch:
            crash_at(steps, patch)
            try:
                stored.join(generation("two"))
                crashed = False
            except Crash:
                pass
        successor = opened(root)
        assert successor.clear
        assert successor.read_running() == generation("three")
        successor.join(generation("three"))
        assert loadable(root) == "three/three"
        steps += 1
    assert steps > 15
