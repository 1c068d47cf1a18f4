"""`haproxy -c` over a generation, in a private directory."""

import contextlib
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

from haptic_trio.cancellation import clean_up_in_thread
from haptic_trio.dataplane.binary import clean_environment
from haptic_trio.dataplane.disk import check_files
from haptic_trio.dataplane.local.cpu_time import cpu_time_of, wait_for_cpu_time
from haptic_trio.dataplane.local.files.instance_directory import CONFIG_NAME, RESERVED
from haptic_trio.errors import HapticError, Problem, ProblemsError
from haptic_trio.haproxy.config.check_output import BoundedOutput, parse_check_output
from haptic_trio.haproxy.model import Generation, make_files

PRELUDE_NAME = "process.cfg"
PRELUDE = "global\n    default-path config\n"
"""Makes relative file names relative to the configuration file, as in a deployed instance."""
NO_LISTENER = 2
"""Exit code for a valid configuration without a listener, with which HAProxy does not start."""
KILL_LIMIT = 5.0
"""Seconds to wait for a killed child."""
_NO_MEMORY = re.compile(
    r"(?i)(?:out of|not enough|no more) memory|memory (?:error|failure)|(?:can(?:no|')t|could(?: not|n't)) alloc"
    r"|(?:unable|fail(?:ed|ure)?) to alloc|error allocating|alloc\w* (?:error|fail)|set sink buffer size"
)
"""HAProxy's messages for a failed allocation."""
CRASHES = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}
)
"""Signals of a crash; others, such as SIGKILL, come from outside."""
KEPT_ACCEPTANCES = 16
"""Accepted generations that are cached."""


class Priority(Enum):
    """Share of the processors that a check gets beside other processes."""

    IDLE = auto()
    LOW = auto()
    NORMAL = auto()


class ConfigRejectedError(ProblemsError):
    """HAProxy rejects the configuration; a retry helps only after it has changed."""


class CheckCrashedError(ConfigRejectedError):
    """`haproxy -c` crashed twice on the configuration; a retry helps only after it has changed."""


class CheckTimeoutError(HapticError):
    """`haproxy -c` exceeded its time limit and was killed; a retry helps if the machine was busy."""

    def __init__(self, message: str, cpu_seconds: float = 0.0) -> None:
        self.cpu_seconds = cpu_seconds
        """CPU seconds until it was killed."""
        super().__init__(message)


class CheckCostlyError(HapticError):
    """`haproxy -c` exceeded its limit of CPU time and was killed; a busy machine does not cause this."""


class CheckFailedError(HapticError):
    """`haproxy -c` could not be run; a retry helps once the machine is repaired."""


class CheckMemoryError(CheckFailedError):
    """`haproxy -c` exceeded its memory limit; a retry helps after the configuration has changed."""


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted configuration."""

    warnings: tuple[Problem, ...] = ()
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """CPU time of the child; of the first check where the acceptance is remembered."""


_accepted: dict[tuple[object, ...], CheckReport] = {}


def find_acceptance(binary: Path, generation: Generation) -> CheckReport | None:
    """Return the cached report of *binary* for *generation*, if this process had it accepted; else None."""
    return _accepted.get(_identity(binary, generation))


def _identity(binary: Path, generation: Generation) -> tuple[object, ...]:
    try:
        status = binary.stat()
    except OSError:
        # Running the binary raises the error.
        return (binary, generation.id)
    return (binary, status.st_ino, status.st_size, status.st_mtime_ns, generation.id)


def _remember(binary: Path, generation: Generation, report: CheckReport) -> None:
    _accepted[_identity(binary, generation)] = report
    while len(_accepted) > KEPT_ACCEPTANCES:
        del _accepted[next(iter(_accepted))]


class CheckDirectory:
    """Private directory with the files of the last check, so that the next check writes only changed files.

    One check at a time. The first one creates it below *root*, by default the system's; its creator closes it.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._root = root
        self._path: Path | None = None
        self._held: Generation | None = None
        self._left: tuple[Path, ...] = ()
        """Former directories that could not be removed yet: the file system was read-only."""
        # `remove` may be called while a cancelled check still writes.
        self._lock = threading.Lock()

    def write(self, generation: Generation) -> Path:
        """Write the files of *generation* and return their directory; blocks on the disk.

        Raises OSError, and UnsafePathError for files outside of the directory.
        """
        check_files(generation.files, RESERVED)
        with self._lock:
            return self._write(generation)

    def _write(self, generation: Generation) -> Path:
        held, self._held = self._held, None
        if held is not None and self._path is not None:
            # Fails if a folder was a file before; then everything is written again.
            with contextlib.suppress(OSError):
                self._alter(self._path, held, generation)
                self._held = generation
                return self._path
        self._remove()
        # Created with mode 0700, so other users cannot read the files.
        self._path = Path(tempfile.mkdtemp("", "haptic-trio-check-", self._root))
        (self._path / PRELUDE_NAME).write_text(PRELUDE)
        self._alter(self._path, None, generation)
        self._held = generation
        return self._path

    async def aclose(self) -> None:
        """Remove the directory, also in a cancelled task."""
        await clean_up_in_thread(self.remove)

    def remove(self) -> None:
        """Remove the directory; the next check creates another one. Blocks."""
        with self._lock:
            self._remove()

    def _remove(self) -> None:
        left = self._left if self._path is None else (*self._left, self._path)
        self._path, self._held = None, None
        for path in left:
            shutil.rmtree(path, ignore_errors=True)
        self._left = tuple(filter(Path.exists, left))

    def _alter(self, path: Path, held: Generation | None, generation: Generation) -> None:
        if held is None or held.config.seal != generation.config.seal:
            (path / CONFIG_NAME).write_bytes(generation.text.encode(errors="surrogateescape"))
        old, new = (held.files if held is not None else make_files(())).differing(generation.files)
        for gone in old.keys() - new.keys():
            (path / gone).unlink()
        for file in new.values():
            if (known := old.get(file.path)) is None or known.seal != file.seal:
                target = path / file.path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.content)


async def check_config(
    binary: Path,
    generation: Generation,
    *,
    limit: float,
    priority: Priority = Priority.LOW,
    root: Path | None = None,
    directory: CheckDirectory | None = None,
    memory: int | None = None,
    most_cpu: float = math.inf,
) -> CheckReport:
    """Check *generation* with *binary*; return its warnings, or raise ConfigRejectedError with its errors.

    Line numbers refer to the rendered haproxy.cfg. The files are written to
    *directory*, or to a private one below *root* (the system's temporary
    directory by default), which is removed before this returns. Accepted
    generations are cached. Raises CheckCrashedError, a ConfigRejectedError, if
    HAProxy crashes twice, CheckTimeoutError after *limit* seconds,
    CheckCostlyError after *most_cpu* seconds of CPU time, CheckMemoryError if
    *memory* (bytes of address space) is not enough, and CheckFailedError if
    `haproxy -c` cannot be run.
    """
    if (known := find_acceptance(binary, generation)) is not None:
        await trio.lowlevel.checkpoint()
        if known.cpu_seconds > most_cpu:
            raise _costly(most_cpu)
        return known
    began = trio.current_time()
    try:
        async with contextlib.AsyncExitStack() as owned:
            if directory is None:
                directory = await owned.enter_async_context(contextlib.aclosing(CheckDirectory(root)))
            path = await trio.to_thread.run_sync(directory.write, generation)
            problems, cpu_seconds = await _run_twice(
                binary,
                [path / PRELUDE_NAME, path / CONFIG_NAME],
                limit=limit,
                priority=priority,
                memory=memory,
                most_cpu=most_cpu,
            )
    except OSError as exc:
        raise CheckFailedError(f"haproxy -c could not be run: {exc}") from exc
    report = CheckReport(warnings=problems, seconds=trio.current_time() - began, cpu_seconds=cpu_seconds)
    _remember(binary, generation, report)
    return report


async def run_check(
    binary: Path,
    configs: Sequence[Path],
    *,
    limit: float,
    priority: Priority = Priority.LOW,
    memory: int | None = None,
) -> tuple[Problem, ...]:
    """Run `haproxy -c` over *configs* and return its warnings; raises as `check_config` does, and OSError.

    A check that crashes is repeated with twice the *memory*, so that a random
    crash or a lack of memory does not count as an error of the configuration.
    """
    problems, _ = await _run_twice(binary, configs, limit=limit, priority=priority, memory=memory, most_cpu=math.inf)
    return problems


async def _run_twice(
    binary: Path,
    configs: Sequence[Path],
    *,
    limit: float,
    priority: Priority,
    memory: int | None,
    most_cpu: float,
) -> tuple[tuple[Problem, ...], float]:
    """Run as `run_check` does; return the CPU seconds of the check as well."""
    spent = [0.0]
    run = partial(
        _run_bounded,
        binary,
        configs,
        priority=priority,
        most_cpu=most_cpu,
        note_unfinished=spent.append,
    )
    is_short = False
    with trio.move_on_after(limit) as scope:
        code, output, cpu_seconds = await run(memory=memory)
        if -code in CRASHES:
            code, output, cpu_seconds = await run(memory=memory and 2 * memory)
            is_short = -code not in CRASHES
    if scope.cancelled_caught:
        raise CheckTimeoutError(f"haproxy -c did not end within {limit:g} s", spent[-1])
    if memory is not None and (is_short or (code and _NO_MEMORY.search(output))):
        raise CheckMemoryError(f"HAProxy would need more than {memory >> 20} MiB of memory to read it")
    if code == -signal.SIGKILL:
        raise CheckFailedError("haproxy -c was killed, possibly because the system is out of memory")
    if code < 0 and -code not in CRASHES:
        raise CheckFailedError(f"haproxy -c was ended by {_signal_name(code)}")
    # Messages have the names of files without the temporary directory.
    for folder in sorted({f"{config.parent}/" for config in configs}, key=len, reverse=True):
        output = output.replace(folder, "")
    return judge_output(code, output), cpu_seconds


class _Ended(NamedTuple):
    code: int
    output: str
    cpu_seconds: float


async def _run_bounded(
    binary: Path,
    configs: Sequence[Path],
    *,
    priority: Priority,
    memory: int | None,
    most_cpu: float,
    note_unfinished: Callable[[float], None],
) -> _Ended:
    command = [str(binary), "-c", *(word for config in configs for word in ("-f", str(config)))]
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=clean_environment()
    )
    try:
        # Else a crash writes a core file to the working directory.
        _limit(process.pid, resource.RLIMIT_CORE, 0)
        if memory is not None:
            _limit(process.pid, resource.RLIMIT_AS, memory)
        _set_priority(process.pid, priority)
        assert process.stdout is not None
        output, is_costly = "", False
        async with process.stdout as stream, trio.open_nursery() as nursery:

            async def stop_when_costly() -> None:
                nonlocal is_costly
                await wait_for_cpu_time(process.pid, most_cpu)
                is_costly = True
                nursery.cancel_scope.cancel(reason="the check takes too much CPU time")

            nursery.start_soon(stop_when_costly)
            output = await _read_bounded(stream)
            nursery.cancel_scope.cancel(reason="the check has ended")
        # It has not been waited for, so that its clock can still be read.
        cpu_seconds = cpu_time_of(process.pid)
        if is_costly or cpu_seconds > most_cpu:
            raise _costly(most_cpu)
        return _Ended(await process.wait(), output, cpu_seconds)
    finally:
        if process.returncode is None:
            note_unfinished(cpu_time_of(process.pid))
            process.kill()
            with trio.move_on_after(KILL_LIMIT, shield=True):
                await process.wait()


def _costly(most_cpu: float) -> CheckCostlyError:
    return CheckCostlyError(f"haproxy -c took more than {most_cpu:.3g} s of CPU time")


async def _read_bounded(stream: trio.abc.ReceiveStream) -> str:
    output = BoundedOutput()
    while chunk := await stream.receive_some():
        output.take(chunk)
    return output.text()


def _limit(pid: int, what: int, wanted: int) -> None:
    # The process may have ended already.
    with contextlib.suppress(ProcessLookupError):
        _, most = resource.prlimit(pid, what)
        limit = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.prlimit(pid, what, (limit, limit))


def _set_priority(pid: int, priority: Priority) -> None:
    # Not permitted, or the process has ended: without effect on the result.
    with contextlib.suppress(OSError):
        if priority is not Priority.NORMAL:
            os.setpriority(os.PRIO_PROCESS, pid, 10)
        if priority is Priority.IDLE:
            os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def judge_output(code: int, output: str) -> tuple[Problem, ...]:
    """Return the warnings of a check that ended with *code*, or raise ConfigRejectedError."""
    found = parse_check_output(output)
    if -code in CRASHES:
        raise CheckCrashedError(found.errors or (_unexplained(code),))
    if code:
        raise ConfigRejectedError(found.errors or (_unexplained(code),))
    return found.warnings


def _unexplained(code: int) -> Problem:
    if code == NO_LISTENER:
        return Problem(
            message="the configuration has no listener, so HAProxy does not start", hint="add a frontend with a `bind`"
        )
    if code < 0:
        hint = "this is a bug of HAProxy; report it to the HAProxy project with this part of the configuration"
        return Problem(message=f"HAProxy crashes on it ({_signal_name(code)})", hint=hint)
    return Problem(message=f"haproxy -c ended with code {code}")


def _signal_name(code: int) -> str:
    return signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
