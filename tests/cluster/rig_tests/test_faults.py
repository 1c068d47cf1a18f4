"""Parts of the control plane can be taken away and come back; a cluster that ends leaves nothing, however it ends."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import httpx
import msgspec
import pytest
import trio

from tests.cluster.control_plane.state import find_clusters, make_directory, read_state, start_of, write_owner
from tests.cluster.fixtures import require_cluster
from tests.cluster.node.images import CHECKOUT
from tests.cluster.rig import open_cluster
from tests.cluster.workloads.client import Cluster, until
from tests.cluster.workloads.manifests import PORT, deployment, pod, secret

pytestmark = pytest.mark.cluster
LIMIT = 180.0


async def test_pods_run_on_without_an_api_server_and_what_was_missed_is_made_up_for(
    cluster: Cluster, namespace: str
) -> None:
    with trio.fail_after(LIMIT):
        await cluster.apply([deployment("echo", 2)], namespace)
        pods = await cluster.wait_pods(namespace, "app=echo", 2)
        await cluster.control("kube-apiserver", "stop")
        with pytest.raises(httpx.TransportError):
            await cluster.client.get("/readyz")
        async with cluster.http() as client:
            answer = await client.get(f"http://{pods[0]['status']['podIP']}:{PORT}/")
            await client.post(f"http://{pods[0]['status']['podIP']}:{PORT}/exit?status=1")
        await cluster.control("kube-apiserver", "start")
        path = f"/api/v1/namespaces/{namespace}/pods/{pods[0]['metadata']['name']}"
        await cluster.wait(path, lambda found: found and found["status"]["containerStatuses"][0]["restartCount"] == 1)
        await cluster.apply([deployment("echo", 3)], namespace)
        await cluster.wait_pods(namespace, "app=echo", 3)

    assert answer.status_code == 200


async def test_controllers_that_were_killed_catch_up_when_they_are_back(cluster: Cluster, namespace: str) -> None:
    with trio.fail_after(LIMIT):
        await cluster.control("kube-controller-manager", "kill")
        await cluster.apply([deployment("echo", 1)], namespace)
        assert not (await cluster.parts())["kube-controller-manager"].running
        assert await cluster.pods(namespace) == []
        await cluster.control("kube-controller-manager", "start")
        await cluster.wait_pods(namespace, "app=echo", 1)


async def test_killed_etcd_comes_back_with_what_it_knew(cluster: Cluster, namespace: str) -> None:
    with trio.fail_after(LIMIT):
        await cluster.apply([secret("keys", one="1")], namespace)
        await cluster.control("etcd", "kill")
        await cluster.control("etcd", "start")

        async def is_known() -> bool:
            return not (await cluster.client.get(f"/api/v1/namespaces/{namespace}/secrets/keys")).is_error

        await until(is_known)


async def test_frozen_api_server_hangs_instead_of_rejecting(cluster: Cluster) -> None:
    with trio.fail_after(LIMIT):
        await cluster.control("kube-apiserver", "freeze")
        try:
            with pytest.raises(httpx.TimeoutException):
                await cluster.client.get("/readyz", timeout=0.5)
        finally:
            with trio.move_on_after(LIMIT, shield=True):
                await cluster.control("kube-apiserver", "thaw")
        assert (await cluster.client.get("/readyz")).text == "ok"


async def test_watch_from_a_version_that_was_compacted_away_is_gone(cluster: Cluster, namespace: str) -> None:
    parameters = {"watch": "1", "resourceVersion": "1"}
    with trio.fail_after(LIMIT):
        _, before = await cluster.api.list("/api/v1/pods")
        compacted = await cluster.compact()
        await cluster.control("kube-apiserver", "kill")
        await cluster.control("kube-apiserver", "start")
        async with cluster.client.stream("GET", "/api/v1/pods", params=parameters) as response:
            lines = [line async for line in response.aiter_lines()]
    event = msgspec.json.decode(lines[0])

    assert compacted >= int(before)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_cluster_of_its_own_is_ready_soon_and_leaves_nothing() -> None:
    require_cluster()
    before = links_and_mounts()
    async with open_cluster(nodes="only") as cluster:
        directory = cluster.state.directory
        with trio.fail_after(LIMIT):
            await cluster.apply([deployment("echo", 2)])
            await cluster.wait_pods("default", "app=echo", 2)
        assert directory in find_clusters()
        assert processes_of(directory)

    assert processes_of(directory) == []
    assert not is_there(directory)
    assert links_and_mounts() == before


async def test_cluster_ends_when_its_starter_is_killed() -> None:
    require_cluster()
    code = (
        "import sys; from tests.cluster.rig import running_cluster\n"
        "with running_cluster() as state: print(state.directory, flush=True); sys.stdin.read()"
    )
    starter = subprocess.Popen(  # noqa: ASYNC220 - it is killed, as a test run is; the test does not wait for it
        [sys.executable, "-c", code], cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert starter.stdin is not None
    assert starter.stdout is not None
    with starter.stdin, starter.stdout:
        directory = Path((await trio.to_thread.run_sync(starter.stdout.readline)).strip())
        assert processes_of(directory)
        starter.kill()
        starter.wait()
        with trio.fail_after(10):
            await until(partial(is_gone, directory))


async def test_cluster_that_was_killed_takes_its_processes_along_and_its_directory_goes_with_the_next() -> None:
    require_cluster()
    async with open_cluster() as cluster:
        directory = cluster.state.directory
        with trio.fail_after(LIMIT):
            await cluster.apply([pod("echo")])
            await cluster.wait_pods("default", "app=echo", 1)
        os.kill(read_state(directory).init_pid, signal.SIGKILL)
        with trio.fail_after(10):
            await until(partial(is_gone, directory, files=False))

    assert is_there(directory), "nobody was left to remove it"
    make_directory().rmdir()
    assert not is_there(directory)


def test_directory_of_a_live_cluster_is_kept() -> None:
    directory = make_directory()
    write_owner(directory, os.getpid())
    make_directory().rmdir()

    assert directory in find_clusters()
    (directory / "owner.json").unlink()
    directory.rmdir()


def is_there(directory: Path) -> bool:
    return directory.exists()


async def is_gone(directory: Path, *, files: bool = True) -> bool:
    return not processes_of(directory) and not (files and is_there(directory))


def links_and_mounts() -> tuple[list[str], str]:
    return sorted(link.name for link in Path("/sys/class/net").iterdir()), Path("/proc/mounts").read_text()


def processes_of(directory: Path) -> list[int]:
    """Return the live processes that name *directory*, or run in a cluster that does."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or start_of(int(entry.name)) is None:
            continue
        try:
            command = (entry / "cmdline").read_text()
            mounts = (entry / "mounts").read_text()
        except OSError:
            continue
        if str(directory) in command or f"{directory}/" in mounts:
            found.append(int(entry.name))
    return found
