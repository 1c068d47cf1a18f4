"""Faults are injected into running processes: no request is lost without need, and everything recovers.

Of each experiment the state at the end is compared with a fresh start. The
seed of all random choices is HAPTIC_CHAOS_SEED, or printed.
"""

import random
from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.binary import probe_version
from tests.chaos.experiments import agents, cluster, processes, state_directory
from tests.chaos.experiments.registry import EXPERIMENTS, Experiment, choose_seed, root_of
from tests.chaos.report import ROW, row_of
from tests.chaos.world import World, running

# Each adds its experiments.
__all__ = ["agents", "cluster", "processes", "state_directory"]

pytestmark = [pytest.mark.haproxy, pytest.mark.process, pytest.mark.slow]

LIMIT = 900.0


async def run(experiment: Experiment, root: Path, binary: Path, request: pytest.FixtureRequest, *, quick: bool) -> None:
    """Run one experiment, add its row to the report, and assert that nothing was lost or wrong."""
    seed = choose_seed()
    print(f"HAPTIC_CHAOS_SEED={seed}")  # noqa: T201 - repeats a failed run
    rng = random.Random(f"{seed} {experiment.name}")
    world: World | None = None
    try:
        with trio.fail_after(LIMIT):
            async with root_of(experiment, root) as own, running(experiment.setup, own, binary, rng) as world:
                world.is_quick = quick
                await experiment.inject(world)
    except PermissionError as exc:
        pytest.skip(f"no file system can be mounted here: {exc}")
    finally:
        if world is not None:
            version = ".".join(map(str, probe_version(binary).number))
            request.node.user_properties.append((ROW, row_of(experiment.name, version, world, seed)))
    assert experiment.outage or not world.dark


@pytest.mark.parametrize("experiment", [one for one in EXPERIMENTS if one.quick], ids=lambda one: one.name)
async def test_quick_experiments_lose_nothing_and_recover(
    experiment: Experiment, instance_root: Path, haproxy_binary: Path, request: pytest.FixtureRequest
) -> None:
    await run(experiment, instance_root, haproxy_binary, request, quick=True)


@pytest.mark.chaos
@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: one.name)
async def test_experiments_lose_nothing_and_recover(
    experiment: Experiment, instance_root: Path, haproxy_binary: Path, request: pytest.FixtureRequest
) -> None:
    await run(experiment, instance_root, haproxy_binary, request, quick=False)
