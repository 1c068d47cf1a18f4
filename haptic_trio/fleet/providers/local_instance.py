"""Local HAProxy instance of the fleet: an endpoint while it serves, a process that ends after it drained.

All instances of a fleet share their listening sockets: a new instance gets
them from another one by HAProxy's socket transfer (`-x`). Each address
therefore has one queue of waiting connections, and no connection is reset
when one process closes its copy. Separate sockets on the same address
(SO_REUSEPORT) have one queue each, and the connections in the queue of a
closed socket are lost.
"""

import signal
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec
import trio

from haptic_trio.dataplane.cli_socket import exchange
from haptic_trio.dataplane.endpoint import DeploymentRejectedError, EndpointError, EndpointTimeoutError
from haptic_trio.dataplane.local.check import PRELUDE_NAME
from haptic_trio.dataplane.local.instance import LocalAgent
from haptic_trio.dataplane.local.port_holders import find_holders
from haptic_trio.dataplane.local.ports import find_addresses
from haptic_trio.dataplane.local.process import MasterProcess, find_masters, find_record
from haptic_trio.dataplane.local.supervisor import LoadRejectedError, Supervisor
from haptic_trio.errors import HapticError, text_of
from haptic_trio.fleet.model import GroupKey, ProviderStatus
from haptic_trio.haproxy.model import Generation
from haptic_trio.logs import get_logger
from haptic_trio.state_files.reader import decode_state_file

MARK_NAME = "instance.json"
GENERATIONS_NAME = "generations"
ADMIN_SOCKET = "admin.sock"
MASTER_SOCKET = "master.sock"
PROBE_LIMIT = 2.0
"""Seconds after which an HAProxy that has not answered counts as unresponsive."""
CLOSE_LIMIT = 10.0
"""Seconds in which a running deployment may finish before the instance leaves."""
TERMINATE_LIMIT = 2.0
"""Seconds between SIGTERM and SIGKILL."""
KILL_LIMIT = 5.0
"""Seconds that killed processes may take to exit."""

log = get_logger("fleet")


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Identifies a directory as an instance managed by haptic-trio; written before its HAProxy is started."""

    id: str
    key: GroupKey
    created_at: float
    config_hash: str


def read_mark(directory: Path) -> Mark | None:
    """Return the mark of the instance in *directory*; None if it is missing or invalid. Blocks."""
    try:
        return decode_state_file(directory / MARK_NAME, Mark)
    except OSError:
        return None


class Siblings(Protocol):
    """Interface of an instance to the other instances of its fleet."""

    @property
    def starting(self) -> trio.Lock:
        """Held during a start, so that instances started later get sockets instead of binding their own."""
        ...

    def find_donor(self) -> Path | None:
        """Return the admin socket of an instance that hands out listening sockets; None if there is none."""
        ...

    def note_start(self) -> None:
        """Note that this instance has listening sockets now."""
        ...


class FleetAgent(LocalAgent):
    """A local endpoint that starts with the listening sockets of another instance, and can be closed."""

    def __init__(self, name: str, directory: Path, binary: Path, siblings: Siblings) -> None:
        super().__init__(
            name, directory, binary, supervisor=partial(Supervisor, start_options=self._choose_start_options)
        )
        self._siblings = siblings
        self._is_closed = False

    def _choose_start_options(self) -> Sequence[str]:
        if self._is_closed:
            raise LoadRejectedError(f"{self._name}: HAProxy is not started, since the instance is being removed")
        donor = self._siblings.find_donor()
        # HAProxy starts without a donor that does not answer, after a second and with a line in its log.
        return ["-x", str(donor)] if donor is not None else []

    async def activate(self, generation: Generation) -> None:
        """See `LocalAgent.activate`; an activation that starts HAProxy waits while another instance starts."""
        if self._supervisor.pid:
            await super().activate(generation)
            return
        async with self._siblings.starting:
            if self._siblings.find_donor() is None:
                await self._require_unshared_addresses(generation)
            await super().activate(generation)
            self._siblings.note_start()

    async def _require_unshared_addresses(self, generation: Generation) -> None:
        """Raise DeploymentRejectedError if an HAProxy outside of this fleet listens on an address of *generation*."""
        addresses = find_addresses(generation.config)
        holders = await trio.to_thread.run_sync(partial(find_holders, addresses, root=self._directory.parent))
        if holders:
            raise DeploymentRejectedError(self._name, holders[0].explain())

    async def close(self) -> None:
        """Wait for a running deployment, at most `CLOSE_LIMIT` seconds; never start HAProxy again."""
        with trio.move_on_after(CLOSE_LIMIT):
            async with self._lock:
                self._is_closed = True
        self._is_closed = True


class LocalInstance:
    """Manages the instance in *directory*, from `run` until `release`."""

    def __init__(self, directory: Path, binary: Path, siblings: Siblings) -> None:
        self.agent = FleetAgent(directory.name, directory, binary, siblings)
        self.has_failed = False
        """Whether `run` has ended by an error instead of `release`."""
        self._scope = trio.CancelScope()
        self._settled = trio.Event()
        self._ended = trio.Event()

    async def run(self) -> None:
        """Supervise it until `release` or cancellation; HAProxy then continues. Errors are logged, not raised."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    # The provider decides whether HAProxy is stopped.
                    await nursery.start(partial(self.agent.run, on_exit="leave", grace=0.0))
                    self._settled.set()
        except* (HapticError, OSError) as group:
            self.has_failed = True
            log.warning("cannot supervise an instance", instance=self.agent.name, error=text_of(group))
        finally:
            self._ended.set()
            self._settled.set()

    async def wait_settled(self) -> None:
        """Wait until its HAProxy is adopted, started, or has failed; or until there is nothing to start."""
        await self._settled.wait()

    async def release(self) -> None:
        """Stop supervising it; HAProxy continues, and is not started again."""
        await self.agent.close()
        self._scope.cancel(reason="the instance is released")
        await self._ended.wait()


async def probe(directory: Path) -> ProviderStatus:
    """Return the status of the HAProxy in *directory*, by a command on its admin socket."""
    record = await trio.to_thread.run_sync(find_record, directory)
    if record is None:
        found = await trio.to_thread.run_sync(find_masters, str(directory / PRELUDE_NAME))
        return ProviderStatus.STARTING if found else ProviderStatus.STOPPED
    try:
        await exchange(Path(record.sockets) / ADMIN_SOCKET, "show info\n", endpoint=directory.name, limit=PROBE_LIMIT)
    except EndpointTimeoutError:
        return ProviderStatus.UNRESPONSIVE
    except EndpointError:
        return ProviderStatus.STARTING
    return ProviderStatus.RUNNING


def is_detached(directory: Path) -> bool:
    """Whether the HAProxy of *directory* runs without its files, so that nothing can be deployed to it; blocks."""
    return not (directory / GENERATIONS_NAME).is_dir() and bool(find_masters(str(directory / PRELUDE_NAME)))


def find_processes(directory: Path) -> Iterator[MasterProcess]:
    """Yield the running top-level processes of the instance in *directory*; the caller closes them.

    These are masters, and workers whose master was killed. Blocks.
    """
    record = find_record(directory)
    pids = set(find_masters(str(directory / PRELUDE_NAME)))
    # The command line of a master is empty for a moment while it executes itself again; the record has its pid.
    if record is not None:
        pids.add(record.pid)
    for pid in sorted(pids):
        try:
            yield MasterProcess(pid)
        except ProcessLookupError:
            continue


class Leaving:
    """The processes of a released instance, until the last one has exited."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: list[MasterProcess] = []

    async def is_gone(self) -> bool:
        """Whether all processes have exited."""
        for process in tuple(self._held):
            if not process.is_alive():
                process.reap()
                process.close()
                self._held.remove(process)
        if not self._held:
            self._held = await trio.to_thread.run_sync(lambda: list(find_processes(self._directory)))
        return not self._held

    async def stop(self) -> None:
        """Let HAProxy accept no new connections, finish those it has, and exit."""
        if not await self.is_gone():
            self._send(signal.SIGUSR1)

    async def end(self) -> None:
        """Stop all processes by SIGTERM, then by SIGKILL. Raises OSError if processes survive even that."""
        if await self.is_gone():
            return
        self._send(signal.SIGTERM)
        if await self._await_end(TERMINATE_LIMIT):
            return
        with trio.move_on_after(KILL_LIMIT):
            # A killed master may leave workers behind that are stopped or hang.
            while not await self.is_gone():
                self._send(signal.SIGKILL)
                await self._await_end(TERMINATE_LIMIT)
            return
        raise TimeoutError(f"{self._directory.name}: processes still run {KILL_LIMIT:g} s after SIGKILL")

    async def wait_gone(self) -> None:
        """Wait until all processes have exited."""
        while not await self.is_gone():
            await self._held[0].wait_exit()

    def close(self) -> None:
        """Release the handles of processes that still run."""
        for process in self._held:
            process.close()
        self._held.clear()

    async def _await_end(self, seconds: float) -> bool:
        with trio.move_on_after(seconds):
            await self.wait_gone()
            return True
        return False

    def _send(self, number: signal.Signals) -> None:
        for process in self._held:
            process.send(number)
