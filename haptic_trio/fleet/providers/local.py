"""Provider of local HAProxy processes, each in a directory of its own.

    <state>/instances/<id>/instance.json    the mark: id and group; written first
    <state>/instances/<id>/process.json     pid and start time, written at the start
    <state>/instances/<id>/…                files of the instance (`dataplane/local/files/instance_directory.py`)

The provider lives as long as the process, not only for a term: it keeps
HAProxy running and deployable while no reconciler runs.
"""

import contextlib
import hashlib
import re
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import trio

from haptic_trio.channels import Latest
from haptic_trio.dataplane.endpoint import Endpoint, PortsUnavailableError
from haptic_trio.dataplane.local.directory_lock import lock_directory
from haptic_trio.dataplane.local.port_holders import INSTANCES_NAME, list_haproxys
from haptic_trio.dataplane.local.process import RECORD_NAME, find_record, read_record
from haptic_trio.dataplane.local.supervisor import OnExit
from haptic_trio.fleet.model import (
    LIVING,
    GroupKey,
    GroupSpec,
    InstanceRecord,
    ProviderInstance,
    ProviderStatus,
    Reason,
)
from haptic_trio.fleet.names import NumberedNames
from haptic_trio.fleet.providers.local_instance import (
    ADMIN_SOCKET,
    MARK_NAME,
    MASTER_SOCKET,
    Leaving,
    LocalInstance,
    Mark,
    is_detached,
    probe,
    read_mark,
)
from haptic_trio.haproxy.model import Generation
from haptic_trio.state_files.reader import make_own_directory
from haptic_trio.state_files.writer import fsync_directory, replace_file
from haptic_trio.workqueue.outcome import PermanentError

DRAINING_NAME = "draining"
"""Marker file of a draining instance, which must not be adopted even if its record is lost."""
DEFAULT_GRACE = 5.0
"""Seconds in which HAProxy may finish its connections if it is stopped together with the controller."""
END_LIMIT = 10.0
"""Seconds, in addition to the grace period, that stopping all instances may take."""


def hash_instance(binary: Path, *settings: object) -> str:
    """Return the configuration hash of instances that run *binary* as it is now, with *settings*; blocks."""
    status = binary.resolve().stat()
    inputs = (str(binary.resolve()), status.st_ino, status.st_size, status.st_mtime_ns, *settings)
    return hashlib.blake2b(repr(inputs).encode(), digest_size=8).hexdigest()


class _Siblings:
    """Implements `Siblings` for the instance *name*."""

    def __init__(self, provider: "LocalProvider", name: str, heir_of: str) -> None:
        self._provider = provider
        self._name = name
        self._heir_of = heir_of

    @property
    def starting(self) -> trio.Lock:
        return self._provider.starting

    def find_donor(self) -> Path | None:
        return self._provider.find_donor(self._name, self._heir_of)

    def note_start(self) -> None:
        self._provider.note_start(self._name)


class LocalProvider:
    """Manages the instances below *state*; creates new ones while `run` runs.

    A new instance starts with the generation that *find_newest* returns, or
    else waits for its first deployment. Addresses that it cannot listen on
    are reported to *report_ports*. *endpoints* receives the instances that
    can be deployed to, on each change. *unmarked* is the group of instances
    without a mark, which older versions of the controller have created.
    """

    def __init__(
        self,
        state: Path,
        binary: Path,
        *,
        find_newest: Callable[[], Generation | None],
        report_ports: Callable[[PortsUnavailableError], None] = lambda _error: None,
        endpoints: Latest[tuple[Endpoint, ...]],
        unmarked: GroupKey | None = None,
        on_exit: OnExit = "leave",
        grace: float = DEFAULT_GRACE,
    ) -> None:
        self._root = state.absolute() / INSTANCES_NAME
        # HAProxy changes its working directory, and executes itself again from there.
        self._binary = binary.absolute()
        self._find_newest = find_newest
        self._report_ports = report_ports
        self._endpoints = endpoints
        self._unmarked = unmarked
        self._on_exit = on_exit
        self._grace = grace
        self._launches_in, self._launches_out = trio.open_memory_channel[LocalInstance](0)
        self.starting = trio.Lock()
        """Held while an instance starts and takes over the listening sockets of another one."""
        self._managed: dict[str, LocalInstance] = {}
        self._serving: set[str] = set()
        """Ids of the instances that can be deployed to."""
        self._answering: set[str] = set()
        """Ids of the instances that answered the last probe."""
        self._leaving: dict[str, Leaving] = {}
        self._begun_with: dict[str, str] = {}
        """Id of the generation that each unready instance has started with; empty for none."""
        self._names = NumberedNames(self._root / "last-number")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Manage the instances until cancelled; runs once.

        started() means that the state directory is locked. On exit the
        HAProxy processes continue, to be adopted later, or are stopped:
        softly, and after the grace period by force. Raises
        InstanceLockedError if another controller uses this state directory.
        """
        await trio.to_thread.run_sync(make_own_directory, self._root)
        async with lock_directory(self._root):
            with self._launches_out:
                await trio.to_thread.run_sync(lambda: self._names.load(path.name for path in self._list_instances()))
                try:
                    async with trio.open_nursery() as nursery:
                        task_status.started()
                        async for instance in self._launches_out:
                            nursery.start_soon(instance.run)
                finally:
                    for leaving in self._leaving.values():
                        leaving.close()
                    if self._on_exit == "stop":
                        with trio.move_on_after(self._grace + END_LIMIT, shield=True):
                            await self._end_all()

    async def _end_all(self) -> None:
        async with trio.open_nursery() as nursery:
            for directory in await trio.to_thread.run_sync(self._list_instances, abandon_on_cancel=True):
                nursery.start_soon(self._end_softly, directory)

    async def _end_softly(self, directory: Path) -> None:
        leaving = Leaving(directory)
        await leaving.stop()
        with trio.move_on_after(self._grace):
            await leaving.wait_gone()
        await leaving.end()
        await trio.to_thread.run_sync(_remove_sockets, directory, abandon_on_cancel=True)

    def make_id(self, key: GroupKey) -> str:
        """Return an id for a new instance of *key*; valid while `run` runs."""
        return self._names.make(key)

    async def list_owned(self) -> Sequence[ProviderInstance]:
        """Return all instances that have a directory or a process."""
        return await trio.to_thread.run_sync(lambda: [self._read(path) for path in self._list_instances()])

    def _list_directories(self) -> list[Path]:
        # The state directory may have been removed meanwhile.
        return sorted(path for path in self._root.iterdir() if path.is_dir()) if self._root.is_dir() else []

    def _list_instances(self) -> list[Path]:
        """Return the directories of all instances, also if only a process is left of one."""
        root = self._root.resolve()
        running = (self._root / path.name for _, path in list_haproxys() if path.resolve().parent == root)
        return sorted({*self._list_directories(), *running})

    def _read(self, directory: Path) -> ProviderInstance:
        mark = read_mark(directory)
        status = ProviderStatus.STOPPED
        if is_detached(directory):
            status = ProviderStatus.DETACHED
        elif find_record(directory) is not None:
            status = ProviderStatus.STOPPING if (directory / DRAINING_NAME).exists() else ProviderStatus.RUNNING
        return ProviderInstance(
            id=directory.name,
            provider_id=directory.name,
            key=mark.key if mark is not None else self._unmarked,
            status=status,
            created_at=mark.created_at if mark is not None else _read_time(directory),
            config_hash=mark.config_hash if mark is not None else "",
        )

    async def adopt(self, record: InstanceRecord) -> None:
        """Manage an existing instance; its HAProxy is started again if it has exited."""
        self._names.note_used(record.id)
        instance = self._managed.get(record.id)
        if instance is not None and instance.has_failed:
            del self._managed[record.id]
        if record.id not in self._managed and await trio.to_thread.run_sync(_is_usable, self._directory_of(record.id)):
            instance = await self._take(record.id)
        if instance is not None and not instance.has_failed and record.id not in self._serving:
            self._publish(record.id)

    async def create(self, record: InstanceRecord, spec: GroupSpec, *, heir_of: str = "") -> str:
        """Start HAProxy with the newest generation and the listening sockets of *heir_of*, or of another instance."""
        directory = self._directory_of(record.id)
        await trio.to_thread.run_sync(partial(self._root.mkdir, mode=0o700, parents=True, exist_ok=True))
        await trio.to_thread.run_sync(self._names.save)
        mark = Mark(id=record.id, key=spec.key, created_at=record.created_at, config_hash=record.config_hash)
        await trio.to_thread.run_sync(_make_directory, directory, mark)
        instance = await self._take(record.id, heir_of=heir_of)
        generation = self._find_newest()
        if generation is not None:
            try:
                await instance.agent.activate(generation)
            except PortsUnavailableError as exc:
                self._report_ports(exc)
                raise
        self._begun_with[record.id] = generation.id if generation is not None else ""
        self._publish(record.id)
        return record.id

    async def status(self, record: InstanceRecord) -> ProviderStatus:
        """Probe the process; a new instance is STARTING until it runs the newest generation."""
        directory = self._directory_of(record.id)
        if await trio.to_thread.run_sync(is_detached, directory):
            self._answering.discard(record.id)
            return ProviderStatus.DETACHED
        if not await trio.to_thread.run_sync(directory.is_dir):
            return ProviderStatus.NOT_FOUND
        if record.state in LIVING:
            # Repeats an adoption that was cancelled or has failed at the beginning of the term.
            await self.adopt(record)
        status = await probe(directory)
        (self._answering.add if status is ProviderStatus.RUNNING else self._answering.discard)(record.id)
        instance = self._managed.get(record.id)
        if instance is None or instance.has_failed:
            return status
        if status is ProviderStatus.STOPPED:
            # Its supervisor starts it again, unless its first generation was never loaded.
            is_waiting = self._begun_with.get(record.id) == ""
            is_startable = is_waiting or await trio.to_thread.run_sync((directory / "current").exists)
            return ProviderStatus.STARTING if is_startable else ProviderStatus.FAILED
        if status is ProviderStatus.RUNNING and not await self._is_current(record.id, instance):
            return ProviderStatus.STARTING
        return status

    async def _is_current(self, instance_id: str, instance: LocalInstance) -> bool:
        """Whether it has run the newest generation, or one deployed to it after its start, at least once."""
        begun_with = self._begun_with.get(instance_id)
        if begun_with:
            newest = self._find_newest()
            running = await instance.agent.fetch_running()
            if running is None or (running.id == begun_with and newest is not None and newest.id != begun_with):
                return False
        self._begun_with.pop(instance_id, None)
        return True

    async def begin_drain(self, record: InstanceRecord, deadline: float) -> None:  # noqa: ARG002 - kept by the caller
        """Let HAProxy close its copies of the listening sockets and exit after its last connection.

        An instance that hangs is ended: it can finish nothing, and the kernel gives connections to its sockets.
        """
        leaving = await self._release(record.id)
        if record.drain_reason is Reason.UNHEALTHY:
            await leaving.end()
            return
        directory = self._directory_of(record.id)
        if await trio.to_thread.run_sync(directory.is_dir):
            await trio.to_thread.run_sync((directory / DRAINING_NAME).touch)
        await leaving.stop()

    async def drained(self, record: InstanceRecord) -> bool:
        """Whether its processes have exited."""
        return await (await self._release(record.id)).is_gone()

    async def delete(self, record: InstanceRecord, *, force: bool = False) -> None:  # noqa: ARG002 - it is quick enough
        """Stop its processes and remove its directory."""
        directory = self._directory_of(record.id)
        leaving = await self._release(record.id)
        await leaving.end()
        await trio.to_thread.run_sync(_remove_directory, directory)
        self._leaving.pop(record.id, None)

    def _directory_of(self, instance_id: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", instance_id, re.ASCII):
            raise PermanentError(
                f"invalid instance id {instance_id!r}: use ASCII letters, digits, _ . -, and a letter or digit first"
            )
        return self._root / instance_id

    async def _take(self, instance_id: str, *, heir_of: str = "") -> LocalInstance:
        directory = self._directory_of(instance_id)
        instance = LocalInstance(directory, self._binary, _Siblings(self, instance_id, heir_of))
        self._managed[instance_id] = instance
        try:
            await self._launches_in.send(instance)
        except BaseException:
            # `run` has not received it, so no task runs it.
            del self._managed[instance_id]
            raise
        await instance.wait_settled()
        if await probe(directory) is ProviderStatus.RUNNING:
            self.note_start(instance_id)
        return instance

    def note_start(self, instance_id: str) -> None:
        """Note that an instance has listening sockets that others can take over."""
        self._answering.add(instance_id)

    def find_donor(self, instance_id: str, heir_of: str) -> Path | None:
        """Return the admin socket of an instance that hands out listening sockets, *heir_of* first; None if none."""
        others = sorted(
            (self._answering & self._managed.keys()) - {instance_id}, key=lambda name: (name != heir_of, name)
        )
        for name in others:
            record = find_record(self._directory_of(name))
            if record is not None:
                return Path(record.sockets) / ADMIN_SOCKET
        return None

    async def _release(self, instance_id: str) -> Leaving:
        self._serving.discard(instance_id)
        self._answering.discard(instance_id)
        self._begun_with.pop(instance_id, None)
        instance = self._managed.get(instance_id)
        if instance is not None:
            self._publish()
            await instance.release()
            self._managed.pop(instance_id, None)
        return self._leaving.setdefault(instance_id, Leaving(self._directory_of(instance_id)))

    def _publish(self, added: str = "") -> None:
        if added:
            self._serving.add(added)
        self._endpoints.put(tuple(self._managed[name].agent for name in sorted(self._serving) if name in self._managed))


def _is_usable(directory: Path) -> bool:
    return directory.is_dir() and not is_detached(directory)


def _read_time(directory: Path) -> float:
    """Return when *directory* was changed last; the present time without it."""
    try:
        return directory.stat().st_mtime
    except FileNotFoundError:
        return time.time()


def _make_directory(directory: Path, mark: Mark) -> None:
    directory.mkdir(mode=0o700)
    fsync_directory(directory.parent)
    replace_file(directory / MARK_NAME, msgspec.json.encode(mark))


def _remove_directory(directory: Path) -> None:
    _remove_sockets(directory)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(directory)


def _remove_sockets(directory: Path) -> None:
    """Remove the sockets of the instance, which are outside of its directory."""
    # Also after its process has exited.
    record = find_record(directory) or read_record(directory / RECORD_NAME)
    if record is None:
        return
    sockets = Path(record.sockets)
    for name in (ADMIN_SOCKET, MASTER_SOCKET):
        (sockets / name).unlink(missing_ok=True)
    # The directory may contain sockets of other instances.
    with contextlib.suppress(OSError):
        sockets.rmdir()
