"""JSON resources of the console on the admin port, for scripts: routes, certificates, lines, changes,
problems and instances.

    GET /api/v1/routes?search=TEXT&state=STATE&offset=0&limit=200    a `RoutePage`
    GET /api/v1/certificates?offset=0&limit=200                      a `CertificatePage`
    GET /api/v1/search?search=TEXT&context=2&offset=0&limit=100      a `SearchAnswer`
    GET /api/v1/changes                                              a `ChangeList`
    GET /api/v1/problems                                             a `ProblemList`
    GET /api/v1/instances                                            an `InstanceList`

Each request has the token of the console in `Authorization: Bearer TOKEN`. A
request with a wrong token gets 401, with another `Host` than those of the
console 421, with the `Origin` of another site 403, with a wrong parameter 400,
and with 503 while there is no configuration yet. The bodies of errors are
`{"error": "…"}`.
"""

import hmac
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from haptic_trio.console.configuration import NotNowError
from haptic_trio.console.hosts import HostRoute, Hosts, is_same_origin, other_paths
from haptic_trio.console.protocol import CertificatePage, ChangeList, InstanceList, ProblemList, RoutePage
from haptic_trio.console.watched import Watched
from haptic_trio.errors import HapticError
from haptic_trio.explain.answers import MOST_HITS
from haptic_trio.explain.route_list import RouteState

API = "/api/v1"
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_LONGEST_SEARCH = 1000


class ParameterError(HapticError):
    """A parameter of a request is wrong; permanent."""


def make_api(watched: Watched, token: str, hosts: Hosts) -> list[BaseRoute]:
    """Return the resources of the API, for requests with *token* to one of *hosts*."""

    async def routes(request: Request) -> RoutePage:
        given = request.query_params
        state = given.get("state", "")
        if state and state not in set(RouteState):
            raise ParameterError(f"state: one of {', '.join(RouteState)}")
        return await watched.routes.page(
            search=_search_text(request),
            state=state,
            offset=_number(request, "offset", 0),
            limit=_number(request, "limit", 200),
        )

    async def certificates(request: Request) -> CertificatePage:
        return await watched.certificates.page(
            offset=_number(request, "offset", 0), limit=_number(request, "limit", 200)
        )

    async def search(request: Request) -> Any:
        text = _search_text(request)
        if not text.strip():
            raise ParameterError("search: a text")
        return await watched.configuration.search(
            text,
            context=_number(request, "context", 0),
            offset=_number(request, "offset", 0),
            limit=_number(request, "limit", MOST_HITS),
        )

    async def changes(_request: Request) -> ChangeList:
        return ChangeList(changes=watched.state().cycles, now=watched.moment())

    async def problems(_request: Request) -> ProblemList:
        state = watched.state()
        return ProblemList(objects=state.objects, inputs=state.problems)

    async def instances(_request: Request) -> InstanceList:
        state = watched.state()
        return InstanceList(instances=state.instances, fleet=state.fleet, now=watched.moment())

    handlers: tuple[Callable[[Request], Awaitable[Any]], ...] = (
        routes,
        certificates,
        search,
        changes,
        problems,
        instances,
    )
    resources = [_resource(f"{API}/{handler.__name__}", handler, token.encode(), hosts) for handler in handlers]
    return [*resources, other_paths(API, hosts)]


def _resource(path: str, handle: Callable[[Request], Awaitable[Any]], token: bytes, hosts: Hosts) -> BaseRoute:
    async def answer(request: Request) -> Response:
        if not is_same_origin(request):
            return _error(HTTPStatus.FORBIDDEN, "the origin is not allowed")
        if not _is_allowed(request, token):
            return _error(
                HTTPStatus.UNAUTHORIZED, "send the token as Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"}
            )
        return await _answer(handle, request)

    return HostRoute(path, answer, hosts)


async def _answer(handle: Callable[[Request], Awaitable[Any]], request: Request) -> Response:
    try:
        value = await handle(request)
    except ParameterError as exc:
        return _error(HTTPStatus.BAD_REQUEST, str(exc))
    except NotNowError as exc:
        return _error(HTTPStatus.SERVICE_UNAVAILABLE, str(exc), {"Retry-After": "1"})
    return Response(msgspec.json.encode(value), media_type="application/json", headers=_HEADERS)


def _is_allowed(request: Request, token: bytes) -> bool:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token)


def _search_text(request: Request) -> str:
    text = request.query_params.get("search", "")
    if len(text) > _LONGEST_SEARCH:
        raise ParameterError(f"search: at most {_LONGEST_SEARCH} characters")
    return text


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ParameterError(f"{name}: a number")
    return int(text)


def _error(status: HTTPStatus, message: str, headers: dict[str, str] | None = None) -> Response:
    return Response(
        msgspec.json.encode({"error": message}),
        status_code=int(status),
        media_type="application/json",
        headers={**_HEADERS, **(headers or {})},
    )
