"""A controller whose state directory was removed continues, and only one configuration answers."""

import shutil
from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.local.process import read_start_time
from haptic_trio.messages import InstanceDraining
from tests.features.harness import LIMIT, Site, controller, serving_web
from tests.support.processes.haproxy import backend, live_haproxies

pytestmark = pytest.mark.haproxy


async def test_a_removed_state_directory_holds_back_no_change(site: Site, haproxy_binary: Path) -> None:
    site.write_config(instances={"healthInterval": "1s"})
    async with backend("two") as two, serving_web(site, haproxy_binary) as running:
        shutil.rmtree(site.state)
        site.write_service("web", two)
        site.write_ingress("more", "more.localhost", "web")
        drained = await running.wait(InstanceDraining)
        assert drained.reason == "files-lost"
        await running.serves(site, "web.localhost", "two")
        await running.serves(site, "more.localhost", "two")
        (info,) = await running.instances(1)
        assert info.name != drained.instance
        # Later changes as well.
        site.remove("ingress-more")
        await running.answers(site, "more.localhost", 404)


async def test_an_haproxy_of_a_lost_state_directory_does_not_answer_for_long(site: Site, haproxy_binary: Path) -> None:
    site.write_config(instances={"healthInterval": "1s"})
    async with serving_web(site, haproxy_binary, on_exit="leave") as running:
        (before,) = await running.instances(1)
    shutil.rmtree(site.state)
    async with backend("two") as two:
        site.write_service("web", two)
        async with controller(site, haproxy_binary) as running:
            drained = await running.wait(InstanceDraining)
            assert (drained.instance, drained.reason) == (before.name, "files-lost")
            await running.serves(site, "web.localhost", "two")
            (info,) = await running.instances(1)
            assert info.name != before.name
            with trio.fail_after(LIMIT):
                # It finishes its connections first.
                while read_start_time(before.pid) is not None:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            bodies = {(await site.get("web.localhost"))[1] for _ in range(40)}
            assert bodies == {"two"}
        assert not live_haproxies(site.state)
