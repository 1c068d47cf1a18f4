"""Deployments over a Data Plane API that executes every request."""

import json
from typing import Any

import pytest
import trio
import trustme
from starlette.responses import Response

from haptic_trio.dataplane.dataplaneapi.storage import MANIFEST
from haptic_trio.dataplane.endpoint import DeploymentRejectedError, DriftReport, PatchRejectedError
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import FileKind, Generation, make_file
from haptic_trio.haproxy.plan.operations import Plan
from tests.support.dataplaneapi.builders import (
    HOSTS,
    certificate,
    crt_list,
    general,
    generation,
    is_as_loaded,
    map_file,
    open_endpoint,
    pem,
    relative_generation,
    runs,
    writes_of,
)
from tests.support.dataplaneapi.server import Call, FakeDataplaneApi, rejection
from tests.support.dataplaneapi.state import ROOT

NOTE = f"storage/{MANIFEST}"
AUTHORITIES = trustme.CA().cert_pem.bytes()


def note_of(api: FakeDataplaneApi) -> dict[str, Any]:
    """Return the stored manifest."""
    found: dict[str, Any] = json.loads(api.stores["general"][MANIFEST.name])
    return found


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
    assert result.reasons == ("unknown generation",)
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
        f"PUT {NOTE}",
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


async def test_removed_files_are_removed_once_and_their_names_are_free_for_others() -> None:
    api = FakeDataplaneApi()
    former = generation(files=tuple(certificate(f"{name}.pem", pem(f"{name}.example.com")) for name in "ab"))
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, former)
        await sync_endpoint(endpoint, generation())
        assert api.stores["ssl_certificates"] == {}
        api.stores["ssl_certificates"]["a.pem"] = theirs = pem("theirs.example.com")
        api.calls.clear()

        await sync_endpoint(endpoint, generation(balance="leastconn"))

    assert [write for write in api.writes if write.startswith("DELETE")] == []
    assert api.stores["ssl_certificates"] == {"a.pem": theirs}
    assert note_of(api)["files"].keys() == generation().files.keys()
    assert "surplus" not in note_of(api)


async def test_removal_that_was_not_noted_leaves_what_others_store_afterwards() -> None:
    api = FakeDataplaneApi()
    await writes_of(api, generation(files=(general("503.http", "busy\n"),)))
    rejected = False

    async def reject_last_note(call: Call) -> Response | None:
        nonlocal rejected
        if str(call) == f"PUT {NOTE}" and "503.http" not in api.stores["general"]:
            rejected = True
            return rejection(500, "disk full")
        return None

    api.before = reject_last_note
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, generation())
        assert rejected
        api.before = None
        await sync_endpoint(endpoint, generation(balance="leastconn"))
        api.stores["general"]["503.http"] = b"theirs\n"
        await sync_endpoint(endpoint, generation())

    assert api.stores["general"]["503.http"] == b"theirs\n"


def many_certificates(**fields: Any) -> Generation:
    """Return a generation with 30 certificates."""
    return generation(
        files=tuple(certificate(f"c{number}.pem", pem("a.example.com")) for number in range(30)), **fields
    )


async def test_endpoint_change_inspects_no_certificate(autojump_clock: object) -> None:
    api = FakeDataplaneApi()
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, many_certificates())
        await sync_endpoint(endpoint, many_certificates(hosts="old.example.com app\n"))
        await trio.sleep(60)
        api.calls.clear()

        result = await sync_endpoint(endpoint, many_certificates(hosts="new.example.com app\n"))

    assert not result.reloaded
    assert [str(call) for call in api.calls if "storage/ssl_certificates/" in str(call)] == []
    assert len(api.calls) < 20
    assert runs(api, many_certificates(hosts="new.example.com app\n"))


@pytest.mark.parametrize("found_by", ["drift check", "reload", "removal"])
async def test_certificate_changed_by_others_is_found_before_it_is_loaded(found_by: str) -> None:
    api = FakeDataplaneApi()
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, many_certificates())
        await sync_endpoint(endpoint, many_certificates(hosts="new.example.com app\n"))
        if found_by == "removal":
            del api.stores["ssl_certificates"]["c7.pem"]
        else:
            api.stores["ssl_certificates"]["c7.pem"] = pem("theirs.example.com")

        desired = many_certificates(balance="leastconn") if found_by == "reload" else many_certificates()
        await sync_endpoint(endpoint, desired, verify=found_by == "drift check")

    assert runs(api, desired)


async def test_scheduled_reloads_are_followed_to_their_end(autojump_clock: object) -> None:
    api = FakeDataplaneApi()
    desired = generation(files=(crt_list("list.txt", "a.pem"), certificate("a.pem", pem("a.example.com"))))

    async with open_endpoint(api, schedules_reloads=True) as endpoint:
        await endpoint.activate(desired)
        assert api.loads == 1
        assert runs(api, desired)
        assert (await endpoint.fetch_running()) is not None


async def test_drifted_file_is_found_and_repaired() -> None:
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


async def test_configuration_changed_by_others_is_loaded_again() -> None:
    api = FakeDataplaneApi()
    desired = generation()
    await writes_of(api, desired)
    api.replace(api.text.replace("roundrobin", "leastconn"))

    async with open_endpoint(api) as endpoint:
        assert await endpoint.fetch_running() is None
        with pytest.raises(PatchRejectedError):
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
        ((make_file(FileKind.MAP, f"{ROOT}/maps/hosts.txt", "a b\n"),), "must end with .map"),
        ((general("a/x", "y"), general("b/x", "z")), "the API cannot distinguish it from"),
        ((general("haptic-trio.json", "{}"),), "this name is reserved"),
        ((general("two words", "y"),), "a name may have"),
    ],
)
async def test_files_that_the_api_cannot_keep_are_rejected_before_anything_is_written(
    files: tuple[object, ...], words: str
) -> None:
    api = FakeDataplaneApi()

    async with open_endpoint(api) as endpoint:
        with pytest.raises(DeploymentRejectedError, match=words):
            await endpoint.activate(generation(files=files))  # type: ignore[arg-type]  # pytest's parameters have no type

    assert api.writes == []


async def test_file_that_the_configuration_would_not_find_is_rejected_and_removed() -> None:
    api = FakeDataplaneApi()
    misplaced = make_file(FileKind.FILE, "/somewhere/else/503.http", "busy\n")

    async with open_endpoint(api) as endpoint:
        with pytest.raises(DeploymentRejectedError, match=f"the API stored it at {ROOT}/general/503.http"):
            await endpoint.activate(generation(files=(misplaced,)))

    assert "503.http" not in api.stores["general"]
    assert api.loads == 0


async def test_relative_paths_become_those_of_the_api() -> None:
    api = FakeDataplaneApi()
    files = (certificate("a.pem", pem("a.example.com")), crt_list("list.txt", "a.pem"), general("503.http", "busy\n"))
    extra = f"  bind 127.0.0.1:18443 ssl crt-list {ROOT}/ssl/list.txt\n  errorfile 503 {ROOT}/general/503.http\n"
    desired = relative_generation(extra=f"frontend https from base\n{extra}", files=files)

    await writes_of(api, desired)

    assert f"map({ROOT}/maps/host.map,other)" in api.text
    assert f"crt-list {ROOT}/ssl/list.txt" in api.text
    assert f"errorfile 503 {ROOT}/general/503.http" in api.text
    assert api.stores["ssl_crt_lists"]["list.txt"] == f"{ROOT}/ssl/a.pem\n".encode()
    assert is_as_loaded(api)
    assert await writes_of(api, desired) == []
    async with open_endpoint(api) as endpoint:
        running = await endpoint.fetch_running()
        assert running is not None
        assert running.id == desired.id


async def test_runtime_part_of_a_change_goes_ahead_of_its_reload() -> None:
    api = FakeDataplaneApi()
    former, desired = generation(), generation(balance="leastconn", hosts=HOSTS + "c.example.com other\n")
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, former)
        loads = api.loads
        result = await sync_endpoint(endpoint, desired, verify=True)

    assert (result.reloaded, result.operations, api.loads) == (True, 1, loads + 1)
    assert runs(api, desired)
    assert api.violations == []


async def test_names_that_the_api_would_change_are_given_others() -> None:
    api = FakeDataplaneApi()
    files = (
        certificate("example.com:tls.pem", pem("a.example.com")),
        crt_list("https.list", "example.com:tls.pem"),
        certificate("authorities.of.clients", AUTHORITIES),
        general("the.error.page", "busy\n"),
    )
    extra = f"  bind 127.0.0.1:18443 ssl crt-list {ROOT}/ssl/https.list ca-file {ROOT}/ssl/authorities.of.clients\n"
    extra = f"frontend https from base\n{extra}  errorfile 503 {ROOT}/general/the.error.page\n"
    former = relative_generation(extra=extra, files=files)
    desired = relative_generation(extra=extra, files=files, hosts="")

    await writes_of(api, former)
    # What an empty file would be is a request without a body.
    await writes_of(api, desired)

    assert [len(files) for files in api.stores.values()] == [1, 1, 1, 3]
    [listed] = api.stores["ssl_crt_lists"].values()
    [name] = api.stores["ssl_certificates"]
    assert listed == f"{ROOT}/ssl/{name}\n".encode()
    assert all(f"{ROOT}/general/{name}" in api.text for name in api.stores["general"] if name.endswith(("page", "s")))
    assert is_as_loaded(api)
    assert await writes_of(api, desired) == []
    async with open_endpoint(api) as endpoint:
        running = await endpoint.fetch_running()
        assert running is not None
        assert running.id == desired.id
        assert await endpoint.repair() == DriftReport()
