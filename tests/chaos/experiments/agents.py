"""Experiments with agents, and with the network to them."""

import shutil
from pathlib import Path
from typing import Final

import trio

from tests.chaos.experiments.registry import corrupt, experiment, stop
from tests.chaos.network import Fault
from tests.chaos.processes import living_instances
from tests.chaos.world import Setup, World
from tests.support.processes.read_only import made_read_only

AGENTS: Final = Setup(agents=True)


@experiment("agents: kill -9 and SIGSTOP of an agent", AGENTS)
async def kill_agents(world: World) -> None:
    for number in range(6):
        agent = world.rng.choice(world.agents)
        world.desired.change()
        await world.pause()
        if number % 2:
            await stop(world, agent.pid, 3.0)
        else:
            await world.restart(agent)
        await world.recover()


@experiment("agents: kill -9 of an agent and its HAProxy", AGENTS)
async def kill_agent_and_haproxy(world: World) -> None:
    for _ in range(4):
        index = world.rng.randrange(len(world.agents))
        world.desired.change()
        await world.pause()
        await world.agents[index].kill()
        await world.kill(world.instances[index].master)
        world.agents[index].start()
        await world.recover()


@experiment("agents: state directory of an agent removed", AGENTS, quick=True)
async def remove_agent_state(world: World) -> None:
    for _ in range(1 if world.is_quick else 3):
        await world.pause()
        shutil.rmtree(world.rng.choice(world.directories))
        world.desired.change()
        await world.recover()


@experiment("agents: state directories corrupted", AGENTS)
async def corrupt_agent_state(world: World) -> None:
    for _ in range(4):
        await world.pause()
        corrupt(world)
        world.desired.reload()
        await world.recover()


@experiment("agents: state directory of an agent read-only", AGENTS)
async def read_only_agent_state(world: World) -> None:
    for number in range(3):
        index = world.rng.randrange(len(world.agents))
        directory = world.directories[index]
        began = trio.current_time()
        masters = masters_in(directory)
        with made_read_only(directory):
            await disturb_read_only_agent(world, index, number)
            is_exited = masters_in(directory) != masters
            if is_exited:
                # A reload was in progress at the beginning, or the experiment killed it. It starts from older files.
                world.desired.unsettle()
        world.is_writable = True
        await world.recover()
        if is_exited:
            world.outages.append((began, trio.current_time()))


def masters_in(directory: Path) -> list[int]:
    """Return the master of the HAProxy that runs in *directory*, if there is one."""
    return [instance.master for instance in living_instances([directory])]


async def disturb_read_only_agent(world: World, index: int, number: int) -> None:
    """Change, reload, or kill while an agent can write nothing."""
    world.is_writable = False
    for _ in range(3):
        world.desired.change()
        await world.pause(0.5)
    match number:
        case 0:
            world.desired.reload()
        case 1:
            for instance in living_instances([world.directories[index]]):
                await world.kill(*instance.workers)
        case _:
            await world.restart(world.agents[index])
            await world.agents[index].listens()
    await world.pause(3.0)
    world.desired.change()
    await world.pause()


def _network_experiment(name: str, fault: Fault, *, quick: bool = False) -> None:
    @experiment(f"agents: {name} network", AGENTS, quick=quick)
    async def disturb(world: World) -> None:
        for _ in range(1 if world.is_quick else 3):
            for network in world.networks:
                network.fault = fault
            for _ in range(5):
                world.desired.change()
                await world.pause(0.5)
            world.desired.reload()
            await world.pause(2.0)
            for network in world.networks:
                network.fault = "none"
            await world.recover()


_network_experiment("a cut", "cut", quick=True)
_network_experiment("a slow", "slow")
_network_experiment("a stalled", "stall")
_network_experiment("a corrupting", "corrupt")
_network_experiment("a refusing", "refuse")
