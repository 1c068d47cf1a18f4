"""A Kubernetes cluster without containers, for tests and by hand.

    python -m tests.cluster.rig [--state DIR] up [--nodes a,b]     until Ctrl-C; prints `ready DIR`
    python -m tests.cluster.rig [--state DIR] run COMMAND...       in its network, with KUBECONFIG set
    python -m tests.cluster.rig [--state DIR] down                 end the one that runs

Needs root (network, mount and process namespaces) and the programs of `python -m tests.cluster.control_plane.binaries`.
"""

import argparse
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import trio

from tests.cluster.control_plane.state import State, find_clusters, make_directory, read_state, start_of, write_owner
from tests.cluster.node.images import CHECKOUT
from tests.cluster.node.namespaces import private_command, why_no_namespaces
from tests.cluster.workloads.client import Cluster, connect_cluster

START_LIMIT: Final = 100.0
END_LIMIT: Final = 15.0
NODES: Final = "node-1,node-2"


class ClusterStartError(Exception):
    """The cluster did not become ready; the text says why. Trying again seldom helps."""


@contextmanager
def running_cluster(*, nodes: str = NODES) -> Iterator[State]:
    """Run a cluster of its own; on leaving, everything of it is gone. Takes about 6 seconds."""
    command = [sys.executable, "-m", "tests.cluster.rig", "up", "--until-eof", "--nodes", nodes]
    with subprocess.Popen(
        command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        try:
            yield read_state(_wait_ready(process))
        finally:
            # The cluster ends with its standard input, so it ends as well when this process dies.
            process.stdin.close()
            try:
                process.wait(END_LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
            assert process.stderr is not None
            sys.stderr.write(process.stderr.read())


@asynccontextmanager
async def open_cluster(*, nodes: str = NODES) -> AsyncIterator[Cluster]:
    """Run a cluster of its own and connect to it."""
    running = running_cluster(nodes=nodes)
    state = await trio.to_thread.run_sync(running.__enter__)
    try:
        async with connect_cluster(state) as cluster:
            yield cluster
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(running.__exit__, None, None, None)


def _wait_ready(process: "subprocess.Popen[str]") -> Path:
    assert process.stdout is not None
    assert process.stderr is not None
    ready, _, _ = select.select([process.stdout], [], [], START_LIMIT)
    line = process.stdout.readline() if ready else ""
    if not line:
        process.kill()
        process.wait()
        raise ClusterStartError(process.stderr.read().strip() or "the cluster did not become ready in time")
    return Path(line.split(maxsplit=1)[1].strip())


def up(directory: Path | None, nodes: str, *, until_eof: bool) -> None:
    """Become the cluster; returns never. The API server is reached at a port of the machine's loopback."""
    if reason := why_no_namespaces():
        raise ClusterStartError(reason)
    state = make_directory() if directory is None else directory.absolute()
    state.mkdir(parents=True, exist_ok=True)
    write_owner(state, os.getpid())
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    listener.set_inheritable(True)
    arguments = ["--state", str(state), "--listener", str(listener.fileno()), "--nodes", nodes]
    inner = [sys.executable, "-m", "tests.cluster.node.inside", *arguments, *(["--until-eof"] if until_eof else [])]
    command = private_command(*inner)
    os.execvp(command[0], command)


def down(state: State) -> None:
    """End the cluster and wait until it is gone."""
    started = start_of(state.init_pid)
    os.kill(state.init_pid, signal.SIGTERM)
    deadline = time.monotonic() + END_LIMIT
    while start_of(state.init_pid) == started and time.monotonic() < deadline:
        time.sleep(0.05)


def run(state: State, argv: Sequence[str]) -> None:
    """Become *argv*, in the cluster's network; returns never."""
    os.environ["KUBECONFIG"] = str(state.inner_kubeconfig)
    os.execvp("nsenter", ["nsenter", f"--target={state.init_pid}", "--net", "--", *argv])


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    parser.add_argument("--state", type=Path)
    starter = verbs.add_parser("up")
    starter.add_argument("--nodes", default=NODES)
    starter.add_argument("--until-eof", action="store_true")
    verbs.add_parser("run").add_argument("argv", nargs=argparse.REMAINDER)
    verbs.add_parser("down")
    options = parser.parse_args(arguments)
    try:
        if options.verb == "up":
            up(options.state, options.nodes, until_eof=options.until_eof)
        state = read_state(options.state or _only_cluster())
        if options.verb == "run":
            run(state, [one for one in options.argv if one != "--"])
        down(state)
    except (ClusterStartError, OSError) as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    return 0


def _only_cluster() -> Path:
    found = find_clusters()
    if len(found) != 1:
        raise ClusterStartError(f"{len(found)} clusters run; name one with --state")
    return found[0]


if __name__ == "__main__":
    sys.exit(main())
