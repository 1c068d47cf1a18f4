"""Phase 2: the real HAProxy's opinion, and nothing left behind."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.disk import UnsafePathError
from haptic_trio.dataplane.local.check import (
    CheckCostlyError,
    CheckCrashedError,
    CheckDirectory,
    CheckFailedError,
    CheckMemoryError,
    CheckTimeoutError,
    ConfigRejectedError,
    Priority,
    check_config,
    find_acceptance,
    judge_output,
)
from haptic_trio.haproxy.config.check_output import OUTPUT_LIMIT
from haptic_trio.haproxy.model import FileKind, make_file
from tests.support.processes.haproxy import BASE, answering, build_generation, mapping

pytestmark = pytest.mark.process

LIMIT = 120.0
"""Seconds for a check that ends by itself: one of idle priority waits while others use the processors."""
FRONTEND = f"{BASE}\nfrontend web\n    bind 127.0.0.1:1\n"
BROKEN = build_generation(
    f'{FRONTEND}    http-request return status 200 content-type text/plain lf-string "%[src,map(/nosuchfetch)]"\n'
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where private directories are made; `left` looks at it."""
    return tmp_path


def fake(tmp_path: Path, script: str) -> Path:
    """A program in HAProxy's place."""
    path = tmp_path / "fake"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return path


def left(root: Path) -> list[str]:
    return [entry.name for entry in root.iterdir() if not entry.name.startswith("fake")]


@pytest.mark.haproxy
async def test_a_valid_generation_with_files_is_accepted(root: Path, haproxy_binary: Path) -> None:
    report = await check_config(haproxy_binary, mapping(1, {"a.example": "1"}), limit=LIMIT, root=root)
    assert report.warnings == ()
    assert report.seconds > 0
    assert not left(root)


@pytest.mark.haproxy
async def test_a_rejection_names_the_rendered_line(root: Path, haproxy_binary: Path) -> None:
    with pytest.raises(ConfigRejectedError) as caught:
        await check_config(haproxy_binary, BROKEN, limit=LIMIT, root=root)
    problem = caught.value.problems[0]
    assert (problem.source, problem.line) == ("haproxy.cfg", BROKEN.text.count("\n"))
    assert "nosuchfetch" in str(caught.value)
    assert str(root) not in str(caught.value)
    assert not left(root)


@pytest.mark.haproxy
async def test_warnings_are_reported_and_do_not_reject(root: Path, haproxy_binary: Path) -> None:
    careless = build_generation(
        "defaults\n    mode http\n    timeout client 1s\n\nfrontend web\n    bind 127.0.0.1:1\n"
        "    default_backend app\n\nbackend app\n    server one 127.0.0.1:2\n"
    )
    report = await check_config(haproxy_binary, careless, limit=LIMIT, root=root, priority=Priority.IDLE)
    assert "timeout" in report.warnings[0].message


@pytest.mark.haproxy
async def test_exceeded_memory_limit_is_not_a_rejection(root: Path, haproxy_binary: Path) -> None:
    greedy = build_generation(f"{FRONTEND}\nring log\n    size {1 << 30}\n")

    with pytest.raises(CheckMemoryError, match="more than 256 MiB"):
        await check_config(haproxy_binary, greedy, limit=LIMIT, root=root, memory=256 << 20)
    with pytest.raises(ConfigRejectedError, match="nosuchfetch"):
        await check_config(haproxy_binary, BROKEN, limit=LIMIT, root=root, memory=256 << 20)
    await check_config(haproxy_binary, greedy, limit=LIMIT, root=root)


async def test_child_that_dies_of_its_limit_has_had_too_little_memory(root: Path, tmp_path: Path) -> None:
    generation = mapping(1, {})

    # The limit is set a moment after the start.
    limited = 'while [ "$(ulimit -v)" = unlimited ]; do :; done'
    poor = fake(tmp_path, f"{limited}\n[ $(ulimit -v) -gt 300000 ] || kill -SEGV $$")
    with pytest.raises(CheckMemoryError):
        await check_config(poor, generation, limit=LIMIT, root=root, memory=256 << 20)
    await check_config(poor, generation, limit=LIMIT, root=root, memory=512 << 20)


@pytest.mark.parametrize("signal", ["SEGV", "BUS", "ABRT", "ILL", "FPE"])
@pytest.mark.parametrize("memory", [None, 256 << 20])
async def test_a_check_that_crashes_twice_is_a_rejection(
    root: Path, tmp_path: Path, signal: str, memory: int | None
) -> None:
    binary = fake(tmp_path, f"echo x >> {tmp_path}/fake.runs\nkill -{signal} $$")

    with pytest.raises(CheckCrashedError, match=f"HAProxy crashes on it .SIG{signal}"):
        await check_config(binary, mapping(1, {}), limit=LIMIT, root=root, memory=memory)

    assert (tmp_path / "fake.runs").read_text() == "x\nx\n"


async def test_a_check_that_crashes_once_counts_for_nothing(root: Path, tmp_path: Path) -> None:
    once = fake(tmp_path, f"[ -e {tmp_path}/fake.runs ] && exit 0\n: > {tmp_path}/fake.runs\nkill -SEGV $$")

    assert (await check_config(once, mapping(1, {}), limit=LIMIT, root=root)).warnings == ()


async def test_errors_before_a_crash_are_reported(root: Path, tmp_path: Path) -> None:
    said = "[ALERT]    (1) : config : parsing [haproxy.cfg:3] : unknown keyword 'x' in 'frontend' section"

    with pytest.raises(CheckCrashedError, match="unknown keyword") as caught:
        await check_config(fake(tmp_path, f'echo "{said}"\nkill -SEGV $$'), mapping(1, {}), limit=LIMIT, root=root)

    assert caught.value.problems[0].line == 3


@pytest.mark.parametrize("signal", ["KILL", "TERM", "INT", "USR1"])
async def test_a_check_that_is_ended_from_outside_is_not_a_verdict(root: Path, tmp_path: Path, signal: str) -> None:
    with pytest.raises(CheckFailedError) as caught:
        await check_config(fake(tmp_path, f"kill -{signal} $$"), mapping(1, {}), limit=LIMIT, root=root)

    assert not isinstance(caught.value, CheckMemoryError)


@pytest.mark.haproxy
async def test_haproxy_crashes_without_leaving_a_core(root: Path, haproxy_binary: Path) -> None:
    # Phase 1 would reject it outside `.if`.
    crashing = build_generation(f"{FRONTEND}.if 1\n    http-request deny if {{ path -u }}\n.endif\n")

    with pytest.raises(CheckCrashedError, match="SIGSEGV"):
        await check_config(haproxy_binary, crashing, limit=LIMIT, root=root)
    assert not left(root)
    assert not list(Path.cwd().glob("core*"))


@pytest.mark.haproxy
async def test_a_missing_file_is_a_rejection(root: Path, haproxy_binary: Path) -> None:
    with pytest.raises(ConfigRejectedError, match=r"maps/host\.map"):
        await check_config(haproxy_binary, build_generation(mapping(1, {}).text), limit=LIMIT, root=root)


@pytest.mark.haproxy
async def test_the_environment_is_not_visible(
    root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAPTIC_SECRET", "nosuchfetch")
    text = FRONTEND + '    http-request return status 200 content-type text/plain lf-string "%[${HAPTIC_SECRET-src}]"\n'
    await check_config(haproxy_binary, build_generation(text), limit=LIMIT, root=root)


async def test_a_check_that_takes_too_long_is_ended(root: Path) -> None:
    with pytest.raises(CheckTimeoutError):
        await check_config(fake(root, "exec sleep 60"), answering(1, "x"), limit=0.1, root=root)
    assert not left(root)


async def test_a_check_that_takes_too_much_cpu_time_is_ended(root: Path) -> None:
    with pytest.raises(CheckCostlyError, match=r"more than 0\.2 s of CPU time"):
        await check_config(fake(root, "while :; do :; done"), answering(1, "x"), limit=LIMIT, root=root, most_cpu=0.2)
    assert not left(root)


async def test_a_check_that_waits_takes_no_cpu_time(root: Path) -> None:
    with pytest.raises(CheckTimeoutError) as caught:
        await check_config(fake(root, "exec sleep 60"), answering(1, "x"), limit=1, root=root, most_cpu=0.5)
    assert caught.value.cpu_seconds < 0.5


async def test_an_accepted_generation_is_known_with_its_cpu_time(root: Path) -> None:
    binary = fake(root, "n=0; while [ $n -lt 100000 ]; do n=$((n+1)); done")
    report = await check_config(binary, answering(1, "x"), limit=LIMIT, root=root)
    assert report.cpu_seconds > 0.01
    with pytest.raises(CheckCostlyError):
        await check_config(binary, answering(1, "x"), limit=LIMIT, root=root, most_cpu=report.cpu_seconds / 2)


async def test_a_cancelled_check_leaves_nothing(root: Path) -> None:
    with trio.move_on_after(0.1) as scope:
        await check_config(fake(root, "exec sleep 60"), answering(1, "x"), limit=LIMIT, root=root)
    assert scope.cancelled_caught
    assert not left(root)


async def test_endless_output_is_cut(root: Path) -> None:
    size = 3 * OUTPUT_LIMIT
    with pytest.raises(ConfigRejectedError) as caught:
        await check_config(fake(root, f"head -c {size} /dev/zero | tr '\\0' x; exit 1"), BROKEN, limit=LIMIT, root=root)
    assert len(str(caught.value)) <= OUTPUT_LIMIT


async def test_a_binary_that_is_not_there_is_reported(root: Path) -> None:
    with pytest.raises(CheckFailedError):
        await check_config(root / "nosuch", answering(1, "x"), limit=LIMIT, root=root)
    assert not left(root)


async def test_a_path_outside_the_directory_is_rejected(root: Path) -> None:
    escaping = build_generation(BASE, [make_file(FileKind.FILE, "../escaped", "x")])
    with pytest.raises(UnsafePathError):
        await check_config(fake(root, "exit 0"), escaping, limit=LIMIT, root=root)
    assert not left(root)


def test_a_silent_failure_is_a_rejection_too() -> None:
    with pytest.raises(ConfigRejectedError, match="code 3"):
        judge_output(3, "")


@pytest.mark.haproxy
async def test_a_configuration_that_listens_nowhere_is_rejected_in_words(root: Path, haproxy_binary: Path) -> None:
    with pytest.raises(ConfigRejectedError, match="has no listener"):
        await check_config(haproxy_binary, build_generation(BASE), limit=LIMIT, root=root)


@pytest.mark.haproxy
async def test_kept_directory_has_the_files_of_each_check(haproxy_binary: Path, root: Path) -> None:
    kept = CheckDirectory(root)
    await check_config(haproxy_binary, mapping(1, {"kept.example": "1"}), limit=LIMIT, directory=kept)
    [name] = left(root)
    path = root / name
    untouched = (path / "haproxy.cfg").stat().st_mtime_ns
    await check_config(haproxy_binary, mapping(1, {"kept.example": "2"}), limit=LIMIT, directory=kept)
    assert (path / "maps/host.map").read_text().split() == ["kept.example", "2"]
    assert (path / "haproxy.cfg").stat().st_mtime_ns == untouched
    with pytest.raises(ConfigRejectedError):
        await check_config(haproxy_binary, build_generation(mapping(1, {}).text), limit=LIMIT, directory=kept)
    assert not (path / "maps/host.map").exists()
    kept.remove()
    assert not left(root)


def test_a_directory_that_was_read_only_when_its_check_was_over_is_removed_by_a_later_one(
    root: Path, read_only: Callable[[Path], AbstractContextManager[None]]
) -> None:
    kept = CheckDirectory(root)
    former = kept.write(mapping(1, {"kept.example": "1"}))
    with read_only(root):
        kept.remove()
        assert former.exists()
    kept.write(mapping(1, {"kept.example": "2"}))
    assert len(left(root)) == 1
    kept.remove()
    assert not left(root)


@pytest.mark.haproxy
async def test_what_a_binary_has_accepted_it_is_not_asked_again(haproxy_binary: Path, root: Path) -> None:
    binary = root / "haproxy"
    binary.symlink_to(haproxy_binary)
    generation = mapping(1, {"accepted.example": "1"})
    assert find_acceptance(binary, generation) is None
    report = await check_config(binary, generation, limit=LIMIT, root=root)
    assert find_acceptance(binary, generation) is report
    # What is at the path now is another one, and would fail.
    binary.unlink()
    binary.write_text("#!/bin/sh\nexit 1\n")
    binary.chmod(0o755)
    assert find_acceptance(binary, generation) is None
    with pytest.raises(ConfigRejectedError):
        await check_config(binary, generation, limit=LIMIT, root=root)


def test_a_file_gives_way_to_a_folder_of_its_name(root: Path) -> None:
    kept = CheckDirectory(root)
    for name in ("maps", "maps/a", "maps/a/b", "maps"):
        path = kept.write(build_generation(BASE, [make_file(FileKind.FILE, name, name)]))
        assert (path / name).read_text() == name
    kept.remove()
    assert not list(root.iterdir())
