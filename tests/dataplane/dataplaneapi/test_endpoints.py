"""Endpoints of a list of Data Plane APIs: present from the start, renewed after an outage, current credentials."""

from functools import partial
from pathlib import Path

import pytest
import structlog.testing
import trio
import trio.testing
from starlette.responses import Response

from haptic_trio.dataplane import presence
from haptic_trio.dataplane.dataplaneapi import follower
from haptic_trio.dataplane.dataplaneapi.client import ApiAccessError, Credentials
from haptic_trio.dataplane.dataplaneapi.endpoints import ApiAddress, AuthoritiesError, RemoteApis
from haptic_trio.dataplane.endpoint import Endpoint
from tests.dataplane.dataplaneapi.test_network import serve
from tests.k8s.api.api_cluster import Reports
from tests.support.dataplaneapi.builders import CREDENTIALS
from tests.support.dataplaneapi.server import PASSWORD, FakeDataplaneApi, rejection
from tests.support.processes.ports import free_port


class Published:
    """The published endpoints."""

    def __init__(self) -> None:
        self.endpoints: tuple[Endpoint, ...] = ()
        self.times = 0
        self._published = trio.Event()

    def __call__(self, endpoints: tuple[Endpoint, ...]) -> None:
        self.endpoints = endpoints
        self.times += 1
        self._published.set()

    async def wait(self) -> None:
        """Return once something has been published."""
        with trio.fail_after(20):
            await self._published.wait()
        self._published = trio.Event()


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probe every 50 ms, and report silence after 100 ms."""
    monkeypatch.setattr(presence, "SILENCE_REPORTED", 0.1)
    monkeypatch.setattr(follower, "PROBE_INTERVAL", 0.05)


async def test_endpoints_are_present_from_the_start_whether_they_answer_or_not(nursery: trio.Nursery) -> None:
    addresses = [ApiAddress(name=name, url=f"http://127.0.0.1:{free_port()}") for name in ("a", "b")]

    endpoints = await nursery.start(RemoteApis(addresses, lambda: CREDENTIALS, report=Reports()).run, Published())

    assert [endpoint.name for endpoint in endpoints] == ["a", "b"]
    nursery.cancel_scope.cancel()


async def test_api_that_answers_again_is_a_new_endpoint(nursery: trio.Nursery) -> None:
    api, published = FakeDataplaneApi(), Published()
    async with serve(api) as url:
        addresses = [ApiAddress(name="a", url=url), ApiAddress(name="b", url=url)]
        with structlog.testing.capture_logs() as logs:
            first = await nursery.start(RemoteApis(addresses, lambda: CREDENTIALS, report=Reports()).run, published)
            with trio.fail_after(10):
                while len(api.calls) < 8:
                    await trio.testing.wait_all_tasks_blocked(0.01)
            assert published.times == 0

            api.before = lambda _call: reject_all()
            calls = len(api.calls)
            with trio.fail_after(10):
                while len(api.calls) < calls + 4:
                    await trio.testing.wait_all_tasks_blocked(0.01)
            api.before = None
            await published.wait()

        assert [endpoint.name for endpoint in published.endpoints] == ["a", "b"]
        assert published.endpoints != tuple(first)
        assert "data plane api does not answer" in [log["event"] for log in logs]
        nursery.cancel_scope.cancel()


async def reject_all() -> Response:
    return rejection(503, "starting")


async def test_each_request_uses_the_current_credentials(nursery: trio.Nursery) -> None:
    api, published = FakeDataplaneApi(), Published()
    held: list[Credentials | None] = [None]
    async with serve(api) as url:
        run = partial(RemoteApis([ApiAddress(name="a", url=url)], lambda: held[0], report=Reports()).run, published)
        [endpoint] = await nursery.start(run)
        with pytest.raises(ApiAccessError, match="the credentials are not known yet"):
            await endpoint.describe()
        assert api.calls == []

        held[0] = Credentials(username="admin", password="of-yesterday")
        with pytest.raises(ApiAccessError, match="401"):
            await endpoint.describe()

        held[0] = Credentials(username="admin", password=PASSWORD)
        assert (await endpoint.describe()).version == "2.8.25"
        # It was away until now.
        await published.wait()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_unusable_authorities_file_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)

    with pytest.raises(AuthoritiesError, match=r"ca\.pem"):
        RemoteApis([], lambda: CREDENTIALS, path, report=Reports())


@pytest.mark.parametrize(
    ("url", "warned"),
    [("http://192.0.2.7:5555", True), ("https://192.0.2.7:5555", False), ("http://[::1]:5555", False)],
)
async def test_password_over_plain_http_is_logged(nursery: trio.Nursery, url: str, warned: bool) -> None:
    # Without credentials nothing is sent.
    apis = RemoteApis([ApiAddress(name="a", url=url)], lambda: None, report=Reports())

    with structlog.testing.capture_logs() as logs:
        await nursery.start(apis.run, Published())

    assert ("the password goes over plain http" in [log["event"] for log in logs]) is warned
    nursery.cancel_scope.cancel()


async def test_api_that_never_answered_is_reported(nursery: trio.Nursery) -> None:
    reports, published = Reports(), Published()
    addresses = [ApiAddress(name="a", url=f"http://127.0.0.1:{free_port()}")]

    await nursery.start(RemoteApis(addresses, lambda: CREDENTIALS, report=reports).run, published)
    await reports.wait(lambda reports: "does not answer" in reports.messages)

    assert list(reports.problems) == ["Data Plane API a"]
    assert published.times == 0
    nursery.cancel_scope.cancel()
