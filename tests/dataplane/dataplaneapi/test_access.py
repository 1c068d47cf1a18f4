"""A Data Plane API that hangs, floods, does not know us, or is none."""

import base64

import httpx
import pytest
import structlog.testing
import trio
import trio.testing
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from haptic_trio.dataplane.dataplaneapi.client import (
    ApiAccessError,
    ApiAnswerError,
    ApiStatusError,
    ApiUnsupportedError,
    Credentials,
    open_api_client,
)
from haptic_trio.dataplane.dataplaneapi.config import RELOAD_LIMIT
from haptic_trio.dataplane.endpoint import (
    DeploymentRejectedError,
    EndpointError,
    EndpointTimeoutError,
    EndpointUnreachableError,
)
from tests.support.dataplaneapi.builders import (
    CREDENTIALS,
    deploy,
    general,
    generation,
    open_client,
    open_endpoint,
)
from tests.support.dataplaneapi.server import PASSWORD, FakeDataplaneApi, answers, hang, rejection


async def test_wrong_password_is_reported_without_it() -> None:
    api = FakeDataplaneApi()
    wrong = Credentials(username="root-of-all", password="wrong-and-secret")

    async with open_endpoint(api, credentials=wrong) as endpoint:
        with structlog.testing.capture_logs() as logs, pytest.raises(ApiAccessError) as caught:
            await endpoint.activate(generation())

    shown = f"{caught.value!r} {caught.value.__cause__!r} {logs} {wrong!r} {endpoint!r}"
    assert "401 unauthorized" in shown
    assert "root-of-all" not in shown
    assert "wrong-and-secret" not in shown
    assert PASSWORD not in repr(CREDENTIALS)


@pytest.mark.parametrize("status", [400, 401, 500, 503])
@pytest.mark.parametrize("is_json", [True, False])
async def test_answer_that_repeats_the_request_does_not_show_its_credentials(status: int, *, is_json: bool) -> None:
    async def repeat(request: Request) -> Response:
        await trio.lowlevel.checkpoint()
        header = request.headers["authorization"]
        sent = f"who is {header} ({base64.b64decode(header.partition(' ')[2]).decode()})?"
        return JSONResponse({"message": sent}, status) if is_json else Response(sent, status)

    credentials = Credentials(username="admin", password="MARK \u00e4 7f3a9c")
    transport = httpx.ASGITransport(Starlette(routes=[Route("/v3/info", repeat)]))
    async with open_api_client("pod-1", "http://api.test", credentials, transport=transport) as client:
        with pytest.raises(EndpointError, match=rf": {status} who is Basic \u2026 \(admin:\u2026\)\?$"):
            await client.get("/info")


async def test_an_error_about_an_entry_shows_neither_its_key_nor_what_the_api_quotes() -> None:
    api = FakeDataplaneApi()
    api.before = answers("PUT", "runtime/maps/m.map/entries/S3CRET", rejection(400, "no 'S3CRET' in the map"))

    async with open_client(api) as client:
        with pytest.raises(ApiStatusError) as caught:
            await client.send("PUT", "runtime/maps/m.map/entries/S3CRET", json={"value": "S3CRET"})

    assert str(caught.value) == ("pod-1: PUT /v3/services/haproxy/runtime/maps/m.map/entries/…: 400 no '…' in the map")


async def test_address_with_credentials_is_not_taken() -> None:
    with pytest.raises(ValueError, match="must not hold credentials") as caught:
        async with open_api_client("pod-1", "http://admin:secret@api.test", CREDENTIALS):
            pass

    assert "secret@" not in str(caught.value)


async def test_slow_api_is_given_up(autojump_clock: object) -> None:
    api = FakeDataplaneApi()
    api.before = hang

    async with open_endpoint(api) as endpoint:
        with pytest.raises(EndpointTimeoutError, match="no answer within 30 s"):
            await endpoint.describe()


async def test_reload_that_never_ends_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    api = FakeDataplaneApi()
    api.reload_delay = 10 * RELOAD_LIMIT

    async with open_endpoint(api, schedules_reloads=True) as endpoint:
        with pytest.raises(EndpointTimeoutError, match="did not finish within 60 s"):
            await endpoint.activate(generation())
        assert await endpoint.fetch_running() is None


async def test_file_that_cannot_be_read_is_one_error() -> None:
    api = FakeDataplaneApi()
    await deploy(api, generation(files=tuple(general(f"{index}.http", "busy\n") for index in range(20))))
    api.before = answers("GET", "storage/general/1", rejection(503, "gone"), times=9)

    async with open_endpoint(api) as endpoint:
        with pytest.raises(EndpointUnreachableError, match="gone"):
            await endpoint.fetch_running()


async def test_limit_of_the_caller_ends_a_call(autojump_clock: object) -> None:
    api = FakeDataplaneApi()
    api.before = hang

    async with open_endpoint(api) as endpoint:
        with trio.move_on_after(1) as scope:
            await endpoint.fetch_running()

    assert scope.cancelled_caught


async def test_huge_answer_is_not_read_to_its_end() -> None:
    api = FakeDataplaneApi()
    api.before = answers("GET", "/info", Response(b"x" * 5000))

    async with open_client(api, answer_bytes=4096) as client:
        with pytest.raises(ApiAnswerError, match="the answer has more than 4096 bytes"):
            await client.get("/info")


async def test_encoded_answer_is_rejected() -> None:
    api = FakeDataplaneApi()
    api.before = answers("GET", "/info", Response(b"\x1f\x8b", headers={"Content-Encoding": "gzip"}))

    async with open_client(api) as client:
        with pytest.raises(ApiAnswerError, match="an encoding that was not requested"):
            await client.get("/info")


@pytest.mark.parametrize("body", [b"<html>", b'{"info": []}', b"", b'{"api": "\xff"}', b'{"x":' + b"[" * 20_000])
async def test_answer_that_is_not_json_of_that_shape_is_rejected(body: bytes) -> None:
    api = FakeDataplaneApi()
    api.before = answers("GET", "/info", Response(body))

    async with open_endpoint(api) as endpoint:
        with pytest.raises(ApiAnswerError, match="/info"):
            await endpoint.describe()


async def test_error_with_very_many_levels_is_an_error_with_its_status() -> None:
    api = FakeDataplaneApi()
    api.before = answers("GET", "/info", Response(b'{"x":' + b"[" * 20_000, status_code=500))

    async with open_endpoint(api) as endpoint:
        with pytest.raises(ApiStatusError, match="500"):
            await endpoint.describe()


async def test_older_api_version_is_rejected() -> None:
    api = FakeDataplaneApi()
    api.base = "/v2"

    async with open_endpoint(api) as endpoint:
        with pytest.raises(ApiUnsupportedError, match="not a Data Plane API v3"):
            await endpoint.fetch_running()


@pytest.mark.parametrize(
    ("version", "is_taken", "is_warned"),
    [
        ("2.6.12", False, False),
        ("2.8.25-5cf5d0683", True, False),
        ("3.2.0", True, False),
        ("3.4.7", True, False),
        ("3.5-dev5", True, True),
        ("", False, False),
    ],
)
async def test_versions_from_2_8_on_are_taken(version: str, is_taken: bool, is_warned: bool) -> None:
    api = FakeDataplaneApi()
    api.haproxy_version = version

    async with open_endpoint(api) as endpoint:
        with structlog.testing.capture_logs() as logs:
            if is_taken:
                assert (await endpoint.describe()).version == version.partition("-")[0]
            else:
                with pytest.raises(ApiUnsupportedError, match=r"is not supported, 2\.8 or later is"):
                    await endpoint.describe()

    assert [log["event"] for log in logs] == ["haproxy is newer than the newest supported version"] * is_warned


async def test_api_that_does_not_reach_its_haproxy_is_asked_again_later() -> None:
    api = FakeDataplaneApi()
    words = {
        "error": "dial unix /run/haproxy.sock: connect: no such file or directory",
        "runtimeAPI": "/run/haproxy.sock",
    }
    api.before = answers("GET", "runtime/info", JSONResponse(words))

    async with open_endpoint(api) as endpoint:
        with pytest.raises(EndpointUnreachableError, match="does not reach HAProxy: dial unix"):
            await endpoint.describe()
        assert (await endpoint.describe()).version == "2.8.25"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, ApiAccessError),
        (403, ApiAccessError),
        (429, EndpointUnreachableError),
        (500, ApiStatusError),
        (502, EndpointUnreachableError),
        (503, EndpointUnreachableError),
        (504, EndpointUnreachableError),
    ],
)
async def test_each_status_has_an_error_of_its_own_that_quotes_the_api(status: int, error: type[Exception]) -> None:
    api = FakeDataplaneApi()
    api.before = answers("GET", "configuration/raw", rejection(status, "in its own words"))

    async with open_endpoint(api) as endpoint:
        with pytest.raises(
            error, match=rf"^pod-1: GET /v3/services/haproxy/configuration/raw: {status} in its own words"
        ):
            await endpoint.fetch_running()


async def test_file_that_is_too_large_for_the_api_is_rejected_with_its_words() -> None:
    api = FakeDataplaneApi()
    message = "request body exceeds the maximum allowed size of 4 bytes"
    api.before = answers("POST", "storage/maps", rejection(413, message))

    async with open_endpoint(api) as endpoint:
        with pytest.raises(DeploymentRejectedError, match=rf"maps/host\.map: {message}"):
            await endpoint.activate(generation())
