"""HTTP servers behind the demo; each answers with its name."""

from collections.abc import Mapping
from functools import partial

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from haptic_trio.demo.ports import LOOPBACK, free_or_any
from haptic_trio.health import serve_app

NAME_HEADER = "X-Backend"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def make_backend(name: str) -> Starlette:
    """Return an application whose responses contain *name*."""

    async def answer(request: Request) -> Response:
        host = request.headers.get("host", "")
        return PlainTextResponse(
            f"{name} answers {request.method} {request.url.path} for {host}\n", headers={NAME_HEADER: name}
        )

    return Starlette(routes=[Route("/{path:path}", answer, methods=METHODS)])


async def run_backends(
    wanted: Mapping[str, int], *, task_status: trio.TaskStatus[dict[str, int]] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve a backend for each name until cancelled, on the *wanted* port or, if it is in use, another one.

    started() gives the port of each.
    """
    ports = {}
    async with trio.open_nursery() as nursery:
        for name, port in wanted.items():
            serve = partial(serve_app, make_backend(name), f"{LOOPBACK}:{free_or_any(port)}")
            addresses: list[str] = await nursery.start(serve)
            ports[name] = int(addresses[0].rpartition(":")[2])
        task_status.started(ports)
