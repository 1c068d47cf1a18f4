"""HTTP endpoints for health, readiness and metrics.

Live: no component is stalled; an idle one is healthy. Ready: all stages are
up, a valid configuration was made, and the leader has deployed it. What is
not so is said in the answer, under `reasons`. The handlers look at the
running iteration through callables; they never wait for it.
"""

from collections.abc import Awaitable, Callable, Sequence

import hypercorn.trio
import msgspec
import trio
from hypercorn.config import Config as ServerConfig
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from haptic_trio.heartbeat import PulseState

MOST_RECEIVED = 1 << 16
"""Bytes of one message on a websocket."""


class GroupHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How many instances of the controller's own there are."""

    name: str
    size: int
    """How many shall be ready."""
    ready: int
    starting: int
    draining: int


class HealthReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of the process at a moment."""

    iteration: int
    """Number of the running iteration; 0 between two."""
    stage: int
    """Startup stages that are ready, 0 to 5."""
    is_ready: bool
    is_leader: bool
    missing: tuple[str, ...] = ()
    """Why it is not ready, in words for people; left out where it is."""
    components: tuple[PulseState, ...]
    fleet: tuple[GroupHealth, ...] = ()
    """Left out where the instances are somebody else's."""

    @property
    def is_live(self) -> bool:
        """Whether no component is stalled."""
        return not self.stalled

    @property
    def stalled(self) -> tuple[str, ...]:
        """Why it is not live, in words for people."""
        return tuple(f"{component.name}: {component.detail}" for component in self.components if component.stalled)


def make_app(
    report: Callable[[], HealthReport],
    registry: CollectorRegistry,
    more: Sequence[BaseRoute] = (),
    *,
    prepare: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
) -> Starlette:
    """Return the application that answers `/healthz`, `/readyz` and `/metrics`, and *more*.

    *prepare* is awaited before the registry is scraped.
    """

    async def healthz(_request: Request) -> Response:
        state = report()
        return _json(state, ok=state.is_live, reasons=state.stalled)

    async def readyz(_request: Request) -> Response:
        state = report()
        return _json(state, ok=state.is_ready, reasons=state.missing)

    async def metrics(_request: Request) -> Response:
        await prepare()
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics), *more])


def _json(state: HealthReport, *, ok: bool, reasons: tuple[str, ...]) -> Response:
    """Return *state* as JSON, with why it is not *ok* before everything else: probes' logs show the beginning."""
    fields = {name: value for name, value in msgspec.to_builtins(state).items() if name != "missing"}
    content = msgspec.json.encode({"reasons": reasons, **fields} if reasons else fields)
    return Response(content, status_code=200 if ok else 503, media_type="application/json")


async def serve_app(
    app: Starlette,
    bind: str,
    *,
    umask: int | None = None,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve *app* on *bind* (`address:port`, port 0 for any free one, or `unix:PATH`) until cancelled.

    *umask* is that of the unix socket.
    started() gives the addresses that are bound. Raises OSError when the
    address is taken.
    """
    config = ServerConfig()
    config.bind = [bind]
    config.umask = umask
    config.accesslog = None
    config.loglevel = "ERROR"
    config.graceful_timeout = 1.0
    # Of what is received: viewers of the console ask in a few words.
    config.websocket_max_message_size = MOST_RECEIVED
    await hypercorn.trio.serve(app, config, mode="asgi", task_status=task_status)  # type: ignore[arg-type]
