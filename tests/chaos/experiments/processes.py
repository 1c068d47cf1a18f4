"""Experiments with processes that are killed or stopped, and with their limits."""

import signal

import trio

from tests.chaos.experiments.registry import experiment, kill_all, kill_one, outage, stop
from tests.chaos.processes import Limits, send
from tests.chaos.world import Setup, World


@experiment("kill -9 of the controller")
async def kill_controller(world: World) -> None:
    for _ in range(6):
        world.desired.change()
        await world.pause()
        await world.restart(world.controller)
        await world.pause(3.0)
        await world.recover()


@experiment("kill -9 of a worker or master")
async def kill_haproxy(world: World) -> None:
    for number in range(8):
        world.desired.change()
        await world.pause()
        await kill_one(world, "worker" if number % 2 else "master")
        await world.recover()


@experiment("kill -9 of a worker during a reload")
async def kill_during_reload(world: World) -> None:
    for number in range(6):
        world.desired.reload()
        await world.pause(2.0)
        await kill_one(world, "worker" if number % 2 else "master")
        await world.recover()


@experiment("kill -9 of the controller and a master")
async def kill_controller_and_master(world: World) -> None:
    for _ in range(4):
        world.desired.change()
        await world.pause()
        await world.controller.kill()
        await kill_one(world, "master")
        world.controller.start()
        await world.recover()


@experiment("kill -9 of everything", outage=True)
async def kill_everything(world: World) -> None:
    for _ in range(3):
        world.desired.change()
        await world.pause()
        async with outage(world):
            await world.controller.kill()
            await kill_all(world)
            world.controller.start()
            await world.recover()


@experiment("SIGSTOP of the controller, a master or a worker")
async def stop_processes(world: World) -> None:
    for number in range(6):
        instance = world.rng.choice(world.instances)
        victim = (world.controller.pid, instance.master, instance.workers[0])[number % 3]
        await world.pause()
        await stop(world, victim, 3.0)
        await world.recover()


@experiment("SIGSTOP of a worker for ever")
async def hang_worker(world: World) -> None:
    worker = world.rng.choice(world.instances).workers[0]
    await world.pause()
    began = trio.current_time()
    send(signal.SIGSTOP, worker)
    # It is replaced, and ended with its connections.
    await world.recover()
    world.outages.append((began, trio.current_time()))


@experiment("ulimit -n 256", Setup(limits=Limits(descriptors=256), apps=10))
async def few_descriptors(world: World) -> None:
    await change_and_reload(world)


@experiment("ulimit -v 700 MB", Setup(limits=Limits(megabytes=700), apps=10))
async def little_memory(world: World) -> None:
    await change_and_reload(world)


async def change_and_reload(world: World) -> None:
    """Make changes of all kinds, with held connections to the admin port."""
    held = [await trio.open_tcp_stream("127.0.0.1", world.admin) for _ in range(40)]
    for _ in range(3):
        for _ in range(10):
            world.desired.change()
            await world.pause(0.1)
        world.desired.reload()
        await world.recover()
    for stream in held:
        await stream.aclose()
    await kill_one(world, "worker")
    await world.recover()
