"""HTTP routes of the console on the admin port: the page, and the websocket."""

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from haptic_trio.console.hosts import HostRoute, Hosts, other_paths
from haptic_trio.console.stream import NOT_ALLOWED, UNAUTHORIZED, Viewers

PAGE = "/console"
STREAM = "/console/stream"
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
_PARTS = {"": ("index.html", "text/html"), "/console.css": ("console.css", "text/css")}
SCRIPTS = tuple(
    f"{name}.js"
    for name in (
        "activity",
        "card",
        "configuration",
        "console",
        "copy",
        "dom",
        "graph",
        "highlight",
        "internals",
        "outline",
        "routes",
        "search",
        "stream",
        "views",
    )
)


def make_routes(viewers: Viewers, hosts: Hosts) -> list[BaseRoute]:
    """Return what serves the page and the stream to requests for one of *hosts*."""
    parts = _PARTS | {f"/{name}": (name, "text/javascript") for name in SCRIPTS}
    routes: list[BaseRoute] = [_page(f"{PAGE}{path}", name, kind, hosts) for path, (name, kind) in parts.items()]

    async def stream(socket: WebSocket) -> None:
        if not hosts.admit(socket):
            # Before it is accepted: the answer is 403.
            await socket.close(UNAUTHORIZED, NOT_ALLOWED)
            return
        await viewers.serve(socket)

    return [*routes, WebSocketRoute(STREAM, stream), other_paths(PAGE, hosts)]


def _page(path: str, name: str, media_type: str, hosts: Hosts) -> BaseRoute:
    content = files("haptic_trio.console").joinpath("page", name).read_bytes()

    async def answer(_request: Request) -> Response:
        return Response(content, media_type=media_type, headers=_HEADERS)

    return HostRoute(path, answer, hosts)
