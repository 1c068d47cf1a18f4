"""Backend references of routes, and their problems."""

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from haptic_trio.gateway.durations import milliseconds
from haptic_trio.gateway.extensions import backend_suffix, filters_of
from haptic_trio.gateway.grants import is_granted
from haptic_trio.gateway.objects import (
    GatewayObjectError,
    Lookups,
    Resource,
    checked_name,
    derived,
    dig,
    found_in,
    hash_of,
    items_of,
    namespace_of,
    target_namespace,
    text_of,
)
from haptic_trio.gateway.routes.kinds import RouteKind

_PLAIN_PROTOCOLS: Final = frozenset({"", "http", "kubernetes.io/ws", "kubernetes.io/h2c"})


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """A backend reference, resolved."""

    name: str
    """Name of HAProxy's backend; empty if `reason` and `message` have the problem."""
    weight: int
    filters: tuple[Any, ...]
    reason: str = ""
    message: str = ""
    extensions: tuple[str, ...] = ()
    """Names of the filters of the administrator that its requests pass."""


class Cookie(msgspec.Struct, frozen=True):
    """Cookie that keeps the requests of a client at one server."""

    name: str = ""
    """Empty: a name that is made from that of the backend."""
    seconds: int = 0
    """Age at which it is no longer valid; 0 without a limit."""
    is_permanent: bool = False
    """Whether clients keep it when they end."""

    @property
    def suffix(self) -> str:
        """Suffix of the names of backends with this setting."""
        return f"_cookie{'p' if self.is_permanent else ''}{self.seconds}_{self.name}"


class Retry(msgspec.Struct, frozen=True):
    """Settings of a rule that make a backend of its own: retries of a request, and the cookie of a session."""

    attempts: int = 0
    codes: tuple[int, ...] = ()
    """The response statuses that cause a retry."""
    is_set: bool = False
    """Whether the rule sets retries."""
    cookie: Cookie | None = None

    @property
    def suffix(self) -> str:
        """Suffix of the names of backends with these settings."""
        retries = f"_retry{self.attempts}_{'.'.join(map(str, self.codes))}" if self.is_set else ""
        return retries + (self.cookie.suffix if self.cookie is not None else "")


MAX_NAME: Final = 200
"""Characters of a backend's name without the suffix of a client certificate."""
_HASH: Final = 32
_RETRIED: Final = frozenset({401, 403, 404, 408, 425, 429, 500, 501, 502, 503, 504})
_MOST_RETRIES: Final = 20
# HAProxy reads a word that begins with `-` as a flag.
_COOKIE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}").fullmatch
_MOST_SECONDS: Final = 10 * 365 * 86400
ENDLESS: Final = 2_147_483_647
"""Milliseconds: the longest time that HAProxy can count."""


class _Times(msgspec.Struct, frozen=True):
    """The timeouts of a rule in milliseconds; 0 disables the limit, None is not set."""

    request: int | None
    backend: int | None


def _times_of(rule: Any) -> _Times:
    texts = [text_of(rule, "timeouts", field) for field in ("request", "backendRequest")]
    return _Times(*(min(ENDLESS, milliseconds(text)) if text else None for text in texts))


def limit_of(rule: Any) -> int | None:
    """Return the inactivity timeout of a backend for one attempt, in milliseconds; None if *rule* sets no timeout.

    HAProxy has no limit for all attempts together. So `timeouts.request` is
    divided by the number of attempts.
    """
    times, retry = _times_of(rule), dig(rule, "retry")
    if times.request is None and times.backend is None:
        return None
    limits = [limit for limit in (times.request, times.backend) if limit]
    if times.request and not times.backend and retry is not None:
        return max(1, times.request // (retry_of(rule).attempts + 1))
    return min(limits, default=ENDLESS)


def retry_of(rule: Any) -> Retry:
    """Return the retries of *rule*, and its cookie; raises `GatewayObjectError` for values that HAProxy does not have.

    The number is limited so that all attempts fit into `timeouts.request`.
    """
    retry, cookie = dig(rule, "retry"), cookie_of(rule)
    if retry is None:
        return Retry(cookie=cookie)
    attempts, codes = dig(retry, "attempts"), items_of(retry, "codes")
    attempts = 1 if attempts is None else attempts
    is_known = all(isinstance(code, int) and code in _RETRIED for code in codes)
    # A truth value is an int in Python.
    if type(attempts) is not int or not 0 <= attempts <= _MOST_RETRIES or not is_known:
        raise GatewayObjectError(
            f"retry: attempts must be 0 to {_MOST_RETRIES}, and codes must be among {sorted(_RETRIED)}"
        )
    times = _times_of(rule)
    if times.request and times.backend:
        attempts = min(attempts, max(0, times.request // times.backend - 1))
    return Retry(attempts, tuple(sorted(set(codes))), is_set=True, cookie=cookie)


def without_persistence(rule: Any) -> str:
    """Return why the session persistence of *rule* has no effect; empty if it has one, or if there is none."""
    given = dig(rule, "sessionPersistence")
    if given is None:
        return ""
    if (text_of(given, "type") or "Cookie") != "Cookie":
        return "type Header is not supported; HAProxy cannot make a session for a header, so use type Cookie"
    if len(items_of(rule, "backendRefs")) != 1:
        return "not supported for a rule with several backends; use a rule with one"
    return ""


def cookie_of(rule: Any) -> Cookie | None:
    """Return the cookie for the sessions of *rule*, if it has an effect; raises `GatewayObjectError`."""
    given = dig(rule, "sessionPersistence")
    if given is None or without_persistence(rule):
        return None
    name, age = text_of(given, "sessionName"), milliseconds(text_of(given, "absoluteTimeout"))
    if name and not _COOKIE_NAME(name):
        raise GatewayObjectError(
            "sessionPersistence: sessionName must have 1 to 128 letters, digits, `-` and `_`, and not begin with `-`"
        )
    is_permanent = text_of(given, "cookieConfig", "lifetimeType") == "Permanent"
    if is_permanent and not age:
        raise GatewayObjectError("sessionPersistence: lifetimeType Permanent needs absoluteTimeout")
    return Cookie(name, min(_MOST_SECONDS, -(-age // 1000)), is_permanent)


class _PortState(msgspec.Struct, frozen=True):
    """The settings of a Service for one of its ports."""

    is_external: bool
    """Whether the Service is of the type ExternalName."""
    name: str | None
    """None without such a port."""
    protocol: str = ""
    """`appProtocol`."""


class _PortAsked(msgspec.Struct, frozen=True):
    """Lookup aspect: the state of a port, None without the Service. Other changes of the Service have no effect."""

    port: int | None

    def __call__(self, found: Sequence[Resource]) -> _PortState | None:
        """Return the state of the port in the Service *found*."""
        if not found:
            return None
        is_external = text_of(found[0], "spec", "type") == "ExternalName"
        for entry in items_of(found[0], "spec", "ports"):
            if self.port is not None and dig(entry, "port") == self.port:
                return _PortState(is_external, text_of(entry, "name"), text_of(entry, "appProtocol"))
        return _PortState(is_external, None)


def endpoints_of(lookups: Lookups, namespace: str, service: str, port: int) -> list[str]:
    """Return address and port of each ready endpoint behind *port* of *service*, in order."""
    known = derived(lookups, "services", _PortAsked(port), namespace, service)
    if known is None or known.name is None:
        return []
    found: set[str] = set()
    for piece in found_in(lookups, "endpointSlices", namespace, service):
        if text_of(piece, "addressType") not in ("IPv4", "IPv6"):
            continue
        for target in items_of(piece, "ports"):
            if text_of(target, "name") == known.name and isinstance(target.get("port"), int):
                for endpoint in items_of(piece, "endpoints"):
                    if dig(endpoint, "conditions", "ready") is not False and items_of(endpoint, "addresses"):
                        address = _address(str(items_of(endpoint, "addresses")[0]))
                        found.add(f"{address}:{target['port']}")
    return sorted(found)


def _address(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise GatewayObjectError("an endpoint has an invalid IP address") from None
    return f"[{address}]" if address.version == 6 else str(address)


def backend_name(namespace: str, service: str, port: int) -> str:
    """Return the name of HAProxy's backend for *port* of a Service; it is unique."""
    # The form of the template function `ident` with a kind, so it never equals a backend name of an Ingress.
    return f"{_prefix(namespace)}{checked_name(service)}_{int(port)}"


def variant_name(name: str, suffix: str) -> str:
    """Return the name of the variant *suffix* of the backend *name*; a long one ends with a hash instead.

    HAProxy and the suffix of a client certificate leave room for `MAX_NAME` characters.
    """
    text = name + suffix
    if len(text) <= MAX_NAME:
        return text
    # The beginning names the Service. No other name has `:h` after a single colon; `:tls` begins the suffix of a
    # client certificate.
    return f"{text[: MAX_NAME - _HASH - 2].rstrip(':')}:h{hash_of(text, _HASH)}"


def foreign_owner(route: Resource, backend: str) -> str:
    """Return the namespace of *route* if *backend* is one of another namespace; otherwise an empty text."""
    return "" if backend.startswith(_prefix(namespace_of(route))) else namespace_of(route)


def _prefix(namespace: str) -> str:
    return f"gateway::{checked_name(namespace)}_"


def mirrors_of(rule: Any) -> Iterator[Any]:
    """Yield the backend references of the requests that *rule* and its backends mirror."""
    for owner in (rule, *items_of(rule, "backendRefs")):
        for item in items_of(owner, "filters"):
            if (reference := dig(item, "requestMirror", "backendRef")) is not None:
                yield reference


def backends_of(route: Resource, rule: Any, kind: RouteKind, lookups: Lookups) -> tuple[Backend, ...]:
    """Return the backends of *rule* of *route*, a route of *kind*."""
    suffix, names = kind.backend + retry_of(rule).suffix, filters_of(rule)
    return tuple(
        _backend(route, reference, kind, lookups, suffix, names) for reference in items_of(rule, "backendRefs")
    )


def _backend(
    route: Resource, reference: Any, kind: RouteKind, lookups: Lookups, suffix: str, names: tuple[str, ...]
) -> Backend:
    weight = reference.get("weight", 1)
    weight = weight if isinstance(weight, int) and weight >= 0 else 0
    filters = tuple(items_of(reference, "filters"))
    name, reason, message = resolve(route, reference, kind.name, lookups)
    if filters:
        names = tuple(dict.fromkeys((*names, *filters_of(reference))))
    if name:
        # A backend with filters of the administrator belongs to its route.
        name = variant_name(name, suffix + backend_suffix(route, kind.name, names))
    return Backend(name=name, weight=weight, filters=filters, reason=reason, message=message, extensions=names)


def resolve(route: Resource, reference: Any, kind: str, lookups: Lookups) -> tuple[str, str, str]:
    """Return the name of HAProxy's backend for *reference*, or an empty name with a reason and a message."""
    group, ref_kind = text_of(reference, "group"), text_of(reference, "kind") or "Service"
    name, port = text_of(reference, "name"), reference.get("port")
    if group or ref_kind != "Service":
        return (
            "",
            "InvalidKind",
            f"backendRefs: {ref_kind} of the group {group or 'core'} is not supported; use a Service",
        )
    namespace = target_namespace(reference, route)
    permitted = is_granted(
        lookups,
        kind=kind,
        namespace=namespace_of(route),
        to_namespace=namespace,
        to_kind="Service",
        to_name=name,
    )
    if not permitted:
        return "", "RefNotPermitted", f"no ReferenceGrant permits the Service {namespace}/{name}"
    return _resolve_port(namespace, name, port, lookups)


def _resolve_port(namespace: str, name: str, port: Any, lookups: Lookups) -> tuple[str, str, str]:
    service = derived(lookups, "services", _PortAsked(port if isinstance(port, int) else None), namespace, name)
    if service is None:
        return "", "BackendNotFound", f"the Service {namespace}/{name} does not exist"
    if service.is_external:
        return "", "BackendNotFound", f"the Service {namespace}/{name} is of type ExternalName, which is not supported"
    if service.name is None or not isinstance(port, int):
        return "", "BackendNotFound", f"the Service {namespace}/{name} has no port {port}"
    protocol = service.protocol.lower()
    if protocol.startswith("kubernetes.io/") and protocol not in _PLAIN_PROTOCOLS:
        return (
            "",
            "UnsupportedProtocol",
            f"the appProtocol {protocol} of port {port} of the Service {namespace}/{name} is not supported",
        )
    return backend_name(namespace, name, port), "", ""
