"""A real HAProxy for one rendered configuration."""

import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from haptic_trio.dataplane.binary import clean_environment, find_haproxy
from tests.support.traffic.servers import socket_answers

_SLOW = re.compile(r"the hash algorithm used for this password takes \d+ milliseconds")
"""HAProxy 3.4 measures the time in which it verifies a password: the warning is about a busy machine."""
_BOUND = re.compile(r"^\s*bind\s+127\.0\.0\.1:(\d+)", re.MULTILINE)


def write_generation(directory: Path, text: str, files: Mapping[str, str]) -> list[str]:
    """Write a configuration and its files; returns the command line that HAProxy reads them by."""
    first = directory / "first.cfg"
    first.write_text(f"global\n    default-path origin {directory}\n")
    (directory / "haproxy.cfg").write_text(text)
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(content)
    return [str(find_haproxy()), "-f", str(first), "-f", str(directory / "haproxy.cfg")]


def check(directory: Path, text: str, files: Mapping[str, str]) -> str:
    """Return what `haproxy -c` has to say, warnings included; empty when all is well."""
    command = [*write_generation(directory, text, files), "-c"]
    run = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=30, check=False)
    warnings = [line for line in run.stderr.splitlines() if line.startswith("[WARNING]") and not _SLOW.search(line)]
    return run.stderr if run.returncode or warnings else ""


def processor_seconds(process: int) -> float:
    """Return the processor time that an HAProxy with one thread has used; the scheduler counts it in nanoseconds."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9


@contextmanager
def running(directory: Path, text: str, files: Mapping[str, str], *, port: int) -> Iterator[int]:
    """Run HAProxy in the foreground until the block ends; entered with its process id once it serves.

    HAProxy listens on one port after the other: *port* and all that *text*
    binds on 127.0.0.1 have to answer.
    """
    log = directory / "haproxy.log"
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [*write_generation(directory, text, files), "-db"], stderr=out, stdout=out, env=clean_environment()
        ) as process,
    ):
        try:
            deadline = time.monotonic() + 120
            for bound in sorted({port, *map(int, _BOUND.findall(text))}):
                while not socket_answers(bound):
                    assert process.poll() is None, log.read_text()
                    assert time.monotonic() < deadline, log.read_text()
                    time.sleep(0.005)
            yield process.pid
        finally:
            process.kill()
