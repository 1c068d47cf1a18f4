"""The Data Plane API endpoint over real sockets and TLS."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import hypercorn.trio
import pytest
import trio
import trustme
from hypercorn.config import Config as ServerConfig
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from haptic_trio.dataplane.dataplaneapi.client import ApiAnswerError, open_api_client
from haptic_trio.dataplane.dataplaneapi.endpoint import open_dataplaneapi_endpoint
from haptic_trio.dataplane.endpoint import EndpointTimeoutError, EndpointUnreachableError
from haptic_trio.dataplane.sync import sync_endpoint
from tests.support.dataplaneapi.builders import CREDENTIALS, general, generation, runs
from tests.support.dataplaneapi.server import Call, FakeDataplaneApi

LIMIT = 20.0


@asynccontextmanager
async def serve(api: ASGIApp, directory: Path | None = None, authority: trustme.CA | None = None) -> AsyncIterator[str]:
    """*api* on a loopback port, over TLS with a *directory* for a certificate of *authority*; yields its address."""
    config = ServerConfig()
    config.bind = ["127.0.0.1:0"]
    config.accesslog = config.errorlog = None
    if directory is not None and authority is not None:
        issued = authority.issue_cert("127.0.0.1")
        config.certfile, config.keyfile = str(directory / "cert.pem"), str(directory / "key.pem")
        issued.cert_chain_pems[0].write_to_path(config.certfile)
        issued.private_key_pem.write_to_path(config.keyfile)
    async with trio.open_nursery() as nursery:
        serve_api = partial(hypercorn.trio.serve, api, config, mode="asgi")  # type: ignore[arg-type]
        [bound] = await nursery.start(serve_api)
        yield bound.replace("http://", "https://" if directory else "http://")
        nursery.cancel_scope.cancel()


async def test_deployment_over_tls_uses_few_connections(tmp_path: Path) -> None:
    api, authority = FakeDataplaneApi(), trustme.CA()
    context = ssl.create_default_context()
    authority.configure_trust(context)
    files = tuple(general(f"{index}.http", "busy\n") for index in range(30))
    desired = generation(files=files)
    ports: set[int] = set()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            ports.add(scope["client"][1])
        await api(scope, receive, send)

    with trio.fail_after(LIMIT):
        async with (
            serve(application, tmp_path, authority) as url,
            open_dataplaneapi_endpoint("pod-1", url, CREDENTIALS, verify=context) as endpoint,
        ):
            await sync_endpoint(endpoint, desired)
            assert (await sync_endpoint(endpoint, desired)).changed is False

    assert runs(api, desired)
    assert api.violations == []
    assert 1 <= len(ports) <= 8


async def test_certificate_of_an_unknown_authority_is_not_trusted(tmp_path: Path) -> None:
    api = FakeDataplaneApi()

    with trio.fail_after(LIMIT):
        async with (
            serve(api, tmp_path, trustme.CA()) as url,
            open_dataplaneapi_endpoint("pod-1", url, CREDENTIALS) as endpoint,
        ):
            with pytest.raises(EndpointUnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
                await endpoint.describe()

    assert api.calls == []


async def test_closed_port_is_unreachable() -> None:
    with trio.socket.socket() as reserved:
        await reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        with trio.fail_after(LIMIT):
            async with open_dataplaneapi_endpoint("pod-1", f"http://127.0.0.1:{port}", CREDENTIALS) as endpoint:
                with pytest.raises(EndpointUnreachableError, match="/v3/info"):
                    await endpoint.fetch_running()


async def test_endless_answer_is_cut_off_and_the_client_stays_usable() -> None:
    class Flood(Response):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})

    api = FakeDataplaneApi()

    async def flood(call: Call) -> Response | None:
        return Flood() if call.path == "/info" else None

    api.before = flood
    with trio.fail_after(LIMIT):
        async with (
            serve(api) as url,
            open_api_client("pod-1", url, CREDENTIALS, answer_bytes=1 << 20) as client,
        ):
            with pytest.raises(ApiAnswerError, match="the answer has more than 1048576 bytes"):
                await client.get("/info")
            assert (await client.get("configuration/version")).text == "1"


async def test_answer_that_drips_is_given_up() -> None:
    class Drip(Response):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await trio.sleep_forever()

    api = FakeDataplaneApi()

    async def drip(call: Call) -> Response | None:
        return Drip()

    api.before = drip
    with trio.fail_after(LIMIT):
        async with serve(api) as url, open_api_client("pod-1", url, CREDENTIALS) as client:
            with pytest.raises(EndpointTimeoutError, match=r"no answer within 0\.2 s"):
                await client.send("GET", "/info", limit=0.2)
