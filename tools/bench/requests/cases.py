"""Cases of the request benchmark: a request, and the objects that route it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from haptic_trio.k8s.resource import Resource
from tools.bench.rig.objects import Place, host_of, make_ingress

PLAIN: Final = "plain"
FLOOR: Final = "floor"
INGRESS: Final = "ingress"
ANNOTATIONS: Final = "annotations"
GATEWAY: Final = "gateway"
TLS_APP: Final = "app-00001"
"""The Ingress with a certificate."""
FLOOR_CASE: Final = "map routing by hand (floor)"
SERVICE: Final = "cases"
"""The Service of all cases."""
PATH: Final = "/shop/items/42?page=3"
HEADERS: Final = (
    ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    ("Accept-Language", "en-GB,en;q=0.5"),
    ("Accept-Encoding", "gzip, deflate"),
    ("Cookie", "session=6f1d3f0c8a5b4e7d; theme=dark"),
)
"""What a browser sends besides Host."""
_NGINX: Final = "nginx.ingress.kubernetes.io/"
_HAPROXY: Final = "haproxy-ingress.github.io/"


class RequestCase(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is measured."""

    name: str
    site: str
    """Which HAProxy gets it."""
    slug: str
    """Name of the object that routes it, and the first label of its host."""
    status: int = 200
    is_tls: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    method: str = "GET"

    @property
    def message(self) -> bytes:
        """The request as it is sent."""
        lines = [f"{self.method} {PATH} HTTP/1.1", f"Host: {host_of(self.slug)}"]
        lines += [f"{name}: {value}" for name, value in (*HEADERS, *self.headers)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


class RouteCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case with its HTTPRoute: one match, and filters."""

    case: RequestCase
    match: Mapping[str, Any] = {}
    filters: Sequence[Mapping[str, Any]] = ()
    before: Sequence[Mapping[str, Any]] = ()
    """Matches of a rule before, which the request does not match."""


class AnnotationCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case with the annotations of its Ingress."""

    case: RequestCase
    annotations: Mapping[str, str]


def _route(name: str, slug: str, status: int = 200, **fields: Any) -> RouteCase:
    about = {key: fields.pop(key) for key in ("headers", "is_tls", "method") if key in fields}
    case = RequestCase(name=f"HTTPRoute: {name}", site=GATEWAY, slug=f"route-{slug}", status=status, **about)
    return RouteCase(case=case, **fields)


def _annotated(name: str, slug: str, prefix: str, status: int = 200, **fields: Any) -> AnnotationCase:
    annotations = {f"{prefix}{key}": value for key, value in fields.pop("annotations").items()}
    case = RequestCase(name=f"Ingress: {name}", site=ANNOTATIONS, slug=f"note-{slug}", status=status, **fields)
    return AnnotationCase(case=case, annotations=annotations)


SET_REQUEST: Final = {
    "type": "RequestHeaderModifier",
    "requestHeaderModifier": {"set": [{"name": "X-Env", "value": "blue"}]},
}
ADD_RESPONSE: Final = {
    "type": "ResponseHeaderModifier",
    "responseHeaderModifier": {"add": [{"name": "X-Served", "value": "yes"}]},
}
CANARY: Final = {"headers": [{"name": "x-canary", "value": "always"}]}
_EXPRESSION: Final = {"path": {"type": "RegularExpression", "value": "/shop/[a-z]+/[0-9]+"}}
_REWRITE: Final = {
    "type": "URLRewrite",
    "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/store"}},
}
_SENT: Final = (("X-Canary", "always"),)

ROUTES: Final = (
    _route("path", "path"),
    _route("path, TLS", "path", is_tls=True),
    _route("header", "header", match=CANARY, headers=_SENT),
    _route("header, two header filters", "both", match=CANARY, headers=_SENT, filters=[SET_REQUEST, ADD_RESPONSE]),
    _route("header that does not match, then path", "header-miss", before=[CANARY]),
    _route("method", "method", match={"method": "GET"}),
    _route("query parameter", "query", match={"queryParams": [{"name": "page", "value": "3"}]}),
    _route("path by regular expression", "regex", match=_EXPRESSION),
    _route("request header filter", "filter-request", filters=[SET_REQUEST]),
    _route("response header filter", "filter-response", filters=[ADD_RESPONSE]),
    _route("two header filters", "filters", filters=[SET_REQUEST, ADD_RESPONSE]),
    _route(
        "rewritten path", "rewrite", match={"path": {"type": "PathPrefix", "value": "/shop"}},
        filters=[_REWRITE],
    ),
    _route(
        "redirect", "redirect", 302,
        filters=[{"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 302}}],
    ),
)  # fmt: skip

ANNOTATED: Final = (
    _annotated(
        "rewrite-target", "rewrite", _NGINX,
        annotations={"use-regex": "true", "rewrite-target": "/store"},
    ),
    _annotated("permanent-redirect", "redirect", _NGINX, 301, annotations={"permanent-redirect": "https://example.com/"}),
    _annotated("whitelist-source-range", "sources", _NGINX, annotations={"whitelist-source-range": "127.0.0.0/8"}),
    _annotated("limit-rps", "limit", _NGINX, annotations={"limit-rps": "1000000"}),
    _annotated("enable-cors", "cors", _NGINX, annotations={"enable-cors": "true"}, headers=(("Origin", "https://example.com"),)),
    _annotated("upstream-vhost", "vhost", _NGINX, annotations={"upstream-vhost": "internal.example.com"}),
    _annotated("affinity: cookie", "affinity", _NGINX, annotations={"affinity": "cookie"}),
    _annotated("HAProxy Ingress rewrite-target", "hi-rewrite", _HAPROXY, annotations={"rewrite-target": "/store"}),
    _annotated("HAProxy Ingress limit-rps", "hi-limit", _HAPROXY, annotations={"limit-rps": "1000000"}),
)  # fmt: skip

CASES: Final = (
    RequestCase(name="plain reverse proxy", site=PLAIN, slug="app-00000"),
    RequestCase(name=FLOOR_CASE, site=FLOOR, slug="app-00000"),
    RequestCase(name="map routing by hand, TLS", site=FLOOR, slug="app-00000", is_tls=True),
    RequestCase(name="Ingress: path", site=INGRESS, slug="app-00000"),
    RequestCase(name="Ingress: path, TLS", site=INGRESS, slug=TLS_APP, is_tls=True),
    *(route.case for route in ROUTES),
    *(annotated.case for annotated in ANNOTATED),
)


def route_of(
    place: Place,
    name: str,
    service: str,
    *,
    match: Mapping[str, Any] | None = None,
    filters: Sequence[Mapping[str, Any]] = (),
    before: Sequence[Mapping[str, Any]] = (),
) -> Resource:
    """Return an HTTPRoute of the Gateway with a host of its own."""
    backends = [{"name": service, "port": 80}]
    path = {"path": {"type": "PathPrefix", "value": "/"}}
    rules: list[Mapping[str, Any]] = [{"matches": [path | dict(each)], "backendRefs": backends} for each in before]
    rules.append({"matches": [path | dict(match or {})], "filters": list(filters), "backendRefs": backends})
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": place.namespace},
        "spec": {"parentRefs": [{"name": "web"}], "hostnames": [host_of(name)], "rules": rules},
    }


def case_objects(place: Place, site: str) -> Iterator[Resource]:
    """Yield the objects that route the cases of a site; their Service is `SERVICE`."""
    if site == GATEWAY:
        done = set[str]()
        for route in ROUTES:
            if route.case.slug not in done:
                done.add(route.case.slug)
                yield route_of(
                    place, route.case.slug, SERVICE, match=route.match, filters=route.filters, before=route.before
                )
    elif site == ANNOTATIONS:
        for each in ANNOTATED:
            ingress = make_ingress(place, each.case.slug, SERVICE)
            yield {**ingress, "metadata": {**ingress["metadata"], "annotations": dict(each.annotations)}}
