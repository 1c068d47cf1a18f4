"""Experiments with the directory of manifests, and with the API server."""

import shutil
from typing import Final

from tests.chaos.experiments.registry import experiment
from tests.chaos.world import Setup, World

API: Final = Setup(source="API server")


@experiment("manifests: the directory replaced")
async def replace_manifests(world: World) -> None:
    manifests = world.site.manifests
    for number in range(4):
        await world.pause()
        former = manifests.with_name(f"former-{number}")
        fresh = manifests.with_name(f"fresh-manifests-{number}")
        shutil.copytree(manifests, fresh)
        manifests.rename(former)
        await world.pause(0.5)
        fresh.rename(manifests)
        if number % 2:
            shutil.rmtree(former)
        await world.recover()


@experiment("manifests: written in pieces")
async def write_in_pieces(world: World) -> None:
    for _ in range(6):
        path = world.rng.choice(sorted(world.site.manifests.glob("ingress-*.yaml")))
        text = path.read_bytes()
        # A comment ends the file, so that no beginning of it is a smaller, valid object.
        with path.open("wb", buffering=0) as file:
            file.write(b"{" + b" " * 100)
            await world.pause(0.5)
            file.seek(0)
            file.write(b"\n" * 101)
            file.seek(0)
            file.write(text)
            file.truncate()
        await world.recover()


def _server_experiment(name: str, fault: str, *, quick: bool = False) -> None:
    @experiment(f"API server: {name}", API, quick=quick)
    async def disturb(world: World) -> None:
        assert world.api is not None
        faults = world.api.faults
        for _ in range(1 if world.is_quick else 3):
            await world.pause()
            match fault:
                case "stop":
                    world.api.stop()
                case "fail":
                    faults.failing = 10_000
                    world.api.cut_watches()
                case "hang":
                    faults.hanging = True
                    world.api.cut_watches()
                case "slow":
                    faults.delay = 1.0
                    world.api.cut_watches()
                case "expire":
                    faults.expire_watches = 5
                    world.api.expire_watches()
                case "throttle":
                    faults.throttled = 20
                    world.api.cut_watches()
                case "forbid":
                    faults.forbidden |= {"ingresses", "services", "endpointslices", "secrets", "configmaps"}
                    world.api.cut_watches()
            world.desired.change()
            await world.pause(3.0)
            faults.failing, faults.hanging, faults.delay = 0, False, 0.0
            faults.forbidden.clear()
            if fault == "stop":
                await world.api.start()
            await world.recover()


for _name, _fault in {
    "stopped": "stop",
    "answers 500": "fail",
    "does not answer": "hang",
    "answers late": "slow",
    "forgets versions (410)": "expire",
    "answers 429": "throttle",
    "forbids reading (403)": "forbid",
}.items():
    _server_experiment(_name, _fault)


@experiment("API server: stopped, and the controller killed", API)
async def stop_server_and_kill(world: World) -> None:
    assert world.api is not None
    for _ in range(3):
        await world.pause()
        world.api.stop()
        await world.restart(world.controller)
        await world.pause(3.0)
        await world.api.start()
        await world.recover()
