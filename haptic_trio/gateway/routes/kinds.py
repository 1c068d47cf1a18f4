"""Route kinds: their common traits and differences."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from haptic_trio.gateway.objects import GatewayObjectError, items_of, text_of
from haptic_trio.gateway.paths import normal_path
from haptic_trio.gateway.routes.matches import (
    EXACT,
    PREFIX,
    Condition,
    Match,
    checked_expression,
    headers_of,
    matches_of,
)


class Key(msgspec.Struct, frozen=True, order=True):
    """The lookup key of a request on one listener."""

    path_kind: str
    hostname: str
    path: str


class RouteKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of routes: its stores, and how its matches become host and path."""

    name: str
    store: str
    matches: Callable[[Any], tuple[Match, ...]]
    spellings: Callable[[Key], tuple[str, ...]] = lambda _key: ()
    """Spellings of a key in the lookup by host and path; empty if routes cannot be found by path."""
    backend: str = ""
    """Suffix of the names of its backends."""

    @property
    def has_requests(self) -> bool:
        """Whether it routes requests; other kinds route connections."""
        return self.name in RIVALS

    @property
    def by_host(self) -> str:
        """The store that finds routes by host name and path."""
        return f"{self.store}ByHost"

    @property
    def of_any_host(self) -> str:
        """The store that finds routes without host names by the name of a parent and by path."""
        return f"{self.store}OfAnyHost"

    @property
    def without_host(self) -> str:
        """The store that finds routes without host names by the name of a parent."""
        return f"{self.store}WithoutHost"

    @property
    def without_path(self) -> str:
        """The store that finds routes that cannot be found by path, by Gateway."""
        return f"{self.store}WithoutPath"

    @property
    def by_gateway(self) -> str:
        """The store that finds routes by Gateway."""
        return f"{self.store}ByGateway"

    @property
    def by_service(self) -> str:
        """The store that finds routes by Service."""
        return f"{self.store}ByService"


def _http_spellings(key: Key) -> tuple[str, ...]:
    # Lookups are by the normal form.
    path = normal_path(key.path)
    if key.path_kind == EXACT:
        return (path,)
    return (path, path + "/") if path else ("/",)


def _grpc_spellings(key: Key) -> tuple[str, ...]:
    service = key.path[1:].partition("/")[0]
    return (service,) if service else ()


def _grpc_matches(rule: Any) -> tuple[Match, ...]:
    found = enumerate(items_of(rule, "matches"))
    return tuple(_grpc_match(match, f"matches[{position}]") for position, match in found) or (Match(),)


def _grpc_match(match: Any, field: str) -> Match:
    service, method = text_of(match, "method", "service"), text_of(match, "method", "method")
    headers: tuple[Condition, ...] = headers_of(match, field)
    if (text_of(match, "method", "type") or EXACT) != EXACT:
        for name, part in (("service", service), ("method", method)):
            checked_expression(part, f"{field}.method.{name}")
        pattern = f"/(?:{service or '[^/]+'})/(?:{method or '[^/]+'})"
        return Match(path_expression=checked_expression(pattern, f"{field}.method"), headers=headers)
    for name in (service, method):
        if "/" in name or not all(char.isalnum() or char in "._" for char in name):
            raise GatewayObjectError("method: use letters, digits, '.' and '_' for service and method")
    if service and method:
        return Match(path_kind=EXACT, path=f"/{service}/{method}", headers=headers)
    if service:
        return Match(path=f"/{service}", headers=headers)
    if method:
        pattern = "/[^/]+/" + method.replace(".", r"\.")
        return Match(path_expression=checked_expression(pattern, f"{field}.method.method"), headers=headers)
    return Match(headers=headers)


def _no_matches(_rule: Any) -> tuple[Match, ...]:
    return (Match(path_kind=PREFIX),)


HTTP_ROUTE: Final = RouteKind(name="HTTPRoute", store="httpRoutes", matches=matches_of, spellings=_http_spellings)
GRPC_ROUTE: Final = RouteKind(
    name="GRPCRoute", store="grpcRoutes", matches=_grpc_matches, spellings=_grpc_spellings, backend="_h2"
)
TLS_ROUTE: Final = RouteKind(name="TLSRoute", store="tlsRoutes", matches=_no_matches, backend="_tcp")
TCP_ROUTE: Final = RouteKind(name="TCPRoute", store="tcpRoutes", matches=_no_matches, backend="_tcp")
ROUTE_KINDS: Final = {kind.name: kind for kind in (HTTP_ROUTE, GRPC_ROUTE, TLS_ROUTE, TCP_ROUTE)}
RIVALS: Final = {HTTP_ROUTE.name: GRPC_ROUTE, GRPC_ROUTE.name: HTTP_ROUTE}
"""Route kinds that exclude each other: of two such routes for one host of a listener, the older one is accepted."""
