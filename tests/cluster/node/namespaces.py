"""Network namespaces without names: each lives as long as a descriptor or a process holds it, and nothing is left.

A socket belongs to the namespace in which it was created, whichever the thread is in later. So a test process reaches
another network by creating its sockets there, and stays where it is for all else.
"""

import ctypes
import errno
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import trio

_CLONE_NEWNET: Final = 0x40000000
_HERE: Final = Path("/proc/thread-self/ns/net")
_PRIVATE: Final = ["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--kill-child"]


class NetworkNamespace:
    """A descriptor of a network namespace; closing it lets the namespace go."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def create(cls) -> Self:
        """Return a new namespace, in which only a loopback device is, down."""
        with _restored():
            _checked(_libc.unshare(_CLONE_NEWNET))
            return cls(os.open(_HERE, os.O_RDONLY | os.O_CLOEXEC))

    @classmethod
    def of_process(cls, pid: int) -> Self:
        """Return the namespace of the process *pid*."""
        return cls(os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self.descriptor)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be in the namespace, this thread only. Do not await inside: other tasks would be in it as well."""
        with _restored():
            _checked(_libc.setns(self.descriptor, _CLONE_NEWNET))
            yield

    def create_socket(self) -> trio.socket.SocketType:
        """Return a TCP socket of this namespace."""
        with self.entered():
            return trio.socket.from_stdlib_socket(socket.socket())

    async def open_tcp_stream(self, host: str, port: int) -> trio.SocketStream:
        """Connect to an address of this namespace; raises OSError."""
        end = self.create_socket()
        try:
            await end.connect((host, port))
        except BaseException:
            end.close()
            raise
        return trio.SocketStream(end)


def why_no_namespaces() -> str | None:
    """Return why this process may not make what a cluster needs, or None if it may."""
    for command in ("unshare", "nsenter", "mount", "chroot"):
        if shutil.which(command) is None:
            return f"there is no `{command}` here"
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "this kernel offers no overlay file system"
    attempt = subprocess.run([*_PRIVATE, "true"], capture_output=True, text=True, check=False)
    return None if attempt.returncode == 0 else f"no namespaces can be made: {attempt.stderr.strip()}"


def private_command(*command: str) -> list[str]:
    """Return *command* so that it runs in namespaces of its own for network, mounts, processes and host name.

    When the first process in them ends, the kernel ends all others and takes down network and mounts.
    """
    return [*_PRIVATE, "--", *command]


@contextmanager
def _restored() -> Iterator[None]:
    before = os.open(_HERE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        try:
            _checked(_libc.setns(before, _CLONE_NEWNET))
        finally:
            os.close(before)


_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno() or errno.EPERM
        raise OSError(number, os.strerror(number))
