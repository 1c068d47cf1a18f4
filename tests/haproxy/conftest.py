"""A real HAProxy for the tests of the model: checks of texts, and processes with a runtime socket."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from haptic_trio.dataplane.binary import HaproxyVersion, probe_version
from tests.support.processes.haproxy import haproxy_binary

__all__ = ["haproxy_binary"]

START_DEADLINE = 10.0


@pytest.fixture(scope="session")
def haproxy_version(haproxy_binary: Path) -> HaproxyVersion:
    """What the HAProxy of these tests is."""
    return probe_version(haproxy_binary)


@pytest.fixture
def haproxy_2_8(haproxy_version: HaproxyVersion) -> None:
    """Skips what was recorded from HAProxy 2.8 where these tests run with another one."""
    if haproxy_version.number[:2] != (2, 8):
        pytest.skip(f"recorded from HAProxy 2.8, this is {haproxy_version.text}")


@pytest.fixture
def check_config(haproxy_binary: Path, tmp_path: Path) -> Callable[..., tuple[bool, str]]:
    """Return a function that runs `haproxy -c` on a text: whether it is accepted, and all output."""

    def check(text: bytes | str, *options: str) -> tuple[bool, str]:
        path = tmp_path / "haproxy.cfg"
        path.write_bytes(text if isinstance(text, bytes) else text.encode(errors="surrogateescape"))
        command = [str(haproxy_binary), "-c", *options, "-f", "haproxy.cfg"]
        run = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, check=False, timeout=30)
        output = (run.stdout + run.stderr).decode(errors="surrogateescape")
        # 2: valid, but nothing to listen on.
        return run.returncode in {0, 2}, output

    return check


@pytest.fixture
def start_haproxy(haproxy_binary: Path) -> Iterator[Callable[..., Callable[[str], str]]]:
    """Return a function that starts HAProxy on a text and files; it returns a function that asks the runtime socket.

    The text gets a `global` section with the socket. All processes end with the test.
    """
    with ExitStack() as stack:

        def start(text: str, files: Mapping[str, bytes] | None = None) -> Callable[[str], str]:
            ask, _ = stack.enter_context(running_haproxy(haproxy_binary, lambda _: (text, files or {})))
            return ask

        yield start


@contextmanager
def running_haproxy(
    binary: Path, build: Callable[[Path], tuple[str, Mapping[str, bytes]]]
) -> Iterator[tuple[Callable[[str], str], Path]]:
    """Run HAProxy on the text and files that *build* returns for its directory; yields how to ask it, and that."""
    # Not tmp_path: its name may be too long for a socket.
    directory = Path(tempfile.mkdtemp(prefix="hp"))
    process = None
    text, files = build(directory)
    try:
        for name, content in files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)
        head = f"global\n  stats socket {directory}/s level admin\n"
        (directory / "haproxy.cfg").write_text(head + text)
        with (directory / "log").open("wb") as log:
            command = [str(binary), "-db", "-f", "haproxy.cfg"]
            process = subprocess.Popen(command, cwd=directory, env={}, stdout=log, stderr=log)

        def ask(command: str) -> str:
            return _ask(directory / "s", command)

        _wait_until_answering(process, ask, directory / "log")
        yield ask, directory
    finally:
        if process is not None:
            process.terminate()
            process.wait(10)
        shutil.rmtree(directory)


def _wait_until_answering(process: subprocess.Popen[bytes], ask: Callable[[str], str], log: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE
    while True:
        try:
            ask("show version")
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, "HAProxy did not open its socket"
            os.sched_yield()
        else:
            return


def _ask(path: Path, command: str) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(path))
        connection.sendall(command.removesuffix("\n").encode(errors="surrogateescape") + b"\n")
        connection.shutdown(socket.SHUT_WR)
        chunks = []
        while chunk := connection.recv(65536):
            chunks.append(chunk)
    return b"".join(chunks).decode(errors="surrogateescape")
