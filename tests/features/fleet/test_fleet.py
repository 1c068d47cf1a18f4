"""The fleet of a running controller: resized, rotated, hung, stuck; no client notices, and never are too few ready."""

import os
import signal
import time
from pathlib import Path

import httpx
import pytest
import trio
from click.testing import CliRunner

from haptic_trio.cli.app import cli
from haptic_trio.cli.serving.fleet import control_path
from haptic_trio.messages import FleetChanged, InstanceDeployed, InstanceOperationFailed
from tests.features.harness import Site
from tests.fleet.rig.knocking import knocking
from tests.fleet.rig.local import download, listening_sockets, slow_backend
from tests.fleet.rig.story import Story, replaceable, running_story, write_site
from tests.support.processes.haproxy import fetch, live_haproxies, wait_for_body

pytestmark = pytest.mark.haproxy


async def test_fleet_is_resized_and_rotated_and_no_client_notices(
    site: Site, haproxy_binary: Path, tmp_path: Path
) -> None:
    binary = replaceable(tmp_path / "haproxy", haproxy_binary)
    write_site(site, size=2, drainTimeout="5s")
    async with running_story(site, binary) as story:
        await story.settled(2)
        async with knocking(site.port) as client:
            write_site(site, size=5, drainTimeout="5s")
            former = await story.settled(5)
            story.floor = 1
            write_site(site, size=1, drainTimeout="5s")
            await story.settled(1)
            write_site(site, size=2, drainTimeout="5s")
            former = await story.settled(2)

            write_site(site, size=2, drainTimeout="5s", revision="another")
            former = await story.rotated(former, 2)

            replaceable(binary, haproxy_binary, version=2)
            former = await story.rotated(former, 2)

            # Of an age that only instances of before have by then.
            write_site(site, size=2, drainTimeout="5s", revision="another", maxAge="6s")
            await story.rotated(former, 2)
            write_site(site, size=2, drainTimeout="5s", revision="another")
            await story.wait(lambda: len(story.ready) == len(story.records) == 2)
        assert client.report is not None
        assert client.report.faults == []
        assert client.report.answered == client.report.opened
        assert client.report.rate > 400
        assert story.fewest >= 1
        assert set(story.reasons) == {"scale-down", "config-drift", "eligible-expiry"}
        assert not story.events.all(InstanceOperationFailed)
    assert live_haproxies(site.state) == []


async def test_long_download_is_finished_within_the_drain_limit_and_a_longer_one_is_cut(
    site: Site, haproxy_binary: Path
) -> None:
    async with slow_backend(30, 0.1) as slow:
        write_site(site, slow=slow.port, size=2, drainTimeout="20s")
        async with running_story(site, haproxy_binary) as story, trio.open_nursery() as nursery:
            former = await story.settled(2)
            answers: list[bytes] = []

            async def fetch_slowly() -> None:
                answers.append(await download(site.port))

            for _ in range(6):
                nursery.start_soon(fetch_slowly)
            await slow.asked(6)
            await story.ask("POST", "/fleet/rotate")
            await story.rotated(former, 2)
            await story.wait(lambda: len(answers) == 6)
            assert all(answer.endswith(b"x" * 30) for answer in answers)

            # Now they last longer than they may.
            write_site(site, slow=slow.port, size=2, drainTimeout="500ms")
            former = await story.settled(2)
            answers.clear()
            for _ in range(6):
                nursery.start_soon(fetch_slowly)
            await slow.asked(12)
            began = time.monotonic()
            await story.ask("POST", "/fleet/rotate")
            await story.rotated(former, 2)
            await story.wait(lambda: len(answers) == 6)
            assert time.monotonic() - began < 15
            assert any(not answer.endswith(b"x" * 30) for answer in answers)
            assert await fetch(site.port) == (200, "one")


async def test_hung_instance_is_replaced_before_it_is_ended(site: Site, haproxy_binary: Path) -> None:
    write_site(site, size=2, drainTimeout="500ms", healthInterval="300ms")
    async with running_story(site, haproxy_binary) as story:
        first, _ = await story.settled(2)
        hung = story.pids_of(first)
        for pid in hung:
            os.kill(pid, signal.SIGSTOP)
        await story.rotated([first], 2)
        assert "unhealthy" in story.reasons
        assert story.pids_of(first) == []
        async with knocking(site.port, 100) as client:
            # real time: the client opens connections at a steady rate
            await trio.sleep(0.5)
        assert client.report is not None
        assert client.report.faults == []


async def test_new_instance_is_ready_with_the_newest_generation_only(site: Site, haproxy_binary: Path) -> None:
    write_site(site, size=1)
    async with running_story(site, haproxy_binary) as story:
        await story.settled(1)
        for number in range(1, 4):
            # The configuration, and with it what is valid, changes together with the size.
            write_site(site, answer=f"answer {number}", size=1 + number)
            await story.settled(1 + number)
            await wait_for_body(site.port, f"answer {number}")
            infos = await story.running.describe()
            assert {info.generation for info in infos} == {newest_id(story)}
            assert await fetch(site.port) == (200, f"answer {number}")


def newest_id(story: Story) -> str:
    newest = story.running.serving.process.retained.newest_valid.value
    assert newest is not None
    return newest.generation.id


async def test_people_ask_for_drains_rotations_and_sizes(site: Site, haproxy_binary: Path) -> None:
    write_site(site, drainTimeout="2s")
    async with running_story(site, haproxy_binary, size=2) as story:
        first, second = await story.settled(2)

        status = await story.ask("GET", "/fleet")
        assert [one["id"] for one in status["groups"][0]["instances"]] == [first, second] == ["local-1", "local-2"]
        details = await story.ask("GET", f"/fleet/instances/{first}")
        assert details["pid"] in story.pids_of(first)
        assert details["record"]["state"] == "ready"

        assert await story.ask("POST", f"/fleet/instances/{first}/rotate") == {"asked": [first]}
        await story.rotated([first], 2)
        assert story.reasons == ["requested"]

        story.floor = 1
        await story.ask("POST", f"/fleet/instances/{second}/drain")
        await story.rotated([second], 2)
        assert story.reasons == ["requested", "terminating"]

        assert await story.ask("PUT", "/fleet/size", {"size": 3}) == {"size": 3}
        await story.settled(3)
        status = await story.ask("GET", "/fleet")
        assert (status["groups"][0]["size"], status["groups"][0]["configured_size"]) == (3, 2)
        # The newest edit of the configuration wins.
        story.floor = 1
        write_site(site, size=1, drainTimeout="2s")
        await story.settled(1)

        assert not control_path(site.state).stat().st_mode & 0o077
        answer = await trio.to_thread.run_sync(invoke, site.state, "list")
        assert "local: 1 ready of 1" in answer
        for question, words in (
            (("show", "local-77"), "there is no instance 'local-77'"),
            (("resize", "99"), "99 is not in the range"),
        ):
            assert words in await trio.to_thread.run_sync(invoke, site.state, *question)

        def is_settled() -> bool:
            newest = story.events.all(FleetChanged)[-1]
            return (newest.size, {state: count for state, count in newest.states.items() if count}) == (1, {"ready": 1})

        await story.wait(is_settled)
        async with httpx.AsyncClient(base_url=story.running.serving.addresses[0], trust_env=False) as client:
            ready = (await client.get("/readyz")).json()
            metrics = (await client.get("/metrics")).text
        assert ready["fleet"] == [{"name": "local", "size": 1, "ready": 1, "starting": 0, "draining": 0}]
        assert 'haptic_fleet_instances{group="local",state="ready"} 1.0' in metrics
        assert 'haptic_fleet_drains_total{reason="requested"} 1.0' in metrics
    assert "no controller runs with" in await trio.to_thread.run_sync(invoke, site.state, "list")


def invoke(state: Path, verb: str, *arguments: str) -> str:
    """Return what `haptic-trio fleet` prints, or why it fails."""
    result = CliRunner().invoke(cli, ["fleet", verb, *arguments, "--state-dir", str(state)])
    return result.output + (str(result.exception) if result.exception is not None else "")


async def test_size_that_was_asked_for_outlives_the_controller(site: Site, haproxy_binary: Path) -> None:
    write_site(site)
    async with running_story(site, haproxy_binary, on_exit="leave") as story:
        await story.settled(1)
        await story.ask("PUT", "/fleet/size", {"size": 2})
        former = await story.settled(2)
    left = live_haproxies(site.state, within=0)
    assert len(left) == 4
    async with running_story(site, haproxy_binary) as story:
        assert await story.settled(2) == former
        assert live_haproxies(site.state, within=0) == left
        await story.ask("PUT", "/fleet/size", {"size": None})
        story.floor = 1
        await story.settled(1)


async def test_instances_without_a_valid_configuration_wait_for_one(site: Site, haproxy_binary: Path) -> None:
    write_site(site, size=2, startTimeout="4s")
    valid = (site.manifests / "config.yaml").read_text()
    site.write_config(
        instances={"size": 2, "startTimeout": "4s"},
        templating={"libraries": []},
        haproxyConfig={"template": "global\n    tune.vars.txn-max-size many\n"},
    )
    async with running_story(site, haproxy_binary) as story:
        await story.wait(lambda: len(story.records) == 2)
        # real time: longer than a start may take; there is nothing to start with
        await trio.sleep(4.5)
        assert [record.state for record in story.records] == ["starting", "starting"]
        assert live_haproxies(site.state, within=0) == []
        site.write("config", valid)
        assert await story.settled(2) == ["local-1", "local-2"]
        await wait_for_body(site.port, "one")
        # They were started one after the other, so that the second got the socket of the first.
        assert len(listening_sockets(site.port)) == 1
        assert len(story.events.all(InstanceDeployed)) >= 2
