"""New worker: gets the moves of servers that came while HAProxy loaded its files, before it serves.

It has a socket that no other worker has (`files/process_config`). What is sent there
as soon as the socket exists is the first thing that the worker does.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import trio

from haptic_trio.dataplane.endpoint import EndpointError
from haptic_trio.dataplane.local.former_worker import FormerWorker
from haptic_trio.dataplane.local.runtime import OtherWorkerError, OwnSocketClient
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.operations import Operation, Removal
from haptic_trio.haproxy.plan.plan import make_plan
from haptic_trio.haproxy.plan.split import is_near

POLL_INTERVAL: Final = 0.003
"""Seconds between two attempts to connect; HAProxy takes longer from the creation of the socket until it serves."""


class Loaded(msgspec.Struct, kw_only=True):
    """The new worker after a load."""

    running: Generation
    """Generation of the files, with the moves since they were written."""
    pid: int = 0
    """0 if it has got no moves."""
    removals: tuple[Removal, ...] = ()
    """Removals of objects that are still in use."""
    is_unknown: bool = False
    """Whether a move failed, so that it is not known what the worker runs."""


class NewWorker:
    """Worker that is about to load *files* and to create *socket*; it takes over from *former*."""

    def __init__(self, socket: Path, files: Generation, former: FormerWorker, capabilities: Capabilities) -> None:
        self._socket = socket
        self._former = former
        self._former_pid = former.pid
        self._capabilities = capabilities
        self._client = OwnSocketClient(socket, endpoint=former.name)
        self._loaded = Loaded(running=files)
        self._has_loaded = False
        self._unanswered: set[str] = set()
        """Backends with moves that the worker has not answered yet."""
        self._answered = trio.Event()
        self._failures: list[EndpointError] = []

    async def run(self, load: Callable[[], Awaitable[None]]) -> Loaded:
        """Send the moves that come until *load* ends; raises what *load* raises."""
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow)
            try:
                await load()
            except Exception as exc:  # noqa: BLE001  raised below: the nursery would put it into a group
                failure = exc
                nursery.cancel_scope.cancel(reason="the load has failed")
            finally:
                await self._former.end()  # noqa: ASYNC102  shields itself, with a limit
            self._has_loaded = True
        if failure is not None:
            raise failure
        return self._loaded

    async def _follow(self) -> None:
        """Send moves until the former worker gets no more of them."""
        if not await self._has_socket():
            return
        sent = self._loaded.running
        async with trio.open_nursery() as nursery:
            while (wanted := await self._former.next_successor(sent)) is not None:
                # What is not a move of some servers is left to the next deployment.
                plan = make_plan(sent, wanted, capabilities=self._capabilities)
                if plan.reloads or not is_near(sent, wanted):
                    break
                # The worker answers once it serves. Until then, each move is sent beside the ones before.
                touched = {getattr(operation, "backend", "") for operation in plan.operations}
                while self._unanswered & touched:
                    await self._answered.wait()
                if self._failures:
                    break
                self._unanswered |= touched
                nursery.start_soon(self._send, plan.operations, touched)
                sent = wanted
        if not self._failures:
            self._loaded.running, self._loaded.pid = sent, self._client.pid
        self._loaded.is_unknown = not all(isinstance(failure, OtherWorkerError) for failure in self._failures)

    async def _send(self, operations: Sequence[Operation], touched: set[str]) -> None:
        try:
            self._loaded.removals += await self._client.apply(operations, worker=self._former_pid)
        except EndpointError as exc:
            self._failures.append(exc)
        self._unanswered -= touched
        self._answered.set()
        self._answered = trio.Event()

    async def _has_socket(self) -> bool:
        """Return True once the worker has created its socket; False if it is loaded without one."""
        while True:
            with suppress(OSError):
                async with await trio.open_unix_socket(self._socket):
                    return True
            if self._has_loaded:
                return False
            await trio.sleep(POLL_INTERVAL)
