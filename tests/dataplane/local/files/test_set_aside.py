from pathlib import Path

from haptic_trio.dataplane.local.files.set_aside import remove, set_aside


def test_unused_generations_and_folders_give_up_their_names_before_they_are_removed(tmp_path: Path) -> None:
    generations, folders = tmp_path / "generations", tmp_path / "folders"
    for name in ("generations/1-a", "generations/2-b", "folders/1-a.maps", "folders/2-b.maps"):
        (tmp_path / name).mkdir(parents=True)
    (generations / "2-b/maps").symlink_to("../../folders/2-b.maps")

    gone = set_aside(generations, folders, {"2-b"})
    # Another deployment may use the name before the files are removed.
    (generations / "1-a").mkdir()
    remove(gone)

    assert sorted(path.name for path in generations.iterdir()) == ["1-a", "2-b"]
    assert [path.name for path in folders.iterdir()] == ["2-b.maps"]


def test_what_a_crash_left_aside_is_removed_the_next_time(tmp_path: Path) -> None:
    for name in ("generations/1-a", "folders/1-a.maps"):
        (tmp_path / name).mkdir(parents=True)
    for _ in range(2):
        gone = set_aside(tmp_path / "generations", tmp_path / "folders", ())
        (tmp_path / "generations/1-a").mkdir(exist_ok=True)
    remove(gone)
    assert [*(tmp_path / "folders").iterdir()] == []
    remove(set_aside(tmp_path / "generations", tmp_path / "folders", ()))
    assert [*(tmp_path / "generations").iterdir()] == []
