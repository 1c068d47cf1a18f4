"""A directory of manifests on a failing disk, with too few kernel watches, and with other times of files."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from haptic_trio.k8s.client import Client, NotFoundError
from haptic_trio.k8s.manifests import directory as directory_module
from haptic_trio.k8s.manifests.directory import WATCH_LIMIT
from tests.k8s.manifests.failing_disk import fail_below
from tests.k8s.manifests.test_directory import Reports, reports, root, running
from tests.k8s.objects import SERVICES, service_manifest

__all__ = ["reports", "root"]


@pytest.mark.process
@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE])
async def test_a_change_below_a_directory_that_fails_is_reported_and_ends_nothing(
    root: Path, reports: Reports, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    (root / "sub").mkdir()
    (root / "sub/a.yaml").write_text(service_manifest("a"))
    async with running(root, reports, audit_interval=1.0) as cluster:
        with monkeypatch.context() as patch:
            fail_below(root / "sub", code, patch)
            # The kernel still reports changes that another process makes.
            await trio.run_process(["/bin/sh", "-c", f"echo > {root}/sub/b.yaml"])
            await reports.wait(lambda problems: bool(problems.get("sub")))
            # A later change: the one above was read before.
            (root / "later.yaml").write_text("- not an object")
            await reports.wait(lambda problems: bool(problems.get("later.yaml")))
            assert (await cluster.get(SERVICES, "default", "a"))["metadata"]["name"] == "a"
        await reports.wait(lambda problems: problems["sub"] == ())


async def _present(cluster: Client, *names: str) -> list[str]:
    found = []
    for name in names:
        with suppress(NotFoundError):
            await cluster.get(SERVICES, "default", name)
            found.append(name)
    return found


async def test_files_whose_names_are_not_utf_8_are_reported_and_end_nothing(root: Path, reports: Reports) -> None:
    def named(name: bytes) -> Path:
        return root / os.fsdecode(name)

    (root / "a.yaml").write_text(service_manifest("a"))
    named(b"\xff.yaml").write_text(service_manifest("b"))
    named(b"d\xfe").mkdir()
    async with running(root, reports) as cluster:
        assert reports.problems["\\xff.yaml"][0].message == "the path is not UTF-8"
        # Each event about such a name ends the watch of the kernel.
        named(b"\xfd.yaml").write_text(service_manifest("c"))
        named(b"d\xfe/d.yaml").write_text(service_manifest("d"))
        await reports.wait(lambda problems: {"\\xfd.yaml", "d.yaml"} <= problems.keys())
        (root / "later.yaml").write_text(service_manifest("later"))
        (root / "broken.yaml").write_text("- not an object")
        await reports.wait(lambda problems: bool(problems.get("broken.yaml")))

        assert await _present(cluster, "a", "b", "c", "d", "later") == ["a", "later"]
        named(b"\xff.yaml").rename(root / "good.yaml")
        await reports.wait(lambda problems: problems["\\xff.yaml"] == ())
        assert await _present(cluster, "a", "b") == ["a", "b"]


async def test_the_times_of_files_decide_nothing(root: Path, reports: Reports) -> None:
    paths = [root / "a.yaml", root / "b.yaml"]
    seen = []
    for times in ((1, 2), (2, 1)):
        for path, time in zip(paths, times, strict=True):
            path.write_text(service_manifest(path.stem))
            os.utime(path, (time, time))
        async with running(root, reports) as cluster:
            found = [await cluster.get(SERVICES, "default", path.stem) for path in paths]
            seen.append([resource["metadata"]["creationTimestamp"] for resource in found])
    assert seen[0] == seen[1]
    assert seen[0][0] == seen[0][1]


async def test_directories_that_the_kernel_does_not_watch_are_reported(
    root: Path, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "sub").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(directory_module, "find_unwatched", lambda directories: [directories[-1]])
        async with running(root, reports, audit_interval=0.05):
            await reports.wait(lambda problems: bool(problems.get(WATCH_LIMIT)))
            (problem,) = reports.problems[WATCH_LIMIT]
            assert "watches 1 of 2 directories" in problem.message
            assert str(root / "sub") in problem.message
            patch.undo()
            await reports.wait(lambda problems: problems[WATCH_LIMIT] == ())
