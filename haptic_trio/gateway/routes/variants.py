"""Backend variants of a Service port: one for each set of settings that routes need.

A route whose requests pass filters of the administrator has backends of its own.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from haptic_trio.gateway.extensions import Allowed, all_filters_of, is_allowed
from haptic_trio.gateway.grants import is_granted
from haptic_trio.gateway.listeners.clients import certificates_for, has_client_certificate
from haptic_trio.gateway.objects import (
    GatewayObjectError,
    Lookups,
    Resource,
    by_namespace,
    derived,
    items_of,
    name_of,
    namespace_of,
    target_namespace,
    text_of,
)
from haptic_trio.gateway.routes.attachment import listeners_for
from haptic_trio.gateway.routes.backends import Retry, backends_of, retry_of
from haptic_trio.gateway.routes.kinds import GRPC_ROUTE, HTTP_ROUTE, ROUTE_KINDS, RouteKind
from haptic_trio.gateway.routes.rules import served_rules

_HTTP_KINDS: Final = (HTTP_ROUTE.name, GRPC_ROUTE.name)


class Variant(msgspec.Struct, frozen=True):
    """One of the backends for a port of a Service."""

    suffix: str
    """Of its name, without `end`."""
    retry: Retry
    certificate: Resource | None = None
    """The Secret that we show to the backend."""
    end: str = ""
    """Suffix of the name for that certificate, which HAProxy appends when it routes a request."""

    @property
    def is_tcp(self) -> bool:
        """Whether it forwards bytes."""
        return self.suffix.startswith("_tcp")

    @property
    def is_h2(self) -> bool:
        """Whether it speaks HTTP/2 whatever the Service says."""
        return self.suffix.startswith("_h2")


def variants_of(service: Resource, lookups: Lookups) -> list[Variant]:
    """Return which backends the routes that name *service* need for each port of it."""
    namespace, name = namespace_of(service), name_of(service)
    found: dict[tuple[str, str], Variant] = {}
    shows_certificates = derived(lookups, "gateways", _show_certificates)
    for kind in ROUTE_KINDS.values():
        permitted = _permitted(kind, namespace, name, lookups=lookups)
        retries = _retries(kind, namespace, name, permitted, lookups) if permitted else ()
        for retry in retries:
            suffix = kind.backend + retry.suffix
            found[suffix, ""] = Variant(suffix, retry)
        if shows_certificates and retries and kind.name in _HTTP_KINDS:
            for parent, retry in derived(
                lookups, kind.by_service, _Parents(namespace, name, permitted), namespace, name
            ):
                for end, secret in certificates_for(parent, lookups).items():
                    suffix = kind.backend + retry.suffix
                    found[suffix, end] = Variant(suffix, retry, secret, end)
    return [found[suffix] for suffix in sorted(found, key="".join)]


def _permitted(kind: RouteKind, namespace: str, name: str, *more: str, lookups: Lookups) -> frozenset[str]:
    """Return the namespaces whose routes may name the Service, and do. Those of others add nothing to it."""
    naming = derived(lookups, kind.by_service, _namespaces, namespace, name, *more)
    return frozenset(
        one
        for one in naming
        if is_granted(lookups, kind=kind.name, namespace=one, to_namespace=namespace, to_kind="Service", to_name=name)
    )


def _namespaces(routes: Sequence[Resource]) -> frozenset[str]:
    return frozenset(namespace for namespace, _ in by_namespace(routes))


def _retries(
    kind: RouteKind, namespace: str, name: str, permitted: frozenset[str], lookups: Lookups
) -> tuple[Retry, ...]:
    """Return how rules for the Service send requests again and keep sessions, each way once."""
    is_named = derived(lookups, kind.by_service, _NamedPlainly(namespace, name, permitted), namespace, name)
    # Routes with retries or sessions are also indexed by Service, so that all others need no lookup.
    others = derived(lookups, kind.by_service, _Retries(namespace, name, permitted), namespace, name, name)
    return (Retry(), *others) if is_named else others


class _Rules(msgspec.Struct, frozen=True):
    """Settings of the rules that name a Service."""

    namespace: str
    name: str
    permitted: frozenset[str]
    """The namespaces of routes that may name it."""

    def among(self, routes: Sequence[Resource]) -> Iterator[Resource]:
        """Yield those of *routes* that may name it; others cost nothing, however many there are."""
        for namespace, found in by_namespace(routes):
            if namespace in self.permitted:
                yield from found

    def rules(self, route: Resource) -> Iterator[Any]:
        """Yield those of *route*, which may name it."""
        for rule in items_of(route, "spec", "rules"):
            if any(_leads_to(one, route, self.namespace, self.name) for one in items_of(rule, "backendRefs")):
                yield rule

    def retries(self, route: Resource) -> Iterator[Retry]:
        """Yield how those of *route* send requests again."""
        for rule in self.rules(route):
            try:
                yield retry_of(rule)
            except GatewayObjectError:
                # The faulty route is reported when it is rendered itself.
                continue


class _NamedPlainly(_Rules, frozen=True):
    """Whether there is one without retries and sessions; mostly the first one is."""

    def __call__(self, routes: Sequence[Resource]) -> bool:
        return any(not retry.suffix for route in self.among(routes) for retry in self.retries(route))


class _Retries(_Rules, frozen=True):
    """Distinct settings of the rules for retries and sessions."""

    def __call__(self, routes: Sequence[Resource]) -> tuple[Retry, ...]:
        found = {retry.suffix: retry for route in self.among(routes) for retry in self.retries(route) if retry.suffix}
        return tuple(found[suffix] for suffix in sorted(found))


class _Parents(_Rules, frozen=True):
    """The parents of their routes, each as a route that has no other, with each way to retry."""

    def __call__(self, routes: Sequence[Resource]) -> tuple[tuple[Resource, Retry], ...]:
        found: dict[tuple[str, ...], tuple[Resource, Retry]] = {}
        for route in self.among(routes):
            for retry in self.retries(route):
                for parent in items_of(route, "spec", "parentRefs"):
                    namespace = target_namespace(parent, route)
                    reference = {field: text_of(parent, field) for field in ("group", "kind", "name")}
                    alone = {"spec": {"parentRefs": [{**reference, "namespace": namespace}]}}
                    found.setdefault((*reference.values(), namespace, retry.suffix), (alone, retry))
        return tuple(pair for _, pair in sorted(found.items(), key=lambda item: item[0]))


def _show_certificates(gateways: Sequence[Resource]) -> bool:
    return any(has_client_certificate(gateway) for gateway in gateways)


class FilteredRoute(msgspec.Struct, frozen=True):
    """A route that names a filter for requests to a Service."""

    kind: str
    namespace: str
    name: str


class FilteredBackend(msgspec.Struct, frozen=True, kw_only=True):
    """A backend of one route, for a port of a Service."""

    name: str
    port: int
    filters: tuple[str, ...]
    """Names of the filters, in their order."""
    variant: Variant


class _Filtered(_Rules, frozen=True):
    """Namespace and name of the routes with a filter in a rule for the Service."""

    def __call__(self, routes: Sequence[Resource]) -> tuple[tuple[str, str], ...]:
        return tuple(
            (namespace_of(route), name_of(route))
            for route in self.among(routes)
            if any(all_filters_of(rule) for rule in self.rules(route))
        )


def _leads_to(reference: Resource, route: Resource, namespace: str, service: str) -> bool:
    return target_namespace(reference, route) == namespace and text_of(reference, "name") == service


def filtered_routes(service: Resource, lookups: Lookups) -> Iterator[FilteredRoute]:
    """Yield the routes that name a filter in a rule for *service*, and may name *service*."""
    namespace, name = namespace_of(service), name_of(service)
    for kind in (HTTP_ROUTE, GRPC_ROUTE):
        # The third key finds the routes with filters among few others, so that all others cost nothing.
        keys = namespace, name, name
        permitted = _permitted(kind, *keys, lookups=lookups)
        aspect = _Filtered(namespace, name, permitted)
        for owner, route in derived(lookups, kind.by_service, aspect, *keys) if permitted else ():
            yield FilteredRoute(kind.name, owner, route)


def filtered_backends(
    route: Resource, kind: RouteKind, service: Resource, lookups: Lookups, controller: str, allowed: Allowed
) -> Iterator[FilteredBackend]:
    """Yield the backends of *route* for ports of *service* with filters that are *allowed*, each once."""
    if not listeners_for(route, kind.name, lookups, controller):
        return
    namespace, known = namespace_of(route), set[str]()
    for rule in served_rules(route, kind, lookups):
        if rule.error is not None:
            continue
        retry = retry_of(rule.source)
        backends = backends_of(route, rule.source, kind, lookups)
        for reference, backend in zip(items_of(rule.source, "backendRefs"), backends, strict=True):
            is_served = backend.extensions and all(is_allowed(one, namespace, allowed) for one in backend.extensions)
            if (
                not is_served
                or backend.reason
                or backend.weight <= 0
                or backend.name in known
                or not _leads_to(reference, route, namespace_of(service), name_of(service))
            ):
                continue
            known.add(backend.name)
            for end, secret in {"": None, **certificates_for(route, lookups)}.items():
                yield FilteredBackend(
                    name=backend.name + end,
                    port=reference["port"],
                    filters=backend.extensions,
                    variant=Variant(kind.backend + retry.suffix, retry, secret, end),
                )


def find_filtered_backends(
    route: Resource, kind: RouteKind, service: Resource, lookups: Lookups, controller: str, allowed: Allowed
) -> list[FilteredBackend]:
    """Return the backends of `filtered_backends`; none if the route cannot be expressed, which its own map reports."""
    try:
        return list(filtered_backends(route, kind, service, lookups, controller, allowed))
    except GatewayObjectError:
        return []
