"""Detection of other HAProxy instances that listen on a port of this one.

The kernel lets processes of one user share a port if all of them request it
(SO_REUSEPORT, as HAProxy does), and distributes connections among them. This
is intended within a fleet. Between two controllers, each request would be
answered by one configuration or the other at random, without any error.
"""

import contextlib
import ipaddress
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from haptic_trio.dataplane.local.check import PRELUDE_NAME
from haptic_trio.dataplane.local.ports import Address
from haptic_trio.dataplane.local.process import PROC, list_processes

INSTANCES_NAME = "instances"
"""Name of the directory of instances in a controller's state directory."""
_LISTENS = "0A"
_WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - as the kernel writes them


class Holder(msgspec.Struct, frozen=True):
    """An HAProxy of another controller that listens on a needed port."""

    address: Address
    """Address that it listens on."""
    pid: int
    directory: Path
    """Directory of its instance."""

    def explain(self) -> str:
        """Return the problem and its fix as a sentence."""
        host, port = self.address
        root = self.directory.parent
        how = f": `serve` with `--state-dir {root.parent} --on-exit stop`, then Ctrl-C"
        return (
            f"port {port} belongs to another controller: HAProxy {self.pid} of {self.directory} listens on"
            f" {host}:{port}, and each connection would go to one of both. Choose other ports for this controller"
            " (`httpPort`, `httpsPort`, or the setting that `bind` takes its port from), or end the other HAProxy"
            f"{how if root.name == INSTANCES_NAME else ''}"
        )


def find_holders(addresses: Iterable[Address], *, root: Path) -> list[Holder]:
    """Return the HAProxy processes that listen on *addresses* and are not instances below *root*; blocks.

    Finds processes of the same user and container that a haptic-trio
    controller has started, by their command lines.
    """
    listening = _find_listening(frozenset(addresses))
    holders: list[Holder] = []
    # Without access to the kernel's tables no conflict is reported.
    with contextlib.suppress(OSError):
        for pid, directory in list_haproxys() if listening else ():
            if directory.resolve().parent != root.resolve():
                holders += (Holder(listening[inode], pid, directory) for inode in _list_sockets(pid) & listening.keys())
    return sorted(holders, key=lambda holder: (holder.address, holder.pid))


def read_listening(table: str) -> Iterator[tuple[str, Address]]:
    """Yield inode and address of each listening socket in *table*, the content of `/proc/net/tcp` or `tcp6`."""
    for line in table.splitlines()[1:]:
        words = line.split()
        if words[3] == _LISTENS:
            host, _, port = words[1].partition(":")
            yield words[9], (_read_host(host), int(port, 16))


def _read_host(digits: str) -> str:
    # Words of four bytes in the byte order of this machine.
    packed = b"".join(struct.pack("=I", int(digits[place : place + 8], 16)) for place in range(0, len(digits), 8))
    return str(ipaddress.ip_address(packed))


def _find_listening(addresses: frozenset[Address]) -> dict[str, Address]:
    found: dict[str, Address] = {}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            table = (PROC / "self/net" / name).read_text()
            found |= {
                inode: held
                for inode, held in read_listening(table)
                if any(_is_same(held, wanted) for wanted in addresses)
            }
    return found


def _is_same(one: Address, other: Address) -> bool:
    """Whether connections to *other* can reach *one*."""
    hosts = {one[0], other[0]}
    is_one_family = (":" in one[0]) == (":" in other[0])
    return one[1] == other[1] and is_one_family and (len(hosts) == 1 or not hosts.isdisjoint(_WILDCARDS))


def list_haproxys() -> Iterator[tuple[int, Path]]:
    """Yield pid and instance directory of this user's HAProxy processes, workers included; blocks."""
    for pid, arguments in list_processes():
        for argument in arguments:
            path = Path(os.fsdecode(argument))
            if path.name == PRELUDE_NAME and path.is_absolute():
                yield pid, path.parent


def _list_sockets(pid: int) -> frozenset[str]:
    """Return the inodes of the sockets that *pid* has open."""
    found = set()
    with contextlib.suppress(OSError):
        for entry in (PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                kind, _, inode = os.readlink(entry).partition(":")  # noqa: PTH115 - not a path
                if kind == "socket":
                    found.add(inode.strip("[]"))
    return frozenset(found)
