"""Local HAProxy instance of the fleet: an endpoint while it serves, a process that ends after it drained.

All instances of a fleet share their listening sockets: one that starts gets
them from another by HAProxy's own hand-over (`-x`), so there is one queue of
waiting connections for each address, and closing one process's end of it
resets nothing. Sockets that only bear the same address (SO_REUSEPORT) have a
queue each, and what waits in the queue of the one that closes is lost.
"""

import signal
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec
import trio

from haptic_trio.dataplane.cli_socket import exchange
from haptic_trio.dataplane.endpoint import DeploymentRefusedError, EndpointError, EndpointTimeoutError
from haptic_trio.dataplane.local.check import PRELUDE_NAME
from haptic_trio.dataplane.local.instance import LocalAgent
from haptic_trio.dataplane.local.port_holders import find_holders
from haptic_trio.dataplane.local.ports import find_addresses
from haptic_trio.dataplane.local.process import MasterProcess, find_masters, is_alive, read_record
from haptic_trio.dataplane.local.supervisor import LoadRefusedError, Supervisor
from haptic_trio.errors import HapticError
from haptic_trio.fleet.model import GroupKey, ProviderStatus
from haptic_trio.haproxy.model import Generation
from haptic_trio.logs import get_logger

MARK_NAME = "instance.json"
RECORD_NAME = "process.json"
ADMIN_SOCKET = "admin.sock"
MASTER_SOCKET = "master.sock"
PROBE_LIMIT = 2.0
"""Seconds after which an HAProxy that has not answered is called unresponsive."""
CLOSE_LIMIT = 10.0
"""Seconds that a deployment in flight may finish before the instance leaves."""
TERMINATE_LIMIT = 2.0
"""Seconds between SIGTERM and SIGKILL."""
KILL_LIMIT = 5.0
"""Seconds that killed processes may take to be gone."""

log = get_logger("fleet")


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What says that a directory is an instance of ours, and which; written before anything is started in it."""

    id: str
    key: GroupKey
    created_at: float
    config_hash: str


def read_mark(directory: Path) -> Mark | None:
    """Return the mark of the instance in *directory*; None when there is none that makes sense."""
    try:
        return msgspec.json.decode((directory / MARK_NAME).read_bytes(), type=Mark)
    except (OSError, msgspec.MsgspecError):
        return None


class Siblings(Protocol):
    """What an instance has to do with the others of its fleet."""

    @property
    def starting(self) -> trio.Lock:
        """Held by the one that is started: those after it get its sockets instead of binding their own."""
        ...

    def find_donor(self) -> Path | None:
        """Return a socket that hands out listening sockets; None when nobody has any."""
        ...

    def note_start(self) -> None:
        """Note that this one has listening sockets now."""
        ...


class FleetAgent(LocalAgent):
    """A local endpoint that starts with the listening sockets of another one, and can be closed."""

    def __init__(self, name: str, directory: Path, binary: Path, siblings: Siblings) -> None:
        super().__init__(
            name, directory, binary, supervisor=partial(Supervisor, start_options=self._choose_start_options)
        )
        self._siblings = siblings
        self._is_closed = False

    def _choose_start_options(self) -> Sequence[str]:
        if self._is_closed:
            raise LoadRefusedError("the instance is leaving")
        donor = self._siblings.find_donor()
        # A donor that does not answer costs HAProxy a second and a line in its log.
        return ["-x", str(donor)] if donor is not None else []

    async def activate(self, generation: Generation) -> None:
        """As `LocalAgent.activate`; waits while a sibling is being started, if this starts HAProxy."""
        if self._supervisor.pid:
            await super().activate(generation)
            return
        async with self._siblings.starting:
            if self._siblings.find_donor() is None:
                await self._require_no_strangers(generation)
            await super().activate(generation)
            self._siblings.note_start()

    async def _require_no_strangers(self, generation: Generation) -> None:
        """Raise DeploymentRefusedError where another controller's HAProxy would take turns with ours."""
        addresses = find_addresses(generation.config)
        holders = await trio.to_thread.run_sync(partial(find_holders, addresses, root=self._directory.parent))
        if holders:
            raise DeploymentRefusedError(self._name, holders[0].explain())

    async def close(self) -> None:
        """Let a deployment in flight finish; then never start HAProxy again. Bounded."""
        with trio.move_on_after(CLOSE_LIMIT):
            async with self._lock:
                self._is_closed = True
        self._is_closed = True


class LocalInstance:
    """The instance in *directory*, in hand from `run` until `let_go`."""

    def __init__(self, directory: Path, binary: Path, siblings: Siblings) -> None:
        self.agent = FleetAgent(directory.name, directory, binary, siblings)
        self.has_failed = False
        """Whether nobody looks after it any more although it was not let go."""
        self._scope = trio.CancelScope()
        self._settled = trio.Event()
        self._ended = trio.Event()

    async def run(self) -> None:
        """Look after it until it is let go; HAProxy goes on in any case. Errors are logged and remembered."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    # Whether HAProxy is ended is the provider's to decide.
                    await nursery.start(partial(self.agent.run, on_exit="leave", grace=0.0))
                    self._settled.set()
        except* (HapticError, OSError) as group:
            self.has_failed = True
            log.warning("an instance cannot be looked after", instance=self.agent.name, error=repr(group.exceptions))
        finally:
            self._ended.set()
            self._settled.set()

    async def wait_settled(self) -> None:
        """Wait until its HAProxy is adopted or started, if there is anything to start, or has failed."""
        await self._settled.wait()

    async def let_go(self) -> None:
        """Stop looking after it; HAProxy goes on, and is not started again."""
        await self.agent.close()
        self._scope.cancel(reason="the instance leaves")
        await self._ended.wait()


async def probe(directory: Path) -> ProviderStatus:
    """Ask the HAProxy in *directory* whether it lives."""
    record = await trio.to_thread.run_sync(read_record, directory / RECORD_NAME)
    if record is None or not is_alive(record):
        found = await trio.to_thread.run_sync(find_masters, str(directory / PRELUDE_NAME))
        return ProviderStatus.STARTING if found else ProviderStatus.STOPPED
    try:
        await exchange(Path(record.sockets) / ADMIN_SOCKET, "show info\n", endpoint=directory.name, limit=PROBE_LIMIT)
    except EndpointTimeoutError:
        return ProviderStatus.UNRESPONSIVE
    except EndpointError:
        return ProviderStatus.STARTING
    return ProviderStatus.RUNNING


def find_processes(directory: Path) -> Iterator[MasterProcess]:
    """Yield the live processes of *directory* that are no children of others of it; the caller closes them.

    Blocks. Workers whose master was killed are among them.
    """
    record = read_record(directory / RECORD_NAME)
    pids = set(find_masters(str(directory / PRELUDE_NAME)))
    # While a master loads itself anew its command line is empty for a moment; the record knows it even then.
    if record is not None and is_alive(record):
        pids.add(record.pid)
    for pid in sorted(pids):
        try:
            yield MasterProcess(pid)
        except ProcessLookupError:
            continue


class Leaving:
    """The processes of an instance that has been let go, until the last has exited."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: list[MasterProcess] = []

    async def is_gone(self) -> bool:
        """Whether nothing of it lives any more."""
        for process in tuple(self._held):
            if not process.is_alive():
                process.reap()
                process.close()
                self._held.remove(process)
        if not self._held:
            self._held = await trio.to_thread.run_sync(lambda: list(find_processes(self._directory)))
        return not self._held

    async def stop(self) -> None:
        """Have HAProxy take nothing new, finish what it has, and exit."""
        if not await self.is_gone():
            self._send(signal.SIGUSR1)

    async def end(self) -> None:
        """End all of it: by SIGTERM, and by force what is left then. Raises OSError when even that is in vain."""
        if await self.is_gone():
            return
        self._send(signal.SIGTERM)
        if await self._await_end(TERMINATE_LIMIT):
            return
        with trio.move_on_after(KILL_LIMIT):
            # A master that is killed leaves workers behind that are stopped, or hang.
            while not await self.is_gone():
                self._send(signal.SIGKILL)
                await self._await_end(TERMINATE_LIMIT)
            return
        raise TimeoutError(f"processes of {self._directory.name} live on after SIGKILL")

    async def wait_gone(self) -> None:
        """Return when nothing of it lives any more."""
        while not await self.is_gone():
            await self._held[0].wait_exit()

    def close(self) -> None:
        """Let go of processes that live on."""
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
