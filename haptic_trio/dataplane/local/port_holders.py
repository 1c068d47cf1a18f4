"""Detection of other HAProxy instances that listen on a port of this one.

The kernel lets processes of one user share a port when all of them ask for
that, as HAProxy does, and deals connections out among them. Within a fleet
this is what is wanted; between two controllers each answer would be of one
configuration or the other, by chance, and nothing would fail.
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
from haptic_trio.dataplane.local.process import PROC

INSTANCES_NAME = "instances"
"""The directory, in that of a controller's state, in which its instances have theirs."""
_LISTENS = "0A"
_WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - as the kernel writes them


class Holder(msgspec.Struct, frozen=True):
    """A process that listens where others would."""

    address: Address
    """Where it listens."""
    pid: int
    directory: Path
    """That of the instance whose HAProxy it is."""

    def explain(self) -> str:
        """Return what is wrong with it, and what can be done, in words for people."""
        host, port = self.address
        root = self.directory.parent
        how = f": `serve` with `--state-dir {root.parent} --on-exit stop`, then Ctrl-C"
        return (
            f"port {port} is another controller's: HAProxy {self.pid} of {self.directory} listens on {host}:{port}, and"
            " connections would go to one or the other by turns. Give this one other ports (`httpPort`, `httpsPort`,"
            f" or where `bind` has its port from), or end the other one{how if root.name == INSTANCES_NAME else ''}"
        )


def find_holders(addresses: Iterable[Address], *, root: Path) -> list[Holder]:
    """Return who listens on *addresses* of those HAProxys of our user that are no instances below *root*; blocks.

    Known are those that a controller of this program has started, by their
    command lines, as far as they are in the same container.
    """
    listening = _find_listening(frozenset(addresses))
    holders: list[Holder] = []
    # What the kernel does not tell is not known, and nobody is refused for it.
    with contextlib.suppress(OSError):
        for pid, directory in _find_haproxys(root.resolve()) if listening else ():
            holders += (Holder(listening[inode], pid, directory) for inode in _list_sockets(pid) & listening.keys())
    return sorted(holders, key=lambda holder: (holder.address, holder.pid))


def read_listening(table: str) -> Iterator[tuple[str, Address]]:
    """Yield inode and address of each listening socket in *table*, one of the kernel's, such as `/proc/net/tcp`."""
    for line in table.splitlines()[1:]:
        words = line.split()
        if words[3] == _LISTENS:
            host, _, port = words[1].partition(":")
            yield words[9], (_read_host(host), int(port, 16))


def _read_host(digits: str) -> str:
    # Words of four bytes, each written as a number of this machine.
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
    """Whether connections to *one* may be meant for *other*."""
    hosts = {one[0], other[0]}
    is_one_family = (":" in one[0]) == (":" in other[0])
    return one[1] == other[1] and is_one_family and (len(hosts) == 1 or not hosts.isdisjoint(_WILDCARDS))


def _find_haproxys(root: Path) -> Iterator[tuple[int, Path]]:
    """Yield pid and instance of our user's HAProxys that controllers have started, but for those of *root*."""
    files_seen = (PROC / "self/ns/mnt").readlink()
    for entry in PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            if entry.stat().st_uid != os.geteuid() or (entry / "ns/mnt").readlink() != files_seen:
                continue
            for argument in (entry / "cmdline").read_bytes().split(b"\0"):
                path = Path(os.fsdecode(argument))
                if path.name == PRELUDE_NAME and path.is_absolute() and path.parent.resolve().parent != root:
                    yield int(entry.name), path.parent


def _list_sockets(pid: int) -> frozenset[str]:
    """Return the inodes of the sockets that *pid* has open."""
    found = set()
    with contextlib.suppress(OSError):
        for entry in (PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                kind, _, inode = os.readlink(entry).partition(":")  # noqa: PTH115 - it is no path
                if kind == "socket":
                    found.add(inode.strip("[]"))
    return frozenset(found)
