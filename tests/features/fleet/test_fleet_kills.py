"""Instances and the controller are killed at random points of rotations and resizes; clients are never turned away."""

import os
import random
import signal
from pathlib import Path

import msgspec
import pytest
import trio

from haptic_trio.cli.fleet import NoControllerError, RejectedRequestError, ask_controller
from haptic_trio.dataplane.local.process import find_masters, read_record
from haptic_trio.fleet.status import GroupStatus
from tests.features.harness import Site
from tests.fleet.rig.knocking import Report, knocking
from tests.fleet.rig.story import running_story, write_site
from tests.support.processes.haproxy import live_haproxies
from tests.support.processes.launcher import Program, launcher

pytestmark = pytest.mark.haproxy

SIZE = 3
SETTLE_LIMIT = 30.0


class Rig:
    """A controller in a process of its own, which the test kills together with its instances."""

    def __init__(self, site: Site, program: Program, rng: random.Random) -> None:
        self.site = site
        self.program = program
        self.rng = rng
        self.revision = 0
        self.kills: list[str] = []

    def want(self, size: int) -> None:
        """Have *size* instances, and others than before."""
        self.revision += 1
        write_site(self.site, size=size, surge=2, drainTimeout="2s", revision=str(self.revision))

    async def start(self) -> None:
        """Start the controller."""
        await self.program.start()

    async def kill_controller(self) -> None:
        """Kill it, and start another one."""
        self.kills.append("controller")
        self.program.kill()
        await self.program.wait_gone()
        # real time: the next controller starts at a random moment
        await trio.sleep(self.rng.uniform(0.0, 0.2))
        await self.start()

    def kill_instance(self) -> None:
        """Kill an HAProxy, its master or all of it, unless it is the last."""
        alive = [path for path in self.directories() if is_alive(path)]
        if len(alive) < 2:
            return
        victim = self.rng.choice(alive)
        masters = find_masters(str(victim / "process.cfg"))
        pids = masters if self.rng.random() < 0.5 else live_haproxies(victim, within=0)
        self.kills.append(f"{victim.name} {len(pids)}")
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def directories(self) -> list[Path]:
        """Return those of all instances."""
        root = self.site.state / "instances"
        return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []

    async def settled(self, size: int) -> list[str]:
        """Return the instances once *size* are ready, as they should be, and no other is there."""
        with trio.move_on_after(SETTLE_LIMIT):
            while True:
                group = await self.look()
                if group is not None and group.size == size and all(
                    one.state == "ready" and one.is_current and not one.leaves_for for one in group.instances
                ):  # fmt: skip
                    names = [one.id for one in group.instances]
                    if len(names) == size and [path.name for path in self.directories()] == sorted(names):
                        return names
                await trio.sleep(0.05)
        raise AssertionError(f"not settled: {await self.look()} {self.kills} {self.program.output[-3000:]}")

    async def look(self) -> GroupStatus | None:
        """Return the group; None if no controller reports it."""
        try:
            answer = await ask_controller(self.site.state, "GET", "/fleet")
        except (NoControllerError, RejectedRequestError):
            return None
        groups = msgspec.convert(answer["groups"], list[GroupStatus])
        return groups[0] if groups else None


def is_alive(directory: Path) -> bool:
    """Whether the HAProxy in *directory* runs and is not about to leave."""
    return (
        not (directory / "draining").exists()
        and read_record(directory / "process.json") is not None
        and bool(live_haproxies(directory, within=0))
    )


async def live(site: Site, binary: Path, rounds: int, seed: int) -> tuple[Report, Rig]:
    """Make *rounds* changes, kill a random process during each, and return the report of a client."""
    rng = random.Random(seed)
    async with launcher() as start:
        command = ["serve", "--manifests", str(site.manifests), "--state-dir", str(site.state)]
        command += ["--listen", "127.0.0.1:0", "--haproxy", str(binary)]
        rig = Rig(site, Program(start, site.state.parent, "controller", command), rng)
        rig.want(SIZE)
        await rig.start()
        try:
            await rig.settled(SIZE)
            async with knocking(site.port) as client:
                for _ in range(rounds):
                    size = rng.choice([2, 3, 4])
                    rig.want(size)
                    for _ in range(rng.choice([1, 2, 3])):
                        # real time: a process is killed at a random moment
                        await trio.sleep(rng.uniform(0.0, 0.8))
                        if rng.random() < 0.5:
                            await rig.kill_controller()
                        else:
                            rig.kill_instance()
                    await rig.settled(size)
        finally:
            with trio.CancelScope(shield=True):
                rig.program.kill()
                await rig.program.wait_gone()
    assert client.report is not None
    return client.report, rig


async def check(site: Site, binary: Path, rounds: int) -> None:
    seed = int(os.environ.get("HAPTIC_CRASH_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"HAPTIC_CRASH_SEED={seed}")  # noqa: T201
    report, rig = await live(site, binary, rounds, seed)
    print(report, rig.kills)  # noqa: T201
    assert report.refused == 0
    # Nothing but what a killed HAProxy had accepted.
    instances = sum(not kill.startswith("controller") for kill in rig.kills)
    assert report.lost <= 20 * instances
    assert report.answered + report.lost == report.opened
    # The next controller finds everything, and takes it along when it ends.
    write_site(site, size=1, drainTimeout="1s", revision=str(rig.revision))
    async with running_story(site, binary) as story:
        await story.settled(1)
    assert live_haproxies(site.state) == []


async def test_no_request_is_rejected_whichever_process_is_killed(site: Site, haproxy_binary: Path) -> None:
    await check(site, haproxy_binary, 4)


@pytest.mark.crash
async def test_no_request_is_rejected_through_many_kills(site: Site, haproxy_binary: Path) -> None:
    await check(site, haproxy_binary, 20)
