"""One agent that was broken into: the controller lives, and other instances get their changes."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Self

import pytest
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from haptic_trio.asgi.server import serve_asgi
from haptic_trio.asgi.wire import Limits
from haptic_trio.cli.serving.endpoints import AgentList
from haptic_trio.dataplane.agent.client import AgentAddress
from haptic_trio.dataplane.agent.tls import RenewedContext
from tests.features.harness import Site, controller
from tests.support.components.agents import Authority, agent_process
from tests.support.processes.haproxy import backend
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy

Answer = Callable[[], Awaitable[Response]]

_UNBOUND = ", ".join(f'{{"host": "192.0.2.1", "port": {port}, "reason": "x"}}' for port in range(1, 65536))
_ANSWERS = {
    "/v1/status": (
        '{"agent": "0", "boot": "1", "uptime": 1, "endpoint": {"name": "x", "version": "2.8.0", "generation": "f"}}'
    ),
    "/v1/running": '{"generation": ""}',
    "/v1/repair": "{}",
    "/v1/generations": '{"generation": "x"}',
    "/v1/activate": '{"generation": "x", "seconds": 0}',
}


async def _never() -> Response:
    await trio.sleep_forever()
    raise AssertionError


class _Spaces:
    """20,000 spaces, and no end. A generator would be collected unfinished when the client goes away."""

    def __init__(self) -> None:
        self._left = 20_000

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            await trio.sleep_forever()
        self._left -= 1
        return b" "


async def _endless() -> Response:
    return StreamingResponse(_Spaces())


def _report(text: str) -> dict[str, Answer]:
    return {"/v1/repair": partial(_json, text)}


async def _json(text: str, status: int = 200) -> Response:
    return Response(text, status_code=status, media_type="application/json")


async def _wait(_socket: WebSocket) -> None:
    await trio.sleep_forever()


async def _flood(socket: WebSocket) -> None:
    for number in range(5000):
        await socket.send_text(f'{{"kind": "hello", "sequence": 1, "generation": "{number}"}}')


ATTACKS: dict[str, tuple[dict[str, Answer], Callable[[WebSocket], Awaitable[None]]]] = {
    "differences below zero": (_report('{"found": {"server": -1}}'), _wait),
    "operations below zero": (_report('{"operations": -1}'), _wait),
    "more differences than a float can count": (_report(f'{{"found": {{"server": 1{"0" * 400}}}}}'), _wait),
    "a reason without words": (_report('{"reasons": [" "]}'), _wait),
    "a rejection of every generation": (
        {"/v1/activate": partial(_json, '{"code": "configuration_rejected", "message": "x"}', 422)},
        _wait,
    ),
    "addresses that it cannot bind": (
        {
            "/v1/activate": partial(
                _json, f'{{"code": "configuration_rejected", "message": "x", "unbound": [{_UNBOUND}]}}', 422
            )
        },
        _wait,
    ),
    "no answers": (dict.fromkeys(_ANSWERS, _never), _wait),
    "answers without an end": (dict.fromkeys(_ANSWERS, _endless), _wait),
    "events without an end": ({}, _flood),
}


@asynccontextmanager
async def _hostile_agent(
    authority: Authority, answers: dict[str, Answer], talk: Callable[[WebSocket], Awaitable[None]]
) -> AsyncIterator[str]:
    """Serve an agent with a valid certificate; yield its URL."""

    async def answer(request: Request) -> Response:
        path = request.url.path
        return await answers.get(path, partial(_json, _ANSWERS.get(path, "{}")))()

    async def events(socket: WebSocket) -> None:
        await socket.accept()
        with suppress(WebSocketDisconnect):
            await talk(socket)

    routes = [WebSocketRoute("/v1/events", events), Route("/{path:path}", answer, methods=["GET", "POST"])]
    context = RenewedContext(authority.issue("127.0.0.1"), server=True)
    async with trio.open_nursery() as nursery:
        serve = partial(serve_asgi, Starlette(routes=routes), "127.0.0.1:0", limits=Limits(), context=context)
        (url,) = await nursery.start(serve)
        yield url
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("attack", ATTACKS)
async def test_other_instances_get_their_changes(
    site: Site, haproxy_binary: Path, instance_root: Path, attack: str
) -> None:
    authority = Authority(instance_root / "tls")
    # Every deployment begins with a repair.
    site.write_config(dataplane={"kind": "agent", "driftPreventionInterval": "1s"})
    with trio.fail_after(60):
        async with (
            _hostile_agent(authority, *ATTACKS[attack]) as hostile,
            agent_process(instance_root, haproxy_binary, authority, free_port()) as good,
            backend("a") as first,
            backend("b") as second,
            controller(
                site,
                haproxy_binary,
                agents=AgentList(
                    addresses=(AgentAddress(name="hostile", url=hostile), AgentAddress(name="good", url=good.url)),
                    tls=authority.issue("controller"),
                ),
            ) as running,
        ):
            site.write_service("web", first)
            site.write_ingress("web", "web.localhost", "web")
            await running.serves(site, "web.localhost", "a")
            for port, body in ((second, "b"), (first, "a"), (second, "b")):
                site.write_service("web", port)
                await running.serves(site, "web.localhost", body)
