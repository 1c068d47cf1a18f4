import errno
import os
from pathlib import Path

import pytest

from haptic_trio.k8s.manifests.files import (
    MAX_FILE,
    Known,
    RootMissingError,
    is_manifest,
    is_relevant,
    read_file,
    read_files,
    scan_all,
    scan_paths,
)
from tests.k8s.manifests.failing_disk import fail_below
from tests.k8s.objects import service_manifest


def known_of(path: Path) -> dict[str, Known]:
    known = read_file(str(path), None).known
    assert known is not None
    return {str(path): known}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.yaml", True),
        ("a.yml", True),
        ("a.json", True),
        ("a.yaml~", False),
        (".a.yaml.swp", False),
        (".a.yaml", False),
        ("#a.yaml#", False),
        (".#a.yaml", False),
        ("#a.yaml", False),
        ("a.txt", False),
        ("yaml", False),
    ],
)
def test_editor_files_are_no_manifests(name: str, expected: bool) -> None:
    assert is_manifest(name) is expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/m/a.yaml", True),
        ("/m", True),
        ("/m/x/a.yaml", True),
        ("/m/.git/index", False),
        ("/m/.a.swp", False),
        ("/m/..data", True),
        ("/m/x/..data_tmp", True),
        ("/m/..2026/a.yaml", False),
    ],
)
def test_only_hidden_names_that_switch_a_mounted_config_map_matter(path: str, expected: bool) -> None:
    assert is_relevant("/m", path) is expected


def test_a_scan_finds_new_changed_and_removed_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("same.yaml", "changed.yaml", "gone.yaml"):
        (tmp_path / name).write_text(service_manifest("a"))
    known = known_of(tmp_path / "same.yaml") | known_of(tmp_path / "changed.yaml") | known_of(tmp_path / "gone.yaml")
    (tmp_path / "changed.yaml").write_text(service_manifest("longer-name"))
    (tmp_path / "gone.yaml").unlink()
    (tmp_path / "sub/new.json").write_text("{}")
    (tmp_path / ".git/hidden.yaml").write_text("")

    scan = scan_all(str(tmp_path), known)

    assert scan.read == (str(tmp_path / "changed.yaml"), str(tmp_path / "sub/new.json"))
    assert scan.gone == (str(tmp_path / "gone.yaml"),)


def test_a_scan_of_paths_reads_no_other_directory(tmp_path: Path) -> None:
    for name in ("named.yaml", "other.yaml"):
        (tmp_path / name).write_text(service_manifest("a"))
    named = str(tmp_path / "named.yaml")

    scan = scan_paths(str(tmp_path), [named, str(tmp_path / "4913"), str(tmp_path / "note.txt")], {})

    assert scan.read == (named,)
    assert scan.gone == ()


def test_a_directory_that_went_takes_its_files_with_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.yaml").write_text(service_manifest("a"))
    (tmp_path / "subway.yaml").write_text(service_manifest("b"))
    known = known_of(tmp_path / "sub/a.yaml") | known_of(tmp_path / "subway.yaml")
    (tmp_path / "sub").rename(tmp_path.parent / f"{tmp_path.name}-moved")

    scan = scan_paths(str(tmp_path), [str(tmp_path / "sub")], known)

    assert scan.gone == (str(tmp_path / "sub/a.yaml"),)
    assert scan.missing == (str(tmp_path / "sub"),)


def test_links_to_files_are_read_and_links_to_directories_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026/a.yaml").write_text(service_manifest("a"))
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    (tmp_path / "round").symlink_to(".")
    (tmp_path / "round.yaml").symlink_to(".")

    assert scan_all(str(tmp_path), {}).read == (str(tmp_path / "a.yaml"),)


def test_the_switch_of_a_mounted_config_map_scans_its_directory(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(service_manifest("a"))

    scan = scan_paths(str(tmp_path), [str(tmp_path / "..data")], {})

    assert scan.read == (str(tmp_path / "a.yaml"),)


def test_a_path_through_a_link_is_the_path_that_a_walk_finds(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real/a.yaml").write_text(service_manifest("a"))

    scan = scan_paths(str(tmp_path), [str(tmp_path / "link/a.yaml"), str(tmp_path.parent / "outside.yaml")], {})

    assert scan.read == (str(tmp_path / "real/a.yaml"),)


def test_a_missing_root_has_no_files_gone(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.yaml").write_text(service_manifest("a"))
    known = known_of(root / "a.yaml")
    root.rename(tmp_path / "elsewhere")

    with pytest.raises(RootMissingError):
        scan_all(str(root), known)
    with pytest.raises(RootMissingError):
        scan_paths(str(root), [str(root)], known)
    with pytest.raises(RootMissingError):
        read_files(str(root), [str(root / "a.yaml")], known)


def test_the_same_bytes_are_not_parsed_again(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(service_manifest("a"))
    first = read_file(str(path), None)
    path.write_text(service_manifest("a"))

    again = read_file(str(path), first.known)

    assert first.content is not None
    assert first.content.manifests[0].key == ("", "Service", "default", "a")
    assert again.content is None
    assert again.known is not None


def test_a_pipe_and_a_dangling_link_are_problems_and_reported_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "link.yaml").symlink_to("missing.yaml")
    (tmp_path / "dir.yaml").mkdir()
    paths = (str(tmp_path / "link.yaml"), str(tmp_path / "pipe.yaml"))

    readings = read_files(str(tmp_path), scan_all(str(tmp_path), {}).read, {})
    known = {reading.path: reading.known for reading in readings if reading.known is not None}
    reported = {
        problem.source: problem for one in readings if one.content is not None for problem in one.content.problems
    }

    assert tuple(reported) == paths
    assert "link is broken" in reported[paths[0]].hint
    assert "not a regular file" in reported[paths[1]].message
    assert scan_all(str(tmp_path), known).read == ()
    (tmp_path / "missing.yaml").write_text(service_manifest("a"))
    assert paths[0] in scan_all(str(tmp_path), known).read
    assert read_file(str(tmp_path / "absent.yaml"), None).known is None


def test_a_list_of_many_objects_is_read_however_large_its_file_is(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    note = "x" * 9_000
    items = "".join(
        f"- {{apiVersion: v1, kind: Service, metadata: {{name: s{number}, annotations: {{note: {note}}}}}}}\n"
        for number in range(1_000)
    )
    path.write_text(f"{service_manifest('first')}---\napiVersion: v1\nkind: List\nitems:\n{items}")

    reading = read_file(str(path), None)

    assert path.stat().st_size > 8 << 20
    assert reading.content is not None
    assert reading.content.problems == ()
    assert [manifest.key[-1] for manifest in reading.content.manifests] == ["first", *map("s{}".format, range(1_000))]
    assert read_file(str(path), reading.known).content is None


def test_a_file_that_is_not_utf_8_or_too_large_is_a_problem(tmp_path: Path) -> None:
    latin, large = tmp_path / "latin.yaml", tmp_path / "large.yaml"
    latin.write_bytes(b"a: 1\nb: \xfc\n")
    with large.open("wb") as file:
        file.truncate(MAX_FILE + 1)

    for path, line, part in ((latin, 2, "not UTF-8"), (large, 0, "larger than")):
        reading = read_file(str(path), None)
        assert reading.content is not None
        (problem,) = reading.content.problems
        assert part in problem.message
        assert (problem.source, problem.line) == (str(path), line)


def test_what_cannot_be_opened_is_a_problem_and_not_gone(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.symlink_to("a.yaml")

    assert scan_all(str(tmp_path), {}).read == (str(path),)
    reading = read_file(str(path), None)

    assert reading.known is not None
    assert reading.content is not None
    assert "cannot be read" in reading.content.problems[0].message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_a_problem_and_not_gone(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.yaml").write_text(service_manifest("a"))
    known = known_of(tmp_path / "sub/a.yaml")
    (tmp_path / "sub/a.yaml").chmod(0)
    reading = read_file(str(tmp_path / "sub/a.yaml"), known[str(tmp_path / "sub/a.yaml")])
    assert reading.known is not None
    assert reading.content is not None
    assert "cannot be read" in reading.content.problems[0].message
    (tmp_path / "sub").chmod(0)
    try:
        scan = scan_all(str(tmp_path), known)
    finally:
        (tmp_path / "sub").chmod(0o700)

    assert scan.gone == ()
    assert [content.path for content in scan.rejected] == [str(tmp_path / "sub")]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("name", ["a.yaml", "inner", "notes.txt"])
def test_a_change_below_a_directory_that_fails_is_a_problem_and_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, name: str
) -> None:
    sub = tmp_path / "sub"
    sub.mkdir()
    (sub / "a.yaml").write_text(service_manifest("a"))
    known = known_of(sub / "a.yaml")
    with monkeypatch.context() as patch:
        fail_below(sub, code, patch)
        scan = scan_paths(str(tmp_path), [str(sub / name)], known)
        assert scan.gone == ()
        assert [content.path for content in scan.rejected] == [str(sub)]
    assert scan_paths(str(tmp_path), [str(sub)], known).listed == (str(sub),)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_a_root_that_fails_has_no_files_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    root = tmp_path / "manifests"
    root.mkdir()
    (root / "a.yaml").write_text(service_manifest("a"))
    known = known_of(root / "a.yaml")
    with monkeypatch.context() as patch:
        fail_below(tmp_path, code, patch)
        with pytest.raises(RootMissingError, match="cannot be read"):
            scan_all(str(root), known)
        with pytest.raises(RootMissingError, match="cannot be read"):
            scan_paths(str(root), [str(root / "a.yaml")], known)


def test_progress_within_one_large_file_is_noted(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text("---\n".join(service_manifest(f"web{number}") for number in range(1000)))
    noted: list[int] = []

    reading = read_file(str(file), None, noted.append)

    assert reading.content is not None
    assert len(reading.content.manifests) == 1000
    assert sum(noted) == file.stat().st_size
    assert len(noted) > 10
    read_file(str(file), reading.known, noted.append)
    assert sum(noted) == file.stat().st_size
