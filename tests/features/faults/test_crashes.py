"""HAProxy, the controller and the agents are killed at random points of many deployments, and nothing bad comes of it.

Nothing but wanted configurations is ever served, and the files are one whole
configuration at whatever point their owner has died.
"""

import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.features.harness import Site
from tests.support.components.agents import Authority
from tests.support.processes.launcher import Launcher, Program, launcher
from tests.support.processes.ports import free_port
from tests.support.scenarios.crash_rig import DRIFT_INTERVAL, Instance, Part, Rig
from tests.support.scenarios.wanted import BACKENDS, FIELDS, KINDS, make_certificates
from tests.support.scenarios.witness import Witness, answering

pytestmark = [pytest.mark.haproxy, pytest.mark.crash]

LOCAL: Sequence[Part] = ("controller", "controller", "worker", "master", "controller and master")
REMOTE: Sequence[Part] = (
    "owner",
    "owner",
    "controller",
    "worker",
    "master",
    "owner and master",
    "controller and master",
)


def choose_seed() -> int:
    """Return the seed of HAPTIC_CRASH_SEED, or a new one; it is printed, and shown with a failure."""
    seed = int(os.environ.get("HAPTIC_CRASH_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"HAPTIC_CRASH_SEED={seed}")  # noqa: T201
    return seed


@asynccontextmanager
async def running(root: Path, binary: Path, *, agents: int, rng: random.Random) -> AsyncIterator[tuple[Rig, Witness]]:
    """Run a controller with one local instance, or with so many agents, and clients; afterwards nothing is left."""
    site, https = Site(root, free_port()), free_port()
    site.write_config(
        **FIELDS,
        validation={"interval": "100ms"},
        dataplane={"minDeploymentInterval": "20ms", "driftPreventionInterval": f"{DRIFT_INTERVAL:g}s"},
        templating={
            "libraries": ["base", "ssl"],
            "extraContext": {"httpPort": site.port, "httpsPort": https, "bindAddress": "127.0.0.1"},
        },
    )
    certificates = make_certificates(4)
    async with AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(answering(str(number))) for number in range(BACKENDS)]
        start = await stack.enter_async_context(launcher())
        command = ["serve", "--manifests", str(site.manifests), "--state-dir", str(site.state)]
        command += ["--listen", "127.0.0.1:0", "--haproxy", str(binary)]
        if agents:
            authority = Authority(root / "tls")
            owners = [make_agent(start, root, binary, authority, f"agent-{number}") for number in range(agents)]
            files = authority.issue("controller")
            for _, options in owners:
                command += ["--agent", options]
            command += ["--agent-ca", str(files.authorities), "--agent-cert", str(files.certificate)]
            command += ["--agent-key", str(files.key)]
            controller = Program(start, root, "controller", command)
            instances = [Instance(root / owner.name, owner, binary) for owner, _ in owners]
        else:
            controller = Program(start, root, "controller", command)
            instances = [Instance(site.state / "instances/local-1", controller, binary)]
        rig = Rig(site, controller, instances, ports, certificates, rng=rng)
        witness = Witness(rig.window, certificates, site.port, https)
        try:
            rig.write()
            for program in rig.programs:
                await program.start()
            await rig.converge(within=30)
            async with trio.open_nursery() as nursery:
                for tls in (False, True):
                    nursery.start_soon(partial(witness.run, random.Random(rng.random()), tls=tls))
                yield rig, witness
                nursery.cancel_scope.cancel()
        except BaseException:
            for program in rig.programs:
                print(f"--- {program.name}\n{program.output[-6000:]}")  # noqa: T201
            raise
        finally:
            with trio.CancelScope(shield=True):
                for program in rig.programs:
                    program.kill()
                    await program.wait_gone()
        for instance in instances:
            instance.inspect(rig.window, ports, certificates)
            assert not await instance.look_within()


def make_agent(start: Launcher, root: Path, binary: Path, authority: Authority, name: str) -> tuple[Program, str]:
    """Return an agent and the endpoint that the controller uses for it."""
    port = free_port()
    files = authority.issue("127.0.0.1")
    command = ["agent", "--state-dir", str(root / name), "--listen", f"127.0.0.1:{port}", "--haproxy", str(binary)]
    command += ["--tls-cert", str(files.certificate), "--tls-key", str(files.key)]
    command += ["--client-ca", str(files.authorities), "--max-rate", "1000"]
    return Program(start, root, name, command), f"{name}=https://127.0.0.1:{port}"


async def kill_during(rig: Rig, witness: Witness, rng: random.Random, parts: Sequence[Part], deployments: int) -> None:
    """Deploy repeatedly, and kill a random process during each deployment."""
    for _ in range(deployments):
        await rig.deploy(rng.choice(KINDS), rng.choice(parts))
        assert not witness.faults
        assert not witness.failures
    report = f"{rig.report()}; {witness.answers} answers, lost while an HAProxy was dead: {dict(witness.lost)}"
    print(report)  # noqa: T201
    assert witness.answers > deployments


async def test_a_local_instance_survives_every_kill(instance_root: Path, haproxy_binary: Path) -> None:
    rng = random.Random(choose_seed())
    with trio.fail_after(600):
        async with running(instance_root, haproxy_binary, agents=0, rng=rng) as (rig, witness):
            await kill_during(rig, witness, rng, LOCAL, 120)


async def test_instances_with_agents_survive_every_kill(instance_root: Path, haproxy_binary: Path) -> None:
    rng = random.Random(choose_seed())
    with trio.fail_after(600):
        async with running(instance_root, haproxy_binary, agents=2, rng=rng) as (rig, witness):
            await kill_during(rig, witness, rng, REMOTE, 80)
