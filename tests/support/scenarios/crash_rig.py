"""A controller, agents and HAProxy processes that are killed at any point, and checks that their state is right."""

import contextlib
import json
import os
import random
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal

import msgspec
import trio

from haptic_trio.dataplane.binary import clean_environment
from haptic_trio.dataplane.endpoint import EndpointError
from haptic_trio.dataplane.local.files.generation_directory import JOURNAL_NAME, MANIFEST_NAME, GenerationDirectory
from haptic_trio.dataplane.local.files.instance_directory import GenerationFiles
from haptic_trio.dataplane.local.files.journal import PatchJournal
from haptic_trio.dataplane.local.instance import LocalAgent
from haptic_trio.dataplane.local.process import read_record, read_start_time
from haptic_trio.dataplane.local.runtime import RuntimeClient
from haptic_trio.haproxy.plan.delta import decode_delta
from tests.features.harness import Site
from tests.support.processes.launcher import Program, wait_gone
from tests.support.scenarios.wanted import Certificate, Wanted, change, is_made_of, read_wanted
from tests.support.scenarios.witness import Window, shows

DRIFT_INTERVAL: Final = 4.0
START_LIMIT: Final = 3.0
"""Seconds for starting again and deploying, on a busy machine; the drift interval comes on top."""
LOOK_INTERVAL: Final = 0.01
ASSUMED_STEPS: Final = 100
ASSUMED_SECONDS: Final = 0.2
_ADMIN_STATE: Final = 6
_PORT: Final = 18
"""Columns of what HAProxy says of a server's state."""
_PARTS: Final = ("generations", "folders", "current", "journal.json", "process.cfg")

Part = Literal["owner", "controller", "worker", "master", "owner and master", "controller and master"]
"""Who is killed: the owner of an instance is its agent, or the controller where there is none."""


class Instance:
    """An HAProxy and its files in *directory*, kept by *owner*."""

    def __init__(self, directory: Path, owner: Program, binary: Path) -> None:
        self.directory = directory
        self.owner = owner
        self._binary = binary

    @property
    def master(self) -> int:
        """The master process; 0 when none is alive."""
        record = read_record(self.directory / "process.json")
        return record.pid if record is not None and read_start_time(record.pid) == record.start_time else 0

    @property
    def worker(self) -> int:
        """The newest worker; 0 when there is none."""
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{self.master}/task/{self.master}/children").read_text().split()
            return max(map(int, children), default=0)
        return 0

    async def shows(self, wanted: Wanted, ports: Sequence[int], certificates: Sequence[Certificate]) -> bool:
        """Whether it answers as *wanted*, and its disk says so for good."""
        before = self._settled_id()
        return (
            bool(before)
            and await shows(self.directory, wanted, certificates)
            and await self._read_servers() == {ports[number] for number in wanted.servers}
            and self._settled_id() == before
        )

    async def _read_servers(self) -> set[int]:
        """Return the ports of the stable host's servers: answers alone may miss one that should have gone."""
        record = read_record(self.directory / "process.json")
        if record is None:
            return set()
        try:
            client = RuntimeClient(Path(record.sockets) / "admin.sock", endpoint="local")
            rows = (await client.ask("show servers state web\n")).splitlines()
        except EndpointError:
            return set()
        servers = [row.split() for row in rows if row and not row.startswith(("#", "1\n")) and " " in row]
        # A server in maintenance is on its way out.
        return {int(row[_PORT]) for row in servers if not int(row[_ADMIN_STATE]) & 1}

    def _settled_id(self) -> str:
        """Return the generation that a process would be started with; empty while something is under way."""
        with contextlib.suppress(OSError, KeyError, ValueError):
            if json.loads((self.directory / "journal.json").read_bytes())["pending"]:
                return ""
            records = PatchJournal(self.directory / "current" / JOURNAL_NAME).read()
            if records.open is not None:
                return ""
            if records.kept:
                return decode_delta(records.kept[-1]).id
            identity: str = json.loads((self.directory / "current" / MANIFEST_NAME).read_bytes())["id"]
            return identity
        return ""

    def inspect(self, window: Window, ports: Sequence[int], certificates: Sequence[Certificate]) -> None:
        """Look at the files that a dead owner has left; assert that what HAProxy would load is whole and wanted.

        As they are they may lack runtime changes since; as the next
        owner makes of them, from its notes, they are what is wanted now.
        """
        if not (self.directory / "current").exists():
            return
        self._inspect(self.directory, window.all, ports, certificates)
        with tempfile.TemporaryDirectory() as name:
            copy = Path(name)
            for part in _PARTS:
                source = self.directory / part
                if source.is_dir() and not source.is_symlink():
                    shutil.copytree(source, copy / part, symlinks=True)
                elif source.is_symlink() or source.exists():
                    shutil.copy2(source, copy / part, follow_symlinks=False)
            files = GenerationFiles(copy)
            files.recover()
            files.absorb()
            if files.committed:
                assert files.read_running(thorough=True) is not None
                self._inspect(copy, window.open, ports, certificates)

    def _inspect(
        self, root: Path, wanted: Sequence[Wanted], ports: Sequence[int], certificates: Sequence[Certificate]
    ) -> None:
        current = root / "current"
        directory = GenerationDirectory(current)
        generation = directory.read(thorough=True)
        assert generation.id == directory.intended, f"{os.readlink(current)} is not whole"  # noqa: PTH115 - a text
        found = read_wanted(current, ports, certificates)
        assert is_made_of(found, wanted), f"{found} is on the disk, not one of {wanted[-20:]}"
        command = [str(self._binary), "-c", "-f", str(root / "process.cfg"), "-f", f"{current}/haproxy.cfg"]
        run = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=30, env=clean_environment(), cwd=root
        )
        assert run.returncode == 0, run.stderr

    async def look_within(self) -> dict[str, int]:
        """Take the instance over, its owner being gone; return what differs between process and files, and end it."""
        agent = LocalAgent("local", self.directory, self._binary)
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(agent.run, on_exit="stop", grace=0.5))
            assert await agent.fetch_running() is not None, "the running generation is unknown"
            found = (await agent.repair()).found
            nursery.cancel_scope.cancel()
        return dict(found)


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """Who died, where in a deployment, and how long it took until all was well again."""

    kind: str
    part: Part
    point: str
    seconds: float


class Rig:
    """Deploys, kills in the middle of it, starts again, and waits until everything is as wanted."""

    def __init__(
        self,
        site: Site,
        controller: Program,
        instances: Sequence[Instance],
        ports: Sequence[int],
        certificates: Sequence[Certificate],
        *,
        rng: random.Random,
    ) -> None:
        self.window = Window(Wanted())
        self.kills: list[Kill] = []
        self._site = site
        self._controller = controller
        self._instances = instances
        self._ports = ports
        self._certificates = certificates
        self._rng = rng
        self._number = 0
        self._steps: dict[tuple[str, str], int] = {}
        self._seconds: dict[str, float] = {}

    @property
    def programs(self) -> list[Program]:
        """The controller, and the agents if there are any."""
        return list({id(one): one for one in (self._controller, *(one.owner for one in self._instances))}.values())

    def write(self) -> None:
        """Have the newest configuration on the controller's disk."""
        self._site.write("wanted", self.window.newest.as_object(self._ports, self._certificates))

    async def converge(self, *, within: float) -> None:
        """Return when every instance is as wanted; then nothing older may be seen any more."""
        wanted = self.window.newest
        pending = list(self._instances)
        with trio.move_on_after(within) as limit:
            while pending:
                pending = [one for one in pending if not await one.shows(wanted, self._ports, self._certificates)]
                if pending:
                    await trio.sleep(LOOK_INTERVAL)
        if limit.cancelled_caught:
            raise AssertionError(
                f"{[one.directory.name for one in pending]} not as wanted after {within:g} s: {wanted}"
            )
        self.window.reach()

    async def deploy(self, kind: str, part: Part) -> None:
        """Change something of *kind*, kill *part* meanwhile at a random point, and see everything come right."""
        rng = self._rng
        instance = rng.choice(self._instances)
        victims, pids = self._choose_victims(part, instance)
        if pids:
            self.window.begin_outage()
        teller = rng.choice([victims[0], instance.owner] if victims else [instance.owner, self._controller])
        steps = self._steps.get((teller.name, kind), ASSUMED_STEPS)
        seconds = self._seconds.get(kind, ASSUMED_SECONDS)
        before = teller.steps.count
        began = trio.current_time()
        by_step = rng.random() < 0.65
        moment = rng.random()
        if by_step:
            teller.steps.arm(int(moment * steps), pids[0] if pids else 0 if teller is victims[0] else victims[0].pid)
        self._change(kind)
        point = "after"
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                nonlocal point
                if not by_step:
                    await trio.sleep(moment * seconds)
                    point = "time"
                else:
                    await (wait_gone(pids[0]) if pids else victims[0].wait_gone())
                    point = "step"
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            await self.converge(within=DRIFT_INTERVAL + START_LIMIT)
            self._steps[teller.name, kind] = max(1, teller.steps.count - before)
            self._seconds[kind] = trio.current_time() - began
            nursery.cancel_scope.cancel()
        where = teller.steps.disarm()
        await self._kill(victims, pids)
        died = trio.current_time()
        await self.converge(within=DRIFT_INTERVAL + START_LIMIT)
        if pids:
            self.window.end_outage()
        seconds = trio.current_time() - died
        self.kills.append(Kill(kind=kind, part=part, point=where or point, seconds=seconds))

    def _choose_victims(self, part: Part, instance: Instance) -> tuple[list[Program], list[int]]:
        programs = [instance.owner] if "owner" in part else [self._controller] if "controller" in part else []
        pids = [instance.master] if "master" in part else [instance.worker] if "worker" in part else []
        return programs, pids

    def _change(self, kind: str) -> None:
        """Write one change, or now and then several in a row."""
        for _ in range(self._rng.choice([1, 1, 1, 1, 2, 3])):
            self._number += 1
            fresh = change(kind, self.window.newest, self._number, self._rng, len(self._certificates))
            self.window.want(fresh)
            self.write()

    async def _kill(self, victims: Sequence[Program], pids: Sequence[int]) -> None:
        for program in victims:
            program.kill()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        for pid in pids:
            await wait_gone(pid)
        for program in victims:
            await program.wait_gone()
        for instance in self._instances:
            if instance.owner in victims:
                await trio.to_thread.run_sync(instance.inspect, self.window, self._ports, self._certificates)
        for program in victims:
            await program.start()

    def report(self) -> str:
        """Say what was killed, and where."""
        seconds = sorted(one.seconds for one in self.kills)
        parts = Counter(one.part for one in self.kills)
        points = Counter(_kind_of(one.point) for one in self.kills)
        return (
            f"{len(self.kills)} deployments, {self._number} configurations; killed {dict(parts)}; at {dict(points)};"
            f" as wanted after {seconds[len(seconds) // 2]:.2f} s (median), {seconds[-1]:.2f} s (longest)"
        )


def _kind_of(point: str) -> str:
    return point if point.startswith(("before ", "after ")) else point.partition(" ")[0]
