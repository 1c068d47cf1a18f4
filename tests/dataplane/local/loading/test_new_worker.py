"""Moves wait in the socket of the new worker before it serves; the worker is a listener that answers on demand."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.endpoint import PatchRejectedError
from haptic_trio.dataplane.local.files.instance_directory import GenerationFiles
from haptic_trio.dataplane.local.former_worker import FormerWorker
from haptic_trio.dataplane.local.loading.new_worker import Loaded, NewWorker
from haptic_trio.dataplane.local.runtime import RuntimeClient
from haptic_trio.dataplane.local.worker import WorkerState
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.operations import Plan
from tests.support.processes.haproxy import build_generation

NEW = 7
"""Pid of the new worker."""


def site(one: int, two: int) -> Generation:
    """Return a generation with a server in each of two backends."""
    return build_generation(f"backend one\n  server s 127.0.0.1:{one}\nbackend two\n  server s 127.0.0.1:{two}\n")


class Worker:
    """The new worker at *path*: takes requests at once, and answers them once it `serves`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pid = NEW
        self.reply = "nothing changed"
        self.requests: list[str] = []
        self.serves = trio.Event()
        self.asked = trio.Event()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        listener = trio.socket.socket(trio.socket.AF_UNIX)
        await listener.bind(str(self.path))
        listener.listen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, self._serve, [trio.SocketListener(listener)])
            yield
            nursery.cancel_scope.cancel()

    async def _serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            request = b"".join([chunk async for chunk in stream]).decode()
            if not request:
                return
            self.requests += [command for command in request.strip().split(";")[1:] if command.startswith("set ")]
            self.asked.set()
            self.asked = trio.Event()
            await self.serves.wait()
            rest = "".join(f"{self.reply}\n\n" for _ in request.strip().split(";")[1:])
            await stream.send_all(f"Pid: {self.pid}\n\n{rest}".encode())


class Rig:
    """A load of `site(1, 1)` that ends when `loaded` is set, and the former worker with pid 5."""

    def __init__(self, root: Path) -> None:
        self.worker = Worker(root / "new-a.sock")
        self.former = FormerWorker("local-1", GenerationFiles(root), WorkerState("local-1"))
        self.loaded = trio.Event()
        self.results: list[Loaded] = []
        self._runtime = RuntimeClient(root / "admin.sock", endpoint="local-1")

    @asynccontextmanager
    async def loading(self) -> AsyncIterator[None]:
        self.former.expect()
        self.former.begin(5, Capabilities(), site(1, 1))
        new = NewWorker(self.worker.path, site(1, 1), self.former, Capabilities())

        async def load() -> None:
            self.results.append(await new.run(self.loaded.wait))

        with trio.fail_after(10):
            async with self.worker.listening(), trio.open_nursery() as nursery:
                nursery.start_soon(load)
                yield

    async def move(self, successor: Generation) -> None:
        """Announce *successor* by a change that the former worker does not get."""
        with pytest.raises(PatchRejectedError):
            await self.former.patch(self._runtime, site(9, 9), site(9, 9), Plan(), successor)


async def test_every_move_is_sent_before_the_worker_answers_the_first_one(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.loading():
        for successor in (site(2, 1), site(2, 2)):
            asked = rig.worker.asked
            await rig.move(successor)
            await asked.wait()
        rig.worker.serves.set()
        rig.loaded.set()

    assert rig.worker.requests == [f"set server {name}/s addr 127.0.0.1 port 2" for name in ("one", "two")]
    assert (rig.results[0].running, rig.results[0].pid, rig.results[0].is_unknown) == (site(2, 2), NEW, False)


async def test_rejected_move_makes_it_unknown_what_the_worker_runs(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.worker.reply = "No such server."
    rig.worker.serves.set()
    async with rig.loading():
        asked = rig.worker.asked
        await rig.move(site(2, 1))
        await asked.wait()
        rig.loaded.set()

    assert (rig.results[0].running, rig.results[0].is_unknown) == (site(1, 1), True)


async def test_socket_that_the_former_worker_still_has_changes_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.worker.pid = 5
    rig.worker.serves.set()
    async with rig.loading():
        asked = rig.worker.asked
        await rig.move(site(2, 1))
        await asked.wait()
        rig.loaded.set()

    assert (rig.results[0].running, rig.results[0].pid, rig.results[0].is_unknown) == (site(1, 1), 0, False)


async def test_load_without_moves_runs_the_files(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.loading():
        rig.loaded.set()

    assert (rig.results[0].running, rig.results[0].pid, rig.worker.requests) == (site(1, 1), 0, [])
