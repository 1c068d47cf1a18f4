"""Processes that listen on ports that an HAProxy is about to bind."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from haptic_trio.dataplane.local.port_holders import Holder, find_holders, read_listening

pytestmark = pytest.mark.process

LISTEN = """
import socket, sys
holder = socket.create_server((sys.argv[1], 0), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
print(holder.getsockname()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def listening(host: str, *arguments: str | Path) -> Iterator[tuple[int, int]]:
    """Have a process whose command line ends in *arguments* listen on a port of *host*; yield its pid and the port."""
    command = [sys.executable, "-c", LISTEN, host, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.stdin.close()


@pytest.mark.parametrize(
    ("held", "wanted", "is_found"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("127.0.0.1", "::", False),
        ("::1", "::", True),
    ],
)
def test_the_haproxy_of_another_controller_is_found_where_addresses_overlap(
    tmp_path: Path, held: str, wanted: str, is_found: bool
) -> None:
    directory = tmp_path / "other/instances/local-1"
    with listening(held, "-f", directory / "process.cfg") as (pid, port):
        found = find_holders([(wanted, port)], root=tmp_path / "ours/instances")

    assert found == ([Holder((held, port), pid, directory)] if is_found else [])


def test_a_sibling_is_none_by_whatever_name_the_directory_goes(tmp_path: Path) -> None:
    root = tmp_path / "state/instances"
    root.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "state")
    with listening("127.0.0.1", root / "local-1/process.cfg") as (_, port):
        assert find_holders([("127.0.0.1", port)], root=root) == []
        assert find_holders([("127.0.0.1", port)], root=tmp_path / "link/instances") == []


def test_a_program_that_no_controller_has_started_is_left_to_the_kernel(tmp_path: Path) -> None:
    with listening("127.0.0.1") as (_, port):
        assert find_holders([("127.0.0.1", port)], root=tmp_path) == []


def test_error_names_the_port_and_the_fix() -> None:
    mine = Holder(("0.0.0.0", 8080), 7, Path("/srv/other/instances/local-1")).explain()
    agents = Holder(("0.0.0.0", 8080), 7, Path("/srv/agent")).explain()

    assert "0.0.0.0:8080" in mine
    assert "--state-dir /srv/other " in mine
    assert "--state-dir" not in agents


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_kernels_table_is_read_as_it_is_written(family: socket.AddressFamily, host: str) -> None:
    table = Path("/proc/net/tcp6" if family is socket.AF_INET6 else "/proc/net/tcp")
    with socket.create_server((host, 0), family=family) as server, socket.socket(family) as silent:
        silent.bind((host, 0))
        listening_there = set(dict(read_listening(table.read_text())).values())

        assert (host, server.getsockname()[1]) in listening_there
        assert (host, silent.getsockname()[1]) not in listening_there
