"""HTTP endpoints for health, readiness and metrics.

Live: no component is stalled; an idle component is healthy. Ready: all stages
are up, there is a valid configuration, and the leader has deployed it. A
negative answer lists its `reasons`; `/readyz?verbose` adds the problems of
objects. The handlers read the state of the running iteration through callables
and never wait for it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

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

REST: Final = 4.0
"""Times as long as a scrape took, no other one begins: probes and changes wait while one runs."""


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

    scrapes = _Scrapes(registry, prepare)

    async def metrics(_request: Request) -> Response:
        return Response(await scrapes.next(), media_type=CONTENT_TYPE_LATEST)

    app = Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics), *more])
    # A redirect of `/console/` would name the host of the request, without a check.
    app.router.redirect_slashes = False
    return app


class _Scrapes:
    """Scrapes of a registry: they take a share of the time, however many clients ask."""

    def __init__(self, registry: CollectorRegistry, prepare: Callable[[], Awaitable[None]]) -> None:
        self._registry = registry
        self._prepare = prepare
        self._one_at_a_time = trio.Lock()
        self._begun = 0
        self._content = b""
        self._rest_until = 0.0

    async def next(self) -> bytes:
        """Return the content of a scrape that has not begun yet; clients that wait for it share it."""
        before = self._begun
        async with self._one_at_a_time:
            if self._begun == before:
                await trio.sleep_until(self._rest_until)
                self._begun += 1
                await self._prepare()
                began = trio.current_time()
                self._content = generate_latest(self._registry)
                self._rest_until = trio.current_time() + REST * (trio.current_time() - began)
            return self._content


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
