"""Sandbox of a Pod: a network namespace with an address of its own, and the start of processes in it."""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Final

import msgspec
import trio

from tests.cluster.node.namespaces import NetworkNamespace
from tests.cluster.node.netlink import Netlink

BRIDGE: Final = "pods"
POD_NETWORK: Final = IPv4Network("10.244.0.0/16")
GATEWAY: Final = IPv4Address("10.244.0.1")
LAUNCH: Final = Path(__file__).with_name("launch.sh")
POLL_INTERVAL: Final = 0.005
EXIT_LIMIT: Final = 5.0
"""Seconds that the processes of a container may take to be gone after SIGKILL."""


class Addresses:
    """Hands out the addresses of Pods, in turn, so that a fresh Pod seldom gets one that was just in use."""

    def __init__(self) -> None:
        self._used: set[IPv4Address] = set()
        # The first 256 belong to the node itself.
        self._next = 256

    def take(self) -> IPv4Address:
        """Return an address that no Pod has."""
        for _ in range(POD_NETWORK.num_addresses):
            address = POD_NETWORK[self._next]
            self._next = self._next + 1 if self._next + 2 < POD_NETWORK.num_addresses else 256
            if address not in self._used:
                self._used.add(address)
                return address
        raise AssertionError("every address of the network is in use")

    def give_back(self, address: IPv4Address) -> None:
        """Let *address* be used again."""
        self._used.discard(address)


def connect_pod(namespace: NetworkNamespace, address: IPv4Address) -> None:
    """Give *namespace* an address in the Pods' network; the caller is in the namespace of the bridge."""
    with Netlink() as here:
        here.add_pair(f"pod-{int(address) & 0xFFFF}", BRIDGE, "eth0", namespace.descriptor)
    with namespace.entered(), Netlink() as there:
        there.set_up("lo")
        there.add_address("eth0", IPv4Interface(f"{address}/{POD_NETWORK.prefixlen}"))
        there.set_up("eth0")
        there.add_default_route(GATEWAY)


class Mount(msgspec.Struct, frozen=True):
    """A directory or file that a container sees at another place."""

    source: Path
    target: str
    read_only: bool


class Launch(msgspec.Struct, frozen=True):
    """Everything that makes a container's process."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    mounts: Sequence[Mount]
    filesystems: Sequence[str]
    hostname: str
    directory: str = "/"
    read_only: bool = False


class ContainerProcess:
    """The running process of a container, and whatever it started."""

    def __init__(self, process: trio.Process, layers: Path) -> None:
        self.process = process
        self._layers = layers
        self._mounts: int | None = None
        """Descriptor of its mount namespace: while it is open, no other namespace gets its number."""

    @classmethod
    async def start(cls, launch: Launch, namespace: int | None, layers: Path, log: Path) -> "ContainerProcess":
        """Start *launch* in the network of descriptor *namespace*, or of the caller; its files go to *layers*."""
        os.makedirs(layers)  # noqa: PTH103 - in memory, like all of the cluster's own files
        network = [] if namespace is None else ["nsenter", f"--net=/proc/{os.getpid()}/fd/{namespace}"]
        mounts = [
            text for one in launch.mounts for text in ("ro" if one.read_only else "rw", str(one.source), one.target)
        ]
        script = ["sh", str(LAUNCH), str(layers), launch.hostname, "ro" if launch.read_only else "rw", launch.directory]
        command = [
            *network,
            "unshare",
            "--mount",
            "--uts",
            *script,
            *launch.filesystems,
            "--",
            *mounts,
            "--",
            *launch.argv,
        ]
        with log.open("ab") as output:
            process = await trio.lowlevel.open_process(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(launch.environment),
                start_new_session=True,
            )
        return cls(process, layers)

    async def wait_launched(self) -> None:
        """Wait until the process has its own files before it, or has ended."""
        while self.process.poll() is None:
            if (self._layers / "launched").exists():
                with suppress(FileNotFoundError):
                    self._mounts = os.open(f"/proc/{self.process.pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
                return
            await trio.sleep(POLL_INTERVAL)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the first process, unless it has ended."""
        if self.process.poll() is None:
            self.process.send_signal(number)

    async def wait(self) -> int:
        """Wait for the first process; return its status as a shell reports it."""
        status = await self.process.wait()
        return status if status >= 0 else 128 - status

    async def clean_up(self) -> None:
        """End what the first process left running, and remove its files; takes milliseconds, unless one cannot end."""
        self.send_signal(signal.SIGKILL)
        await self.process.wait()
        try:
            while left := self._left_running():
                for pid in left:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                await trio.sleep(POLL_INTERVAL)
        finally:
            if self._mounts is not None:
                os.close(self._mounts)
                self._mounts = None
        await trio.to_thread.run_sync(partial(shutil.rmtree, self._layers, ignore_errors=True))

    def inside(self, argv: Sequence[str]) -> list[str]:
        """Return *argv* as a command that runs beside the first process."""
        return ["nsenter", f"--target={self.process.pid}", "--net", "--mount", "--uts", "--root", "--wd", *argv]

    def _left_running(self) -> list[int]:
        if self._mounts is None:
            return []
        own = os.fstat(self._mounts).st_ino
        return [
            int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal() and _mounts_of(entry) == own
        ]


def _mounts_of(process: Path) -> int:
    """Return the number of the mount namespace of *process*; 0 if it has ended."""
    try:
        return (process / "ns/mnt").stat().st_ino
    except OSError:
        return 0
