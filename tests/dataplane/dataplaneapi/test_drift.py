"""Drift of a process behind a Data Plane API is found, counted and repaired."""

from collections.abc import Callable

import pytest
import structlog.testing
import trio
from starlette.responses import Response

from haptic_trio.dataplane.endpoint import DriftReport, EndpointUnreachableError
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import Generation
from tests.support.dataplaneapi.builders import (
    certificate,
    crt_list,
    deploy,
    general,
    generation,
    open_endpoint,
    pem,
    relative_generation,
    renewed,
    runs,
)
from tests.support.dataplaneapi.server import Call, FakeDataplaneApi, answers, rejection
from tests.support.dataplaneapi.state import ROOT

HTTPS = f"frontend https from base\n  bind 127.0.0.1:18443 ssl crt-list {ROOT}/ssl/list.txt strict-sni\n"
SERVERS = ("a 127.0.0.1:9101", "b 127.0.0.1:9102 weight 20", "c 127.0.0.1:9103 disabled")
FILES = (
    certificate("a.pem", pem("a.example.com")),
    certificate("b.pem", pem("b.example.com")),
    crt_list("list.txt", "a.pem", "b.pem"),
    general("503.http", "busy\n"),
)


def site() -> Generation:
    """Return a generation with all that can drift."""
    return generation(servers=SERVERS, extra=HTTPS, files=FILES)


def server(name: str, **values: object) -> Callable[[FakeDataplaneApi], None]:
    """Return what changes a server."""
    return lambda api: api.process.servers["app", name].update(values)


Harm = Callable[[FakeDataplaneApi], object]


@pytest.mark.parametrize(
    ("harm", "found"),
    [
        (server("a", address="127.0.0.9"), {"server": 1}),
        (server("a", port=9999), {"server": 1}),
        (server("b", weight=3, uweight=3), {"server": 1}),
        (server("a", admin_state="drain"), {"server": 1}),
        (server("c", admin_state="ready"), {"server": 1}),
        (lambda api: api.process.servers.pop(("app", "a")), {"server": 1}),
        (lambda api: api.process.maps["host.map"].append(("evil.example.com", "app")), {"map": 1}),
        (lambda api: api.process.maps["host.map"].clear(), {"map": 1}),
        (
            lambda api: api.process.certificates.update({f"{ROOT}/ssl/a.pem": renewed("a.example.com")}),
            {"certificate": 1},
        ),
        (lambda api: api.process.crt_lists[f"{ROOT}/ssl/list.txt"].pop(), {"crt-list": 1}),
    ],
)
async def test_process_changed_by_others_is_repaired_without_a_reload(harm: Harm, found: dict[str, int]) -> None:
    api = FakeDataplaneApi()
    desired = site()
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, desired)
        assert await endpoint.repair() == DriftReport()
        harm(api)
        result = await sync_endpoint(endpoint, desired, verify=True)
        again = await sync_endpoint(endpoint, desired, verify=True)

    assert (result.drift, result.reloaded, api.loads) == (found, False, 1)
    assert result.operations >= 1
    assert again.changed is False
    assert runs(api, desired)
    assert api.violations == []


async def test_server_that_others_have_added_is_deleted() -> None:
    api = FakeDataplaneApi()
    desired = site()
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, desired)
        api.process.servers["app", "x"] = {**api.process.servers["app", "a"], "name": "x"}
        report = await endpoint.repair()

    assert report == DriftReport(found={"server": 1}, operations=1)
    assert runs(api, desired)


@pytest.mark.parametrize(
    ("harm", "found"),
    [
        (lambda api: api.replace(api.text.replace("roundrobin", "leastconn")), {"files": 1}),
        (lambda api: api.stores["maps"].update({"host.map": b"x y\n"}), {"files": 1}),
        (lambda api: api.stores["ssl_certificates"].update({"a.pem": renewed("a.example.com")}), {"files": 1}),
        (lambda api: api.stores["general"].clear() or api.stores["general"].update(api.kept), {"files": 1}),
        (lambda api: api.process.backends.remove("other"), {"backend": 1}),
        (lambda api: api.process.maps.pop("host.map"), {"map": 1}),
    ],
)
async def test_difference_without_a_request_is_repaired_by_a_load(harm: Harm, found: dict[str, int]) -> None:
    api = FakeDataplaneApi()
    desired = site()
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, desired)
        api.kept = {name: content for name, content in api.stores["general"].items() if name != "503.http"}
        harm(api)
        result = await sync_endpoint(endpoint, desired, verify=True)
        again = await sync_endpoint(endpoint, desired, verify=True)

    assert (result.drift, result.reloaded, api.loads) == (found, True, 2)
    assert again.changed is False
    assert runs(api, desired)
    assert api.violations == []


async def test_difference_that_remains_after_a_reload_is_reported_once() -> None:
    class Stubborn(FakeDataplaneApi):
        def boot(self) -> None:
            super().boot()
            self.process.backends = [name for name in self.process.backends if name != "other"]

    api = Stubborn()
    desired = site()
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, desired)
        with structlog.testing.capture_logs() as logs:
            first = await sync_endpoint(endpoint, desired, verify=True)
            second = await sync_endpoint(endpoint, desired, verify=True)

    assert first.reloaded
    assert not second.reloaded or api.loads == 2
    assert second.drift == {}
    assert [log["what"] for log in logs if "remains after a reload" in log["event"]] == [["backend other removed"]]


@pytest.mark.parametrize("status", ["MAINT (via app/a)", "MAINT (resolution)", "UP 1/3", "DOWN", "no check"])
async def test_what_haproxy_does_by_itself_is_not_drift(status: str) -> None:
    api = FakeDataplaneApi()
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, site())
        api.process.servers["app", "a"]["status"] = status
        # A slow start: the weight in effect is less than the one that was given.
        api.process.servers["app", "b"]["weight"] = 4
        assert await endpoint.repair() == DriftReport()
    assert api.violations == []


async def test_comparison_takes_one_request_for_all_servers() -> None:
    api = FakeDataplaneApi()
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, site())
        api.calls.clear()
        await endpoint.repair()

    assert not [call for call in api.calls if call.path.startswith("runtime/backends")]
    assert api.writes == []


async def test_what_was_read_for_drift_serves_the_comparison_after_it_but_not_for_long(autojump_clock: object) -> None:
    api = FakeDataplaneApi()
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, site())
        api.calls.clear()
        await sync_endpoint(endpoint, site(), verify=True)
        assert [str(call) for call in api.calls].count("GET configuration/raw") == 1

        await endpoint.repair()
        await trio.sleep(5)
        api.replace(api.text.replace("roundrobin", "leastconn"))
        assert await endpoint.fetch_running() is None


async def test_map_that_the_api_cannot_show_is_not_compared() -> None:
    api = FakeDataplaneApi()
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, generation(hosts="app.example.com one two\n"))
        api.process.maps["host.map"].clear()
        assert await endpoint.repair() == DriftReport()


async def test_list_of_an_acl_is_not_compared_and_its_change_reloads() -> None:
    api = FakeDataplaneApi()
    name = "deny.txt"
    rule = (
        f"frontend other from base\n  bind 127.0.0.1:18444\n  http-request deny if {{ src -f {ROOT}/general/{name} }}\n"
    )
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, generation(extra=rule, files=(general(name, "10.0.0.1\n"),)))
        assert await endpoint.repair() == DriftReport()
        loads = api.loads

        result = await sync_endpoint(endpoint, generation(extra=rule, files=(general(name, "10.0.0.2\n"),)))

    assert (result.reloaded, api.loads) == (True, loads + 1)
    assert api.stores["general"][name] == b"10.0.0.2\n"


async def test_empty_map_that_is_not_found_is_not_drift() -> None:
    api = FakeDataplaneApi()
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, generation(hosts=""))
        assert await endpoint.repair() == DriftReport()


async def test_api_that_does_not_show_certificates_is_not_asked_for_them() -> None:
    api = FakeDataplaneApi()
    api.knows_certificates = False
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, site())
        api.process.certificates.clear()
        assert await endpoint.repair() == DriftReport()


async def test_certificates_of_another_controller_are_not_compared() -> None:
    api = FakeDataplaneApi()
    await deploy(api, site())
    api.process.certificates[f"{ROOT}/ssl/a.pem"] = renewed("a.example.com")

    async with open_endpoint(api) as endpoint:
        assert await endpoint.repair() == DriftReport()


async def test_relative_paths_are_compared_by_the_paths_of_the_api() -> None:
    api = FakeDataplaneApi()
    files = (certificate("a.pem", pem("a.example.com")), crt_list("list.txt", "a.pem"))
    desired = relative_generation(extra=HTTPS, files=files)
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, desired)
        assert await endpoint.repair() == DriftReport()
        api.process.certificates[f"{ROOT}/ssl/a.pem"] = renewed("a.example.com")
        api.process.maps["host.map"].clear()
        assert (await endpoint.repair()).found == {"certificate": 1, "map": 1}
        assert await endpoint.repair() == DriftReport()

    assert api.process.certificates[f"{ROOT}/ssl/a.pem"] == pem("a.example.com")


async def test_process_that_cannot_be_observed_is_neither_drift_nor_failure() -> None:
    api = FakeDataplaneApi()
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, site())
        api.before = answers("GET", "stats/native", rejection(500, "no socket"))
        with structlog.testing.capture_logs() as logs:
            assert await endpoint.repair() == DriftReport()
        assert "process cannot be observed" in [log["event"] for log in logs]
        api.before = answers("GET", "stats/native", rejection(503, "starting"))
        with pytest.raises(EndpointUnreachableError):
            await endpoint.repair()


async def test_repair_that_is_rejected_is_a_reason_to_load() -> None:
    api = FakeDataplaneApi()
    desired = site()

    async def reject(call: Call) -> Response | None:
        is_meant = call.method == "PUT" and call.path.startswith("runtime/backends")
        return rejection(500, "no room") if is_meant else None

    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, desired)
        api.process.servers["app", "a"]["admin_state"] = "drain"
        api.before = reject
        result = await sync_endpoint(endpoint, desired, verify=True)

    assert result.reloaded
    assert "repair rejected" in result.reasons[0]
    assert runs(api, desired)


async def test_nothing_is_compared_if_the_running_generation_is_unknown() -> None:
    api = FakeDataplaneApi()

    async with open_endpoint(api) as endpoint:
        assert await endpoint.repair() == DriftReport()

    assert api.writes == []
