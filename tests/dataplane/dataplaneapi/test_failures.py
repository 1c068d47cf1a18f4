"""Deployments over a Data Plane API that rejects, fails, hangs, or is not one."""

import json

import pytest
import trio
import trio.testing
from starlette.responses import Response

from haptic_trio.dataplane.dataplaneapi.config import VERSION_ATTEMPTS
from haptic_trio.dataplane.dataplaneapi.rewrite import ApiConflictError
from haptic_trio.dataplane.endpoint import (
    DeploymentRejectedError,
    EndpointStorageError,
    EndpointUnreachableError,
    PatchRejectedError,
)
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.plan.operations import Plan, SetServerWeight
from tests.support.dataplaneapi.builders import (
    certificate,
    crt_list,
    deploy,
    general,
    generation,
    is_as_loaded,
    map_file,
    open_endpoint,
    pem,
    runs,
)
from tests.support.dataplaneapi.server import Call, FakeDataplaneApi, answers, rejection
from tests.support.dataplaneapi.state import ROOT

WRONG_FILE = "[ALERT]    (29261) : config : parsing [haproxy.cfg:7] : unable to load file '503.http'\n"


async def test_newer_version_is_read_again_and_overwritten() -> None:
    api = FakeDataplaneApi()
    desired = generation()

    async def edit_once(call: Call) -> Response | None:
        if call.method == "POST" and call.path == "configuration/raw" and api.version == 1:
            api.replace("global\n  maxconn 7\n")
        return None

    api.before = edit_once
    async with open_endpoint(api) as endpoint:
        await endpoint.activate(desired)

    assert api.version == 3
    assert runs(api, desired)


async def test_endless_conflict_is_given_up_and_undone() -> None:
    api = FakeDataplaneApi()
    former = generation()
    await deploy(api, former)
    calls = len(api.calls)

    async with open_endpoint(api) as endpoint:
        api.before = answers("POST", "configuration/raw", rejection(409, "version mismatch"), times=VERSION_ATTEMPTS)
        with pytest.raises(ApiConflictError, match="version mismatch"):
            await endpoint.activate(generation(hosts="b.example.com app\n", balance="leastconn"))

    pushes = [call for call in api.calls[calls:] if str(call) == "POST configuration/raw"]
    assert len(pushes) == VERSION_ATTEMPTS
    assert runs(api, former)


async def test_rejected_configuration_is_explained_by_its_own_lines_and_undone() -> None:
    api = FakeDataplaneApi()
    former = generation(files=(general("503.http", "busy\n"),))
    await deploy(api, former)
    loads = api.loads
    desired = generation(
        hosts="b.example.com app\n",
        balance="nonsense",
        files=(general("503.http", "new\n"), map_file("p.map", "a b\n")),
    )
    line = 1 + desired.text.splitlines().index("  balance nonsense")

    async with open_endpoint(api) as endpoint:
        with pytest.raises(DeploymentRejectedError) as caught:
            await sync_endpoint(endpoint, desired)
        running = await endpoint.fetch_running()

    assert f"haproxy.cfg:{line}: balance only supports" in str(caught.value)
    assert "Fatal" not in str(caught.value)
    assert runs(api, former)
    assert api.loads == loads
    assert running is not None
    assert running.id == former.id


@pytest.mark.parametrize("schedules_reloads", [False, True])
async def test_failed_reload_is_undone_and_reported(autojump_clock: object, schedules_reloads: bool) -> None:
    api = FakeDataplaneApi()
    former = generation(files=(certificate("a.pem", pem("a.example.com")),))
    await deploy(api, former)
    # A change that took no reload: the API's last good configuration does not have it.
    former = generation(
        files=tuple(former.files.values())[1:], servers=("a 127.0.0.7:9101 check", "b 127.0.0.1:9102 check")
    )
    await deploy(api, former)
    api.reload_failures = [WRONG_FILE]

    async with open_endpoint(api, schedules_reloads=schedules_reloads) as endpoint:
        with pytest.raises(DeploymentRejectedError, match=r"haproxy.cfg:7: unable to load file '…'"):
            await endpoint.activate(generation(hosts="b.example.com app\n", balance="leastconn"))
        running = await endpoint.fetch_running()

    assert runs(api, former)
    assert running is not None
    assert running.id == former.id


async def test_former_configuration_that_does_not_load_either_is_reported() -> None:
    api = FakeDataplaneApi()
    await deploy(api, generation())
    # A change that took no reload: the API's own way back does not lead to it.
    await deploy(api, generation(servers=("a 127.0.0.7:9101 check", "b 127.0.0.1:9102 check")))
    api.reload_failures = [WRONG_FILE, WRONG_FILE]

    async with open_endpoint(api) as endpoint:
        with pytest.raises(EndpointStorageError, match="could not be restored"):
            await endpoint.activate(generation(balance="leastconn"))
        assert await endpoint.fetch_running() is None

    await deploy(api, generation(balance="leastconn"))


async def test_rubbish_certificate_is_rejected_and_the_rest_undone() -> None:
    api = FakeDataplaneApi()
    former = generation(files=(certificate("a.pem", pem("a.example.com")),))
    desired = generation(
        files=(
            certificate("a.pem", pem("b.example.com")),
            certificate("b.pem", b"-----BEGIN PRIVATE KEY-----\nrubbish\n"),
        )
    )
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, former)

        with pytest.raises(DeploymentRejectedError, match=r"ssl_certificates/b\.pem: failed to parse certificate"):
            await sync_endpoint(endpoint, desired)

    assert runs(api, former)


async def test_certificate_that_cannot_be_read_back_is_not_claimed_to_be_undone() -> None:
    api = FakeDataplaneApi()
    former = generation(files=(certificate("a.pem", pem("a.example.com")),))
    await deploy(api, former)

    async with open_endpoint(api) as endpoint:
        with pytest.raises(DeploymentRejectedError):
            await endpoint.activate(generation(balance="nonsense", files=(certificate("a.pem", pem("b.example.com")),)))
        assert await endpoint.fetch_running() is None

    await deploy(api, former)


async def test_rejected_operation_leaves_the_files_and_the_next_load_repairs_the_process() -> None:
    api = FakeDataplaneApi()
    await deploy(api, generation())
    desired = generation(
        servers=("a 127.0.0.9:9101 check", "b 127.0.0.9:9102 check"), files=(map_file("unused.map", "a b\n"),)
    )

    async with open_endpoint(api) as endpoint:
        del api.process.servers["app", "b"]
        api.calls.clear()
        result = await sync_endpoint(endpoint, desired)

    assert result.reloaded
    assert "server app/b: 404 no data for app/b: not found" in result.reasons[0]
    assert runs(api, desired)


async def test_rejected_patch_writes_no_file() -> None:
    api = FakeDataplaneApi()
    former = generation()
    await deploy(api, former)
    plan = Plan((SetServerWeight("app", "c", 3),))

    async with open_endpoint(api) as endpoint:
        api.calls.clear()
        with pytest.raises(PatchRejectedError):
            await endpoint.patch(generation(hosts="b.example.com app\n"), plan)

    assert api.writes == ["PUT storage/general/haptic-trio.json", "PUT runtime/backends/app/servers/c"]
    assert runs(api, former)


async def test_patch_whose_files_are_rejected_is_undone_by_a_load() -> None:
    api = FakeDataplaneApi()
    former = generation()
    await deploy(api, former)
    desired = generation(hosts="app.example.com other\n", servers=("a 127.0.0.9:9101 check", "b 127.0.0.1:9102 check"))

    async with open_endpoint(api) as endpoint:
        api.before = answers("POST", "configuration/raw", rejection(400, "no room"))
        with pytest.raises(DeploymentRejectedError, match="no room"):
            await sync_endpoint(endpoint, desired)
        assert (await endpoint.fetch_running() or desired).id == former.id

    assert runs(api, former)


@pytest.mark.slow
@pytest.mark.parametrize("stop_at", range(1, 17))
async def test_deployment_that_is_cut_off_anywhere_is_made_good_by_the_next(stop_at: int) -> None:
    api = FakeDataplaneApi()
    former = generation(files=(certificate("a.pem", pem("a.example.com")), crt_list("old.txt", "a.pem")))
    desired = generation(
        balance="leastconn",
        hosts="b.example.com app\n",
        files=(certificate("a.pem", pem("b.example.com")), crt_list("new.txt", "a.pem"), general("x", "y")),
    )
    await deploy(api, former)
    whole = FakeDataplaneApi()
    await deploy(whole, former)
    whole.calls.clear()
    await deploy(whole, desired)
    assert len(whole.writes) < 17
    # Beyond the last note but one only files are removed that nothing names any more.
    noted = [number for number, write in enumerate(whole.writes, 1) if write.endswith("haptic-trio.json")][-2]
    writes = 0

    async def break_off(call: Call) -> Response | None:
        nonlocal writes
        writes += call.method != "GET"
        # Nothing arrives any more.
        return rejection(503, "gone") if writes >= stop_at else None

    api.before = break_off
    async with open_endpoint(api) as endpoint:
        if stop_at <= noted:
            with pytest.raises(EndpointUnreachableError):
                await sync_endpoint(endpoint, desired)
        else:
            await sync_endpoint(endpoint, desired)

    api.before = None
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, desired)
        assert is_as_loaded(api)
        assert (await endpoint.fetch_running() or former).id == desired.id
    await deploy(api, former)


@pytest.mark.parametrize("stop_at", range(1, 14))
async def test_patch_that_is_cancelled_anywhere_is_made_good_by_the_next_load(stop_at: int) -> None:
    api = FakeDataplaneApi()
    https = f"frontend https from base\n  bind 127.0.0.1:18443 ssl crt-list {ROOT}/ssl/list.txt\n"
    listed = (certificate("a.pem", pem("a.example.com")), crt_list("list.txt", "a.pem"))
    former = generation(servers=("a 127.0.0.1:9101", "b 127.0.0.1:9102"), extra=https, files=listed)
    await deploy(api, former)
    desired = generation(
        hosts="app.example.com other\nb.example.com app\n",
        servers=("a 127.0.0.9:9101", "c 127.0.0.1:9103"),
        extra=https,
        files=(listed[0], certificate("b.pem", pem("b.example.com")), crt_list("list.txt", "a.pem", "b.pem")),
    )
    writes = 0
    with trio.CancelScope() as scope:

        def cut(call: Call) -> None:
            nonlocal writes
            writes += call.method != "GET"
            if writes == stop_at:
                scope.cancel()

        api.after = cut
        async with open_endpoint(api) as endpoint:
            await sync_endpoint(endpoint, desired)
    api.after = None

    await deploy(api, desired)


async def test_reload_that_the_api_has_forgotten_leaves_it_open_what_runs() -> None:
    api = FakeDataplaneApi()
    api.before = answers("GET", "reloads/", rejection(404, "not found"))

    async with open_endpoint(api, schedules_reloads=True) as endpoint:
        with pytest.raises(EndpointUnreachableError, match="is no longer known"):
            await endpoint.activate(generation())
        assert await endpoint.fetch_running() is None


async def test_what_was_read_long_ago_is_read_again(autojump_clock: object) -> None:
    api = FakeDataplaneApi()
    former, desired = generation(), generation(balance="leastconn")
    await deploy(api, former)

    async with open_endpoint(api) as endpoint:
        assert await endpoint.fetch_running() is not None
        api.stores["maps"]["host.map"] = b"changed by hand\n"
        await trio.sleep(60)
        await endpoint.activate(desired)

    assert runs(api, desired)


async def test_damaged_manifest_makes_the_running_generation_unknown() -> None:
    api = FakeDataplaneApi()
    desired = generation()
    await deploy(api, desired)
    note = json.loads(api.stores["general"]["haptic-trio.json"])

    deep = b'{"x":' + b"[" * 20_000
    for damaged in (
        b"{",
        deep,
        json.dumps({**note, "format": 99}).encode(),
        json.dumps({**note, "text": "AAAA"}).encode(),
    ):
        api.stores["general"]["haptic-trio.json"] = damaged
        async with open_endpoint(api) as endpoint:
            assert await endpoint.fetch_running() is None
        await deploy(api, desired)


async def test_file_that_cannot_be_removed_is_removed_by_the_next_deployment() -> None:
    api = FakeDataplaneApi()
    await deploy(api, generation(files=(general("503.http", "busy\n"),)))
    api.before = answers("DELETE", "storage/general/503.http", rejection(409, "referenced"))

    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, generation())
    assert "503.http" in api.stores["general"]

    await deploy(api, generation(balance="leastconn"))
    assert "503.http" not in api.stores["general"]


async def test_note_that_cannot_be_written_stops_before_anything_changes() -> None:
    api = FakeDataplaneApi()
    former = generation()
    await deploy(api, former)
    api.before = answers("PUT", "storage/general/haptic-trio.json", rejection(500, "no space left on device"))

    async with open_endpoint(api) as endpoint:
        with pytest.raises(EndpointStorageError, match="no space left on device"):
            await sync_endpoint(endpoint, generation(balance="leastconn"))

    assert runs(api, former)
    assert is_as_loaded(api)


async def test_full_disk_is_not_a_fault_of_the_generation() -> None:
    api = FakeDataplaneApi()
    former = generation()
    await deploy(api, former)
    api.before = answers("PUT", "storage/maps/host.map", rejection(500, "no space left on device"))

    async with open_endpoint(api) as endpoint:
        with pytest.raises(EndpointStorageError, match="no space left"):
            await endpoint.activate(generation(hosts="b.example.com app\n"))

    assert runs(api, former)
