"""HAProxy instance for one test: private sockets and files."""

import contextlib
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio

from haptic_trio.config.assertions import Answer, Request
from haptic_trio.dataplane.binary import clean_environment
from haptic_trio.dataplane.local.check import PRELUDE_NAME, CheckDirectory
from haptic_trio.dataplane.local.files.instance_directory import CONFIG_NAME
from haptic_trio.errors import HapticError
from haptic_trio.haproxy.model import Generation
from haptic_trio.validation_tests.live.certificates import server_context
from haptic_trio.validation_tests.live.client import Reply, exchange
from haptic_trio.validation_tests.live.echo import Arrival, Echo
from haptic_trio.validation_tests.live.isolation import PRELUDE, Isolation

ANSWER_LIMIT: Final = 10.0
"""Seconds for one request and its answer."""
KILL_LIMIT: Final = 5.0
_MOST_OUTPUT: Final = 65_536


class InstanceError(HapticError):
    """HAProxy failed or did not answer a test; permanent for this configuration."""


class Instance:
    """A running HAProxy with all its servers; one request at a time."""

    def __init__(self, isolation: Isolation, listeners: list[socket.socket], echo: Echo) -> None:
        self._isolation = isolation
        self._addresses = [listener.getsockname()[:2] for listener in listeners]
        self._echo = echo
        self._ended = trio.Event()
        self._output = bytearray()
        self.directory = ""
        """Directory of its files; removed from its messages."""
        self._one_at_a_time = trio.Lock()

    async def ask(self, request: Request, answer: Answer) -> tuple[Reply, list[Arrival]]:
        """Send *request*; return the response and the requests that reached servers, which respond with *answer*.

        Raises InstanceError when nothing listens there, when HAProxy has ended, or when no answer comes in time.
        """
        number = self._find_bind(request)
        async with self._one_at_a_time:
            self._echo.answer = answer
            self._echo.arrivals = []
            reply: Reply | None = None
            with trio.move_on_after(ANSWER_LIMIT):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._cancel_at_end, nursery.cancel_scope)
                    port = self._isolation.binds[number].port
                    reply = await exchange(self._addresses[number], request, port=port)
                    nursery.cancel_scope.cancel(reason="answered")
            if self._ended.is_set():
                raise InstanceError(f"HAProxy exited: {self._messages() or 'no message'}")
            if reply is None:
                raise InstanceError(f"no answer within {ANSWER_LIMIT:g} s")
            return reply, self._echo.arrivals

    def _find_bind(self, request: Request) -> int:
        binds = self._isolation.binds
        for number, bind in enumerate(binds):
            if bind.port == request.port if request.port else bind.tls == request.tls:
                return number
        wanted = f"on port {request.port}" if request.port else "with TLS" if request.tls else "without TLS"
        ports = ", ".join(f"{bind.port}{' (TLS)' if bind.tls else ''}" for bind in binds)
        raise InstanceError(f"nothing listens {wanted}; ports: {ports or 'none'}")

    async def _cancel_at_end(self, scope: trio.CancelScope) -> None:
        await self._ended.wait()
        scope.cancel(reason="haproxy has ended")

    async def read_output(self, stream: trio.abc.ReceiveStream) -> None:
        """Collect the output of HAProxy until it exits."""
        async with stream:
            async for chunk in stream:
                self._output += chunk[: _MOST_OUTPUT - len(self._output)]
        self._ended.set()

    def _messages(self) -> str:
        lines = self._output.decode(errors="replace").replace(f"{self.directory}/", "").splitlines()
        return " ".join(line for line in lines if "[ALERT]" in line) or " ".join(lines[-3:])


@asynccontextmanager
async def running(binary: Path, generation: Generation, *, scratch: Path | None = None) -> AsyncIterator[Instance]:
    """Run *binary* with *generation* in isolation, with files below *scratch*, until the block ends.

    Its sockets listen before HAProxy starts, so requests need not wait. Raises OSError.
    """
    await trio.to_thread.run_sync(server_context)
    # Processes each line: slow for large configurations.
    isolation = await trio.to_thread.run_sync(Isolation, generation.config)
    echo = Echo({server.source: server for server in isolation.servers})
    async with aclosing(CheckDirectory(scratch)) as directory:
        with ExitStack() as stack:
            listeners = [stack.enter_context(_listen()) for _ in isolation.binds]
            instance = Instance(isolation, listeners, echo)
            async with trio.open_nursery() as nursery:
                serve = partial(trio.serve_tcp, echo.serve, 0, host="127.0.0.1")
                (own,) = await nursery.start(serve)
                port: int = own.socket.getsockname()[1]
                sockets = [listener.fileno() for listener in listeners]
                path = await trio.to_thread.run_sync(_write, directory, generation, isolation, sockets, port)
                instance.directory = str(path)
                process = await _start(binary, path, listeners)
                try:
                    assert process.stdout is not None
                    nursery.start_soon(instance.read_output, process.stdout)
                    yield instance
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                    with trio.move_on_after(KILL_LIMIT, shield=True):
                        await process.wait()
                nursery.cancel_scope.cancel(reason="the test is over")


def _listen() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0), backlog=128)


def _write(
    directory: CheckDirectory, generation: Generation, isolation: Isolation, sockets: list[int], server_port: int
) -> Path:
    text = isolation.write(sockets, server_port)
    path = directory.write(generation)
    (path / PRELUDE_NAME).write_text(PRELUDE)
    (path / CONFIG_NAME).write_bytes(text.encode(errors="surrogateescape"))
    return path


async def _start(binary: Path, path: Path, listeners: list[socket.socket]) -> trio.Process:
    command = [str(binary), "-db", "-f", str(path / PRELUDE_NAME), "-f", str(path / CONFIG_NAME)]
    return await trio.lowlevel.open_process(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=clean_environment(),
        cwd=path,
        pass_fds=[listener.fileno() for listener in listeners],
    )
