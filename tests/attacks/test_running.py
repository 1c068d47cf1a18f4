"""Attackers against running processes: the victim is served, its changes go on, and HAProxy lives."""

import sys
from pathlib import Path

import pytest

from tests.attacks.rig import BELOW, HOST, Rig, rig
from tests.attacks.scenarios import ATTACKS, Attack
from tests.features.harness import Site
from tests.support.processes.haproxy import haproxy_binary, instance_root
from tests.support.processes.ports import free_port

__all__ = ["haproxy_binary", "instance_root"]

pytestmark = pytest.mark.haproxy


@pytest.fixture
def site(instance_root: Path) -> Site:
    """A site with a class, and nothing to serve yet."""
    site = Site(instance_root, free_port())
    site.write_class()
    return site


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_the_victim_is_served_and_its_changes_go_on(site: Site, haproxy_binary: Path, attack: Attack) -> None:
    async with rig(site, haproxy_binary) as found:
        pids = await found.pids()
        objects = list(attack.objects(found))
        if objects:
            found.apply("attack", objects)
        # What is written after the attack is taken in after it.
        await found.change()
        await attack.check(found)
        await _see_victim(found)
        await found.change()

        assert await found.pids() == pids
        await found.check_controller()
    # Shown by `pytest -rP`.
    counted, slowest = found.requests["requests"], found.requests["slowest"]
    sys.stdout.write(f"{attack}: {counted} requests, the slowest {slowest:.3f} s; changes {found.changes[1:]}\n")


async def _see_victim(found: Rig) -> None:
    for port in ("http", "https", "gateway"):
        answer = await found.ask(HOST, "/login", port=port)
        assert answer.status == 200, port
        assert answer.body.startswith("victim\n"), port
    for port in ("http", "https"):
        answer = await found.ask(BELOW, "/login", port=port)
        assert answer.status == 200, port
        assert answer.body.startswith("victim\n"), port
    assert (await found.ask(HOST, "/admin")).status == 403
