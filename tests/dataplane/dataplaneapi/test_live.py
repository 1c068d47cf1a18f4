"""Changes that a process behind a Data Plane API takes without a reload."""

import pytest
from starlette.responses import Response

from haptic_trio.dataplane.dataplaneapi.storage import MANIFEST
from haptic_trio.dataplane.endpoint import DriftReport
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import AuxFile, Generation
from tests.support.dataplaneapi.builders import (
    HOSTS,
    certificate,
    crt_list,
    generation,
    is_as_loaded,
    open_endpoint,
    pem,
    relative_generation,
    renewed,
    runs,
    writes_of,
)
from tests.support.dataplaneapi.server import Call, FakeDataplaneApi, answers, rejection
from tests.support.dataplaneapi.state import ROOT

NOTE = f"storage/{MANIFEST}"


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


async def test_many_changes_of_a_map_are_made_entry_by_entry() -> None:
    api = FakeDataplaneApi()
    await writes_of(api, generation())
    desired = generation(hosts="".join(f"host-{index}.example.com app\n" for index in range(300)))

    writes = await writes_of(api, desired)

    entries = "runtime/maps/host.map/entries"
    assert writes == [
        f"PUT {NOTE}",
        *[f"POST {entries}"] * 300,
        f"DELETE {entries}/app.example.com",
        "PUT storage/maps/host.map",
        f"PUT {NOTE}",
    ]
    assert api.loads == 1
    assert runs(api, desired)


async def test_more_changes_than_a_reload_takes_are_left_to_one() -> None:
    api = FakeDataplaneApi()
    await writes_of(api, generation())
    desired = generation(hosts="".join(f"host-{index}.example.com app\n" for index in range(600)))

    writes = await writes_of(api, desired)

    assert api.loads == 2
    assert runs(api, desired)
    assert not [write for write in writes if "runtime" in write]


@pytest.mark.parametrize(
    "hosts",
    [
        # No path of a request can hold the key.
        "*.example.com other\nwww.example.com other\n",
        # The map has a key twice.
        "*.example.com app\nwww.example.com app\nwww.example.com other\n",
    ],
)
async def test_maps_that_are_not_changed_entry_by_entry_are_left_to_a_reload(hosts: str) -> None:
    api = FakeDataplaneApi()
    await writes_of(api, generation(hosts="*.example.com app\nwww.example.com app\n"))
    desired = generation(hosts=hosts)

    writes = await writes_of(api, desired)

    assert api.loads == 2
    assert runs(api, desired)
    assert not [write for write in writes if "runtime" in write]


async def test_wildcards_come_without_a_reload() -> None:
    api = FakeDataplaneApi()
    await writes_of(api, generation())
    desired = generation(hosts=f"{HOSTS}*.example.com|/a app\n")

    assert "POST runtime/maps/host.map/entries" in await writes_of(api, desired)
    assert api.loads == 1
    assert runs(api, desired)


async def test_entry_that_the_api_does_not_find_after_a_set_is_read_back() -> None:
    api = FakeDataplaneApi()
    await writes_of(api, generation(hosts="a=b app\n"))
    desired = generation(hosts="a=b other\n")

    async def set_and_not_find(call: Call) -> Response | None:
        if not (call.method == "PUT" and call.path.endswith("entries/a%3Db")):
            return None
        api.process.maps["host.map"] = [("a=b", "other")]
        return rejection(404, "a=b not found")

    api.before = set_and_not_find
    await writes_of(api, desired)

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
    assert "patch rejected" in result.reasons[0]
    assert runs(api, desired)


async def test_maps_with_relative_paths_change_without_a_reload() -> None:
    api = FakeDataplaneApi()
    await writes_of(api, relative_generation())

    writes = await writes_of(api, relative_generation(hosts="app.example.com other\n"))

    assert "PUT runtime/maps/host.map/entries/app.example.com" in writes
    assert api.loads == 1
    assert is_as_loaded(api)


async def test_servers_come_and_go_without_a_reload() -> None:
    api = FakeDataplaneApi()
    await writes_of(api, generation(servers=("a 127.0.0.1:9101 weight 5", "b 127.0.0.1:9102")))
    desired = generation(
        servers=("a 127.0.0.1:9101 weight 5", "c 127.0.0.3:9103 maxconn 30 backup", "d [::1]:9104 weight 7 disabled")
    )

    writes = await writes_of(api, desired)

    assert api.loads == 1
    assert runs(api, desired)
    assert writes[1:-2] == [
        "POST runtime/backends/app/servers",
        "POST runtime/backends/app/servers",
        "PUT runtime/backends/app/servers/c",
        "DELETE runtime/backends/app/servers/b",
    ]


async def test_servers_with_checks_are_left_to_a_reload() -> None:
    api = FakeDataplaneApi()
    await writes_of(api, generation())
    desired = generation(servers=("a 127.0.0.1:9101 check", "b 127.0.0.1:9102 check", "c 127.0.0.1:9103 check"))

    writes = await writes_of(api, desired)

    assert api.loads == 2
    assert runs(api, desired)
    assert not [write for write in writes if "runtime" in write]


async def test_server_in_use_stays_in_maintenance_until_nothing_uses_it(autojump_clock: object) -> None:
    api = FakeDataplaneApi()
    await writes_of(api, generation(servers=("a 127.0.0.1:9101", "b 127.0.0.1:9102")))
    api.process.busy.add(("app", "b"))
    desired = generation(servers=("a 127.0.0.1:9101",))

    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, desired)
        assert api.process.servers["app", "b"]["admin_state"] == "maint"
        assert await endpoint.repair() == DriftReport()
        api.process.busy.clear()
        assert await endpoint.repair() == DriftReport()

    assert api.loads == 1
    assert runs(api, desired)
    assert api.violations == []


async def test_certificate_is_replaced_in_the_process_without_a_reload() -> None:
    api = FakeDataplaneApi()
    https = f"frontend https from base\n  bind 127.0.0.1:18443 ssl crt-list {ROOT}/ssl/list.txt\n"
    listed = crt_list("list.txt", "a.pem")
    former = generation(extra=https, files=(certificate("a.pem", pem("a.example.com")), listed))
    desired = generation(extra=https, files=(certificate("a.pem", renewed("a.example.com")), listed))
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, former)
        api.calls.clear()
        result = await sync_endpoint(endpoint, desired)

    assert not result.reloaded
    assert api.loads == 1
    assert "PUT runtime/ssl_certs/%2Fetc%2Fhaproxy-test%2Fssl%2Fa.pem" in api.writes
    assert runs(api, desired)
    assert api.violations == []


def https(*names: str) -> Generation:
    """Return a generation with a certificate for each of *names*."""
    text, files = https_parts(*names)
    return generation(extra=text, files=files)


def https_parts(*names: str) -> tuple[str, tuple[AuxFile, ...]]:
    """Return text and files of a frontend with a certificate for each of *names*."""
    text = f"frontend https from base\n  bind 127.0.0.1:18443 ssl crt-list {ROOT}/ssl/list.txt\n"
    files = [certificate(f"{name}.pem", pem(f"{name}.example.com")) for name in names]
    return text, (*files, crt_list("list.txt", *(f"{name}.pem" for name in names)))


async def test_certificates_come_and_go_without_a_reload() -> None:
    api = FakeDataplaneApi()
    await writes_of(api, https("a", "b"))

    writes = await writes_of(api, https("a", "c"))

    assert api.loads == 1
    assert runs(api, https("a", "c"))
    assert list(api.process.certificates) == [f"{ROOT}/ssl/a.pem", f"{ROOT}/ssl/c.pem"]
    assert writes == [
        f"PUT {NOTE}",
        "POST storage/ssl_certificates",
        "POST runtime/ssl_crt_lists/entries",
        "DELETE runtime/ssl_crt_lists/entries",
        "DELETE runtime/ssl_certs/%2Fetc%2Fhaproxy-test%2Fssl%2Fb.pem",
        "PUT storage/ssl_crt_lists/list.txt",
        f"PUT {NOTE}",
        "DELETE storage/ssl_certificates/b.pem",
        f"PUT {NOTE}",
    ]


async def test_certificates_with_relative_paths_come_and_go_without_a_reload() -> None:
    api = FakeDataplaneApi()
    first, second = (
        relative_generation(extra=one[0], files=one[1]) for one in (https_parts("a", "b"), https_parts("a"))
    )
    await writes_of(api, first)

    writes = await writes_of(api, second)

    assert api.loads == 1
    assert list(api.process.certificates) == [f"{ROOT}/ssl/a.pem"]
    assert is_as_loaded(api)
    assert [one for one in writes if "runtime/" in one] == [
        "DELETE runtime/ssl_crt_lists/entries",
        "DELETE runtime/ssl_certs/%2Fetc%2Fhaproxy-test%2Fssl%2Fb.pem",
    ]


async def test_api_that_leaves_new_certificates_to_a_reload_is_asked_once(autojump_clock: object) -> None:
    api = FakeDataplaneApi()
    api.takes_certificates = False
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, https("a"))
        assert (await sync_endpoint(endpoint, https("a", "b"))).reloaded
        # What was scheduled has become part of the reload.
        assert api.loads == 2
        assert runs(api, https("a", "b"))

        api.calls.clear()
        assert (await sync_endpoint(endpoint, https("a", "b", "c"))).reloaded

    assert api.loads == 3
    assert runs(api, https("a", "b", "c"))
    pushed = [call for call in api.calls if str(call) == "POST storage/ssl_certificates"]
    assert [call.params for call in pushed] == [{"skip_reload": "true"}]
    assert api.violations == []


async def test_certificates_are_left_to_a_reload_where_the_api_does_not_show_those_of_the_process() -> None:
    api = FakeDataplaneApi()
    api.knows_certificates = False
    await writes_of(api, https("a"))

    await writes_of(api, https("a", "b"))

    assert api.loads == 2
    assert runs(api, https("a", "b"))


async def test_certificate_that_is_rejected_leaves_the_change_to_a_load() -> None:
    api = FakeDataplaneApi()
    await writes_of(api, https("a"))
    desired = https("a", "b")
    api.before = answers("POST", "storage/ssl_certificates", rejection(500, "no room"))

    async with open_endpoint(api) as endpoint:
        result = await sync_endpoint(endpoint, desired)

    assert result.reloaded
    assert "no room" in result.reasons[0]
    assert runs(api, desired)
