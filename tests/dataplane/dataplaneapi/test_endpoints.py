"""A list of Data Plane APIs that come late, go away, come back, and change their password."""

from functools import partial
from pathlib import Path

import pytest
import structlog.testing
import trio
import trio.testing
from starlette.responses import Response

from haptic_trio.dataplane.dataplaneapi import endpoints as dataplaneapi_list
from haptic_trio.dataplane.dataplaneapi.client import ApiAccessError, Credentials
from haptic_trio.dataplane.dataplaneapi.endpoints import ApiAddress, AuthoritiesError, RemoteApis
from haptic_trio.dataplane.endpoint import Endpoint
from tests.dataplane.test_dataplaneapi_network import serve
from tests.support.dataplaneapi import PASSWORD, FakeDataplaneApi, refusal
from tests.support.dataplaneapi_builders import CREDENTIALS
from tests.support.ports import free_port


class Published:
    """What has been published."""

    def __init__(self) -> None:
        self.endpoints: tuple[Endpoint, ...] = ()
        self.times = 0
        self._told = trio.Event()

    def __call__(self, endpoints: tuple[Endpoint, ...]) -> None:
        self.endpoints = endpoints
        self.times += 1
        self._told.set()

    async def wait(self) -> None:
        """Return once something has been published."""
        with trio.fail_after(20):
            await self._told.wait()
        self._told = trio.Event()


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look again after 50 ms."""
    monkeypatch.setattr(dataplaneapi_list, "PROBE_INTERVAL", 0.05)


async def test_endpoints_are_there_from_the_start_whether_they_answer_or_not(nursery: trio.Nursery) -> None:
    addresses = [ApiAddress(name=name, url=f"http://127.0.0.1:{free_port()}") for name in ("a", "b")]

    endpoints = await nursery.start(RemoteApis(addresses, lambda: CREDENTIALS).run, Published())

    assert [endpoint.name for endpoint in endpoints] == ["a", "b"]
    nursery.cancel_scope.cancel()


async def test_api_that_was_away_is_another_endpoint_when_it_is_back(nursery: trio.Nursery) -> None:
    api, published = FakeDataplaneApi(), Published()
    async with serve(api) as url:
        addresses = [ApiAddress(name="a", url=url), ApiAddress(name="b", url=url)]
        with structlog.testing.capture_logs() as logs:
            first = await nursery.start(RemoteApis(addresses, lambda: CREDENTIALS).run, published)
            with trio.fail_after(10):
                while len(api.calls) < 8:
                    await trio.testing.wait_all_tasks_blocked(0.01)
            assert published.times == 0

            api.before = lambda _call: refuse_all()
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


async def refuse_all() -> Response:
    return refusal(503, "starting")


async def test_each_request_goes_with_the_credentials_of_its_moment(nursery: trio.Nursery) -> None:
    api, published = FakeDataplaneApi(), Published()
    held: list[Credentials | None] = [None]
    async with serve(api) as url:
        run = partial(RemoteApis([ApiAddress(name="a", url=url)], lambda: held[0]).run, published)
        [endpoint] = await nursery.start(run)
        with pytest.raises(ApiAccessError, match="there are no credentials yet"):
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
def test_file_of_authorities_that_is_none_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)

    with pytest.raises(AuthoritiesError, match=r"ca\.pem"):
        RemoteApis([], lambda: CREDENTIALS, path)


@pytest.mark.parametrize(
    ("url", "warned"),
    [("http://192.0.2.7:5555", True), ("https://192.0.2.7:5555", False), ("http://[::1]:5555", False)],
)
async def test_password_over_plain_http_is_warned_of(nursery: trio.Nursery, url: str, warned: bool) -> None:
    # Without credentials nothing is sent.
    apis = RemoteApis([ApiAddress(name="a", url=url)], lambda: None)

    with structlog.testing.capture_logs() as logs:
        await nursery.start(apis.run, Published())

    assert ("the password goes over plain http" in [log["event"] for log in logs]) is warned
    nursery.cancel_scope.cancel()
