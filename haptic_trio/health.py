"""HTTP endpoints for health, readiness and metrics.

Live: no component is stalled; an idle component is healthy. Ready: all stages
are up, there is a valid configuration, and the leader has deployed it. A
negative answer lists its `reasons`; `/readyz?verbose` adds the problems of
objects. The handlers read the state of the running iteration through callables
and never wait for it.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec
import trio
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from haptic_trio.asgi.server import serve_asgi
from haptic_trio.asgi.wire import Limits
from haptic_trio.heartbeat import HeartbeatState


class GroupHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Number of instances of one group of the fleet."""

    name: str
    size: int
    """Desired number."""
    ready: int
    starting: int
    draining: int


class HealthReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of the process."""

    iteration: int
    """Number of the running iteration; 0 between two iterations."""
    stage: int
    """Completed startup stages, 0 to 5."""
    is_ready: bool
    is_leader: bool
    missing: tuple[str, ...] = ()
    """Reasons why it is not ready."""
    components: tuple[HeartbeatState, ...]
    fleet: tuple[GroupHealth, ...] = ()
    """Empty if the controller does not manage instances."""

    @property
    def is_live(self) -> bool:
        """Whether no component is stalled."""
        return not self.stalled

    @property
    def stalled(self) -> tuple[str, ...]:
        """Reasons why it is not live."""
        return tuple(f"{component.name}: {component.detail}" for component in self.components if component.stalled)


def make_app(
    report: Callable[[], HealthReport],
    registry: CollectorRegistry,
    more: Sequence[BaseRoute] = (),
    *,
    prepare: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    problems: Callable[[], msgspec.Struct | None] = lambda: None,
) -> Starlette:
    """Return the application with `/healthz`, `/readyz`, `/metrics` and the routes *more*.

    *prepare* is awaited before the registry is scraped. *problems* returns a
    summary of problems of objects, of bounded size.
    """

    async def healthz(_request: Request) -> Response:
        state = report()
        return _json(state, ok=state.is_live, reasons=state.stalled)

    async def readyz(request: Request) -> Response:
        state = report()
        found = problems() if "verbose" in request.query_params else None
        return _json(state, ok=state.is_ready, reasons=state.missing, problems=found)

    scraping = trio.Lock()

    async def metrics(_request: Request) -> Response:
        # One at a time: other tasks run between two scrapes, however many clients ask.
        async with scraping:
            await prepare()
            content = generate_latest(registry)
        return Response(content, media_type=CONTENT_TYPE_LATEST)

    app = Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics), *more])
    # A redirect of `/console/` would name the host of the request, without a check.
    app.router.redirect_slashes = False
    return app


def _json(
    state: HealthReport, *, ok: bool, reasons: tuple[str, ...], problems: msgspec.Struct | None = None
) -> Response:
    """Return *state* as JSON, *reasons* first: logs of probes show the beginning of an answer."""
    fields = {name: value for name, value in msgspec.to_builtins(state).items() if name != "missing"}
    if problems is not None:
        fields["problems"] = msgspec.to_builtins(problems)
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

    *umask* is that of the unix socket. started() gives the bound addresses.
    Raises OSError if the address is in use.
    """
    await serve_asgi(app, bind, limits=Limits(), umask=umask, task_status=task_status)
