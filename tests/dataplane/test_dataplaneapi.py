"""Deployments over a Data Plane API that does as it is told."""

import pytest

from haptic_trio.dataplane.dataplaneapi_storage import MANIFEST
from haptic_trio.dataplane.endpoint import DeploymentRefusedError, DriftReport, PatchRefusedError
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import FileKind, Generation, make_file
from haptic_trio.haproxy.operations import Plan
from tests.support.dataplaneapi import FakeDataplaneApi
from tests.support.dataplaneapi_builders import (
    HOSTS,
    certificate,
    crt_list,
    general,
    generation,
    map_file,
    open_endpoint,
    pem,
    runs,
)
from tests.support.dataplaneapi_state import ROOT

NOTE = f"storage/{MANIFEST}"


async def writes_of(api: FakeDataplaneApi, desired: Generation) -> list[str]:
    """Return what a deployment writes, with an endpoint of its own, as another controller has."""
    api.calls.clear()
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, desired)
    assert api.violations == []
    return api.writes


async def test_first_deployment_stores_files_and_loads_the_configuration() -> None:
    api = FakeDataplaneApi()
    desired = generation(
        files=(certificate("a.pem", pem("a.example.com")), crt_list("list.txt", "a.pem"), general("503.http", "busy\n"))
    )

    async with open_endpoint(api) as endpoint:
        assert await endpoint.fetch_running() is None
        result = await sync_endpoint(endpoint, desired)
        info = await endpoint.describe()

    assert result.reloaded
    assert result.reasons == ("first generation",)
    assert api.loads == 1
    assert runs(api, desired)
    assert (info.version, info.generation, info.reloads) == ("2.8.25", desired.id, 1)
    assert api.violations == []


async def test_identical_generation_is_not_written_even_by_another_controller() -> None:
    api = FakeDataplaneApi()
    desired = generation(files=(certificate("a.pem", pem("a.example.com")), general("503.http", "busy\n")))
    await writes_of(api, desired)

    assert await writes_of(api, desired) == []
    async with open_endpoint(api) as endpoint:
        running = await endpoint.fetch_running()
        assert running is not None
        assert running.id == desired.id
        assert running.config == desired.config
        assert (await sync_endpoint(endpoint, desired)).changed is False


async def test_files_are_written_before_the_configuration_and_removed_after_it() -> None:
    api = FakeDataplaneApi()
    former = (certificate("a.pem", pem("a.example.com")), crt_list("old.txt", "a.pem"), general("503.http", "busy\n"))
    await writes_of(api, generation(files=former))

    changed = (
        certificate("b.pem", pem("b.example.com")),
        crt_list("new.txt", "b.pem"),
        general("503.http", "still busy\n"),
        map_file("path.map", "/ app\n"),
    )
    desired = generation(files=changed, balance="leastconn")
    writes = await writes_of(api, desired)

    assert writes == [
        f"PUT {NOTE}",
        "POST storage/ssl_certificates",
        "PUT storage/general/503.http",
        "POST storage/maps",
        "POST storage/ssl_crt_lists",
        "POST configuration/raw",
        f"PUT {NOTE}",
        "DELETE storage/ssl_crt_lists/old.txt",
        "DELETE storage/ssl_certificates/a.pem",
    ]
    assert api.loads == 2
    assert runs(api, desired)


async def test_files_of_others_are_left_alone() -> None:
    api = FakeDataplaneApi()
    api.stores["general"]["theirs.txt"] = b"theirs"
    api.stores["maps"]["host.map"] = b"of a former life\n"
    desired = generation()

    await writes_of(api, desired)
    await writes_of(api, generation(balance="leastconn"))

    assert api.stores["general"]["theirs.txt"] == b"theirs"
    assert api.stores["maps"]["host.map"] == HOSTS.encode()
    assert await writes_of(api, generation(balance="leastconn")) == []


async def test_server_changes_take_no_reload() -> None:
    api = FakeDataplaneApi()
    await writes_of(api, generation())
    desired = generation(servers=("a 127.0.0.9:9109 check weight 7", "b 127.0.0.1:9102 check disabled"))

    writes = await writes_of(api, desired)

    assert api.loads == 1
    assert api.process.servers["app", "a"]["weight"] == 7
    assert api.process.servers["app", "b"]["admin_state"] == "maint"
    assert runs(api, desired)
    assert writes == [
        f"PUT {NOTE}",
        "PUT runtime/backends/app/servers/a",
        "PUT runtime/backends/app/servers/a",
        "PUT runtime/backends/app/servers/b",
        "POST configuration/raw",
        f"PUT {NOTE}",
    ]


async def test_map_changes_take_no_reload_and_no_configuration() -> None:
    api = FakeDataplaneApi()
    await writes_of(api, generation(hosts="one.example.com app\ntwo.example.com app\n"))
    desired = generation(hosts="one.example.com other\nthree.example.com app\n")

    writes = await writes_of(api, desired)

    assert api.loads == 1
    assert runs(api, desired)
    assert set(writes) == {
        f"PUT {NOTE}",
        "DELETE runtime/maps/host.map/entries/two.example.com",
        "PUT runtime/maps/host.map/entries/one.example.com",
        "POST runtime/maps/host.map/entries",
        "PUT storage/maps/host.map",
    }


async def test_large_map_change_replaces_the_map_at_once() -> None:
    api = FakeDataplaneApi()
    await writes_of(api, generation())
    desired = generation(hosts="".join(f"host-{index}.example.com app\n" for index in range(300)))

    writes = await writes_of(api, desired)

    assert writes == [f"PUT {NOTE}", "PUT runtime/maps/host.map", "PUT storage/maps/host.map", f"PUT {NOTE}"]
    assert api.loads == 1
    assert runs(api, desired)


async def test_large_map_that_becomes_empty_is_cleared() -> None:
    api = FakeDataplaneApi()
    await writes_of(api, generation(hosts="".join(f"host-{index}.example.com app\n" for index in range(300))))
    desired = generation(hosts="")

    writes = await writes_of(api, desired)

    assert writes == [f"PUT {NOTE}", "DELETE runtime/maps/host.map", "PUT storage/maps/host.map", f"PUT {NOTE}"]
    assert api.loads == 1
    assert runs(api, desired)


async def test_keys_that_no_path_can_hold_are_changed_with_their_whole_map() -> None:
    api = FakeDataplaneApi()
    await writes_of(api, generation(hosts="*.example.com app\nwww.example.com app\n"))
    desired = generation(hosts="*.example.com other\nwww.example.com other\n")

    writes = await writes_of(api, desired)

    assert writes[1:3] == ["PUT runtime/maps/host.map", "PUT storage/maps/host.map"]
    assert api.loads == 1
    assert runs(api, desired)


async def test_keys_with_slashes_are_one_segment_of_the_path() -> None:
    api = FakeDataplaneApi()
    await writes_of(api, generation(hosts="example.com/a app\n"))
    desired = generation(hosts="example.com/a other\n")

    assert "PUT runtime/maps/host.map/entries/example.com%2Fa" in await writes_of(api, desired)
    assert api.loads == 1
    assert runs(api, desired)


async def test_values_that_could_be_read_as_more_than_a_word_are_left_to_a_reload() -> None:
    api = FakeDataplaneApi()
    await writes_of(api, generation())
    desired = generation(hosts="app.example.com app;shutdown\n")

    writes = await writes_of(api, desired)

    assert api.loads == 2
    assert runs(api, desired)
    assert not [write for write in writes if "runtime" in write]


async def test_weights_that_an_older_api_ignores_are_left_to_a_reload() -> None:
    api = FakeDataplaneApi()
    api.knows_weights = False
    await writes_of(api, generation())
    desired = generation(servers=("a 127.0.0.1:9101 check weight 9", "b 127.0.0.1:9102 check"))

    async with open_endpoint(api) as endpoint:
        result = await sync_endpoint(endpoint, desired)

    assert result.reloaded
    assert "patch refused" in result.reasons[0]
    assert runs(api, desired)


async def test_scheduled_reloads_are_followed_to_their_end(autojump_clock: object) -> None:
    api = FakeDataplaneApi()
    desired = generation(files=(crt_list("list.txt", "a.pem"), certificate("a.pem", pem("a.example.com"))))

    async with open_endpoint(api, schedules_reloads=True) as endpoint:
        await endpoint.activate(desired)
        assert api.loads == 1
        assert runs(api, desired)
        assert (await endpoint.fetch_running()) is not None


async def test_drifted_file_is_found_and_mended() -> None:
    api = FakeDataplaneApi()
    desired = generation(files=(general("503.http", "busy\n"), certificate("a.pem", pem("a.example.com"))))
    await writes_of(api, desired)
    api.stores["general"]["503.http"] = b"changed by hand\n"
    api.stores["ssl_certificates"]["a.pem"] = pem("b.example.com")

    async with open_endpoint(api) as endpoint:
        running = await endpoint.fetch_running()
        assert running is not None
        assert running.files[f"{ROOT}/general/503.http"].content == b"changed by hand\n"
        await sync_endpoint(endpoint, desired)

    assert runs(api, desired)


async def test_removed_file_is_found_and_put_back() -> None:
    api = FakeDataplaneApi()
    desired = generation(files=(general("503.http", "busy\n"),))
    await writes_of(api, desired)
    del api.stores["general"]["503.http"]

    await writes_of(api, desired)

    assert runs(api, desired)


async def test_configuration_that_others_have_changed_is_loaded_anew() -> None:
    api = FakeDataplaneApi()
    desired = generation()
    await writes_of(api, desired)
    api.replace(api.text.replace("roundrobin", "leastconn"))

    async with open_endpoint(api) as endpoint:
        assert await endpoint.fetch_running() is None
        with pytest.raises(PatchRefusedError):
            await endpoint.patch(desired, Plan())
        assert (await sync_endpoint(endpoint, desired)).reloaded

    assert runs(api, desired)


async def test_new_crt_list_does_not_cost_a_reload_of_its_own(autojump_clock: object) -> None:
    api = FakeDataplaneApi()

    await writes_of(api, generation(files=(crt_list("list.txt", "a.pem"), certificate("a.pem", pem("a.example.com")))))

    assert api.loads == 1
    assert api.list_reloads()[-1]["status"] == "succeeded"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ((make_file(FileKind.MAP, f"{ROOT}/maps/hosts.txt", "a b\n"),), "has to end with .map"),
        ((general("../x", "y"), general("x", "z")), "the API cannot tell it from"),
        ((general("haptic-trio.json", "{}"),), "this name is taken"),
        ((general("two words", "y"),), "a name may have"),
    ],
)
async def test_files_that_the_api_cannot_keep_are_refused_before_anything_is_written(
    files: tuple[object, ...], words: str
) -> None:
    api = FakeDataplaneApi()

    async with open_endpoint(api) as endpoint:
        with pytest.raises(DeploymentRefusedError, match=words):
            await endpoint.activate(generation(files=files))  # type: ignore[arg-type]  # pytest's parameters have no type

    assert api.writes == []


async def test_file_that_the_configuration_would_not_find_is_refused_and_removed() -> None:
    api = FakeDataplaneApi()
    misplaced = make_file(FileKind.FILE, "/somewhere/else/503.http", "busy\n")

    async with open_endpoint(api) as endpoint:
        with pytest.raises(DeploymentRefusedError, match=f"the API keeps it as {ROOT}/general/503.http"):
            await endpoint.activate(generation(files=(misplaced,)))

    assert "503.http" not in api.stores["general"]
    assert api.loads == 0


async def test_relative_paths_are_taken_as_below_the_default_directory() -> None:
    api = FakeDataplaneApi()
    file = make_file(FileKind.FILE, "general/503.http", "busy\n")

    await writes_of(api, generation(files=(file,)))

    assert api.stores["general"]["503.http"] == b"busy\n"


async def test_runtime_part_of_a_change_goes_ahead_of_its_reload() -> None:
    api = FakeDataplaneApi()
    former, desired = generation(), generation(balance="leastconn", hosts=HOSTS + "c.example.com app\n")
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, former)
        loads = api.loads
        result = await sync_endpoint(endpoint, desired, verify=True)

    assert (result.reloaded, result.operations, api.loads) == (True, 1, loads + 1)
    assert runs(api, desired)
    assert api.violations == []


async def test_process_is_not_read_back() -> None:
    api = FakeDataplaneApi()
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, generation())
        api.calls.clear()
        assert await endpoint.repair() == DriftReport()

    assert api.calls == []
