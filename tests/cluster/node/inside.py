"""The process that is the cluster: in namespaces of its own, it starts the control plane and is kubelet and balancer.

Started by `rig.py` under `unshare`. The first process only waits for those that no other waits for; when it ends,
the kernel ends all others, and with them network and mounts go.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path
from typing import Final

import httpx
import trio

from haptic_trio.errors import leaves_of
from tests.cluster.control_plane.api import Api, ApiError
from tests.cluster.control_plane.balancer import Balancer
from tests.cluster.control_plane.binaries import find_binaries
from tests.cluster.control_plane.certificates import Certificates, write_certificates
from tests.cluster.control_plane.processes import (
    POLL_INTERVAL,
    SECURE_PORT,
    SERVICE_NETWORK,
    Part,
    PartError,
    build_parts,
    wait_apiserver,
    wait_etcd,
)
from tests.cluster.control_plane.serving import Orders, serve_logs, serve_orders
from tests.cluster.control_plane.state import PREFIX, State, control_socket, write_kubeconfig, write_state
from tests.cluster.node.images import default_images
from tests.cluster.node.kubelet import Kubelet
from tests.cluster.node.netlink import Netlink
from tests.cluster.node.sandbox import BRIDGE, GATEWAY, POD_NETWORK
from tests.cluster.workloads.relay import relay

READY: Final = "ready"
START_LIMIT: Final = 90.0
"""Seconds until the cluster must be ready."""
_INNER_URL: Final = f"https://{GATEWAY}:{SECURE_PORT}"


class ClusterProcess:
    """Everything that runs in the cluster, apart from the Pods."""

    def __init__(self, state: State, nodes: list[str], begun: float) -> None:
        self._state = state
        self._nodes = nodes
        self._begun = begun
        self._data = state.directory / "run"

    async def run(self, outside: socket.socket, *, until_eof: bool) -> None:
        """Run the cluster until a signal, or until the end of standard input; raises PartError when it breaks."""
        state = self._state
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            certificates = write_certificates(state.certificates.directory, _server_names())
            write_kubeconfig(state.kubeconfig, state.api_url, certificates)
            write_kubeconfig(state.inner_kubeconfig, _INNER_URL, certificates)
            parts = build_parts(
                find_binaries(),
                certificates,
                address=GATEWAY,
                kubeconfig=state.inner_kubeconfig,
                data=self._data,
                logs=state.logs,
            )
            client = httpx.AsyncClient(
                base_url=_INNER_URL, verify=certificates.client_context(), limits=httpx.Limits(), trust_env=False
            )
            async with client, trio.open_nursery() as nursery:
                nursery.start_soon(self._run_parts, parts, client, nursery, outside, certificates)
                if until_eof:
                    nursery.start_soon(_wait_eof, nursery.cancel_scope)
                async for _ in signals:
                    nursery.cancel_scope.cancel(reason="told to end")

    async def _run_parts(
        self,
        parts: Mapping[str, Part],
        client: httpx.AsyncClient,
        nursery: trio.Nursery,
        outside: socket.socket,
        certificates: Certificates,
    ) -> None:
        with trio.fail_after(START_LIMIT):
            for name, part in parts.items():
                await part.start()
                nursery.start_soon(part.watch_over)
                if name == "etcd":
                    await wait_etcd(client)
                elif name == "kube-apiserver":
                    await wait_apiserver(client)
                self._mark(name)
            api = Api(client)
            kubelet = Kubelet(
                api,
                default_images(),
                nodes=self._nodes,
                state=self._state.directory,
                data=self._data / "pods",
                logs=self._state.logs,
            )
            await nursery.start(kubelet.run)
            await nursery.start(Balancer(api).run)
            await nursery.start(serve_logs, kubelet, certificates)
            await nursery.start(serve_orders, Orders(parts, kubelet, client), control_socket(self._state.directory))
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(outside))
            nursery.start_soon(trio.serve_listeners, _relay_to_apiserver, [listener])
            self._mark("kubelet")
            await _wait_controllers(api)
            self._mark(READY)
        write_state(self._state)
        sys.stdout.write(f"{READY} {self._state.directory}\n")
        sys.stdout.flush()

    def _mark(self, name: str) -> None:
        self._state.seconds[name] = round(trio.current_time() - self._begun, 2)


async def _wait_controllers(api: Api) -> None:
    """Wait until the controllers work: a Pod can be created once its namespace has an account."""
    while True:
        try:
            await api.get("/api/v1/namespaces/default/serviceaccounts/default")
        except ApiError:
            await trio.sleep(POLL_INTERVAL)
        else:
            return


async def _relay_to_apiserver(client: trio.SocketStream) -> None:
    try:
        server = await trio.open_tcp_stream(str(GATEWAY), SECURE_PORT)
    except OSError:
        await trio.aclose_forcefully(client)
    else:
        await relay(client, server)


async def _wait_eof(scope: trio.CancelScope) -> None:
    async with trio.lowlevel.FdStream(os.dup(0)) as stream:
        while await stream.receive_some(1024):
            pass
    scope.cancel(reason="whoever started the cluster is gone")


def _server_names() -> list[str]:
    service = IPv4Network(SERVICE_NETWORK)[1]
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    return ["127.0.0.1", str(GATEWAY), str(service), *names]


def _prepare_namespaces(data: Path) -> None:
    for arguments in (["-t", "proc", "proc", "/proc"], ["-t", "tmpfs", "-o", "mode=755", "tmpfs", str(data)]):
        subprocess.run(["mount", *arguments], check=True)
    with Netlink() as here:
        here.set_up("lo")
        here.add_bridge(BRIDGE)
        here.add_address(BRIDGE, IPv4Interface(f"{GATEWAY}/{POD_NETWORK.prefixlen}"))


def _reap_until_end_of(child: int) -> int:
    """Be the first process: wait for orphans, pass signals on; return the status of *child*."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: os.kill(child, received))
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def _run_child(state: State, nodes: list[str], listener: int, *, until_eof: bool) -> int:
    outside = socket.socket(fileno=listener)
    outside.setblocking(False)

    async def run() -> None:
        await ClusterProcess(state, nodes, trio.current_time()).run(outside, until_eof=until_eof)

    status = 0
    try:
        trio.run(run)
    except* (PartError, trio.TooSlowError) as group:
        sys.stderr.write("\n".join(str(exc) or repr(exc) for exc in leaves_of(group)) + "\n")
        status = 1
    return status


def main() -> int:
    """Be the cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--listener", type=int, required=True)
    parser.add_argument("--nodes", required=True)
    parser.add_argument("--until-eof", action="store_true")
    options = parser.parse_args()
    directory: Path = options.state
    # The machine's own view of processes is still mounted here, so this is our number there.
    init = int(os.readlink("/proc/self"))  # noqa: PTH115
    data = directory / "run"
    for folder in (data, directory / "logs"):
        folder.mkdir()
    _prepare_namespaces(data)
    port = socket.socket(fileno=os.dup(options.listener)).getsockname()[1]
    state = State(directory, init, f"https://127.0.0.1:{port}", {})
    child = os.fork()
    if child == 0:
        os._exit(_run_child(state, options.nodes.split(","), options.listener, until_eof=options.until_eof))
    os.close(options.listener)
    status = _reap_until_end_of(child)
    if directory.name.startswith(PREFIX) and directory.parent == Path(tempfile.gettempdir()):
        subprocess.run(["umount", "--lazy", str(data)], check=False)
        shutil.rmtree(directory, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
