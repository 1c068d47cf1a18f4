"""Hosts, paths and certificates of one Ingress, in a comparable form."""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec

from haptic_trio.gateway.hostnames import is_hostname
from haptic_trio.gateway.listeners.listeners import PARENT_INDEX, gateway_in
from haptic_trio.gateway.objects import Resource, dig, items_of, name_of, namespace_of, text_of
from haptic_trio.gateway.routes.index_keys import ROUTE_KEYS
from haptic_trio.ingress.kept_answers import KeptAnswers, size_of
from haptic_trio.jsonpath import Path

ANY: Final = "*"
"""Stands for every host."""
NONE: Final[frozenset[str]] = frozenset()
"""One object for all empty sets that are kept: each takes 216 bytes."""
HOSTS_INDEX: Final = "ingress_hosts()"
"""In `indexBy`: the hosts that an Ingress serves, and `.` and the domain for those that a wildcard would cover."""
PATHS_INDEX: Final = "ingress_paths()"
"""In `indexBy`: `<host>|<path>` for each path of a rule with a host, with `=` before the path of an Exact one."""
PATTERN_TAILS: Final[Mapping[str, str]] = {
    "(/|$)(.*)": "(/|$)(.*)$",
    "/?(.*)": "/?(.*)$",
    "(/.*)?": "(/.*)?$",
    "(/|$)": "(/|$)",
    "/(.*)": "/(.*)$",
    "/(.+)": "/(.+)$",
    "(.*)": "(.*)$",
    "/.*": "/.*$",
    ".*": ".*$",
    "/?$": "/?$",
    "$": "$",
}
"""Endings that paths with regular expressions commonly have, with their equivalents here."""

Age: TypeAlias = tuple[str, str, str]

_ALIASES: Final = "server-alias"
_REDIRECTS: Final = "redirect-from"
_PARTNER: Final = "from-to-www-redirect"
_CLIENTS: Final = "auth-tls-secret"
_VERIFY: Final = "auth-tls-verify-client"
_YES: Final = frozenset({"true", "on", "yes", "1"})
_LATER: Final = "~"
"""Of one without a creation time, which comes after all others."""
MOST_PAIRS: Final = 10_000
"""Most pairs of an alias and a path of an Ingress, and of a host and a Secret that is named for all hosts."""
_MOST_KNOWN_PATHS: Final = 1_024
_LONGEST_KNOWN_PATH: Final = 64


class Named(NamedTuple):
    """A Secret that `spec.tls` names for a host."""

    secret: str
    is_implied: bool
    """Its entry has no hosts: it is for those hosts of the Ingress that the certificate names."""


class Vendor(msgspec.Struct, frozen=True):
    """A library of annotations."""

    prefix: str
    known: frozenset[str]
    canary: str
    passthrough: str
    patterns: frozenset[str]


class Vendors:
    """The libraries of annotations that are loaded; compared by identity."""

    def __init__(self, libraries: Mapping[str, Any]) -> None:
        self.all = tuple(
            Vendor(
                text_of(library, "prefix"),
                frozenset(map(str, items_of(library, "known"))),
                text_of(library, "canary"),
                text_of(library, "passthrough"),
                frozenset(map(str, items_of(library, "patterns"))),
            )
            for library in libraries.values()
        )


class Served(msgspec.Struct, frozen=True):
    """Hosts, paths and certificates of one Ingress."""

    age: Age
    routes: Mapping[str, frozenset[str]]
    """By host: the paths, as `normal_path` has them."""
    certificates: Mapping[str, tuple[Named, ...]]
    """By host: the Secrets under `spec.tls`; also hosts under it without a Secret."""
    clients: bool
    """Whether it asks clients for certificates."""
    passes_through: bool
    """Whether connections go to its endpoints as they are."""
    wholes: tuple[str, ...] = ()
    """The hosts of which it has all paths."""
    prefixes: Mapping[str, frozenset[str]] = {}
    """By host: those of the paths below which it has all paths."""

    def serves(self, host: str) -> bool:
        """Whether *host* is one of its rules, aliases or `spec.tls`."""
        return host in self.routes or host in self.certificates


_NOTHING: Final = Served(("", "", ""), {}, {}, clients=False, passes_through=False)
_NO_CERTIFICATES: Final[Mapping[str, tuple[Named, ...]]] = {}


_known: Final = KeptAnswers[tuple[int, Vendors], Resource, Served]()


def served_by(ingress: Resource, vendors: Vendors) -> Served:
    """Return what *ingress* serves, whatever its class is; a canary serves nothing of its own."""
    key = id(ingress), vendors
    found = _known.find(key, ingress)
    if found is None:
        # Each host of an Ingress asks, so what was found is kept for a while.
        found = _served_by(ingress, vendors)
        _known.keep(key, ingress, found, size_of(ingress))
    return found


def _served_by(ingress: Resource, vendors: Vendors) -> Served:
    annotations = dig(ingress, "metadata", "annotations")
    said = annotations if isinstance(annotations, Mapping) else {}
    if any(vendor.canary and _is_on(said, vendor.prefix + vendor.canary) for vendor in vendors.all):
        return _NOTHING
    is_patterned = any(vendor.prefix + name in said for vendor in vendors.all for name in vendor.patterns)
    rules = [rule for rule in items_of(ingress, "spec", "rules") if isinstance(rule, Mapping)]
    has_default = bool(dig(ingress, "spec", "defaultBackend"))
    routes: dict[str, set[str]] = {}
    below: dict[str, set[str]] = {}
    everything: set[str] = set()
    all_below: set[str] = set()
    wholes: set[str] = set()
    for rule in rules:
        prefixes = {route_path(path, is_patterned) for path in _paths_of(rule, are_exact=False)}
        paths = prefixes.union(route_path(path, is_patterned=False) for path in _paths_of(rule, are_exact=True))
        everything |= paths
        all_below |= prefixes
        host = normal_host(text_of(rule, "host")) or ANY
        routes.setdefault(host, set()).update(paths, [""] if has_default else [])
        below.setdefault(host, set()).update(prefixes, [""] if has_default else [])
        if has_default or "" in prefixes:
            wholes.add(host)
    if has_default and not rules:
        routes[ANY] = below[ANY] = {""}
    for vendor in vendors.all if said else ():
        aliases = _words(said, vendor, _ALIASES)
        # The Ingress is rejected: none of its aliases counts.
        for host in [] if _are_too_many(aliases, rules) else aliases:
            routes.setdefault(host, set()).update(everything)
            below.setdefault(host, set()).update(all_below)
            wholes.update([host] if "" in all_below else [])
        for host in _words(said, vendor, _REDIRECTS):
            routes.setdefault(host, set()).add("")
            below.setdefault(host, set()).add("")
            wholes.update([host] if rules and items_of(rules[0], "http", "paths") else [])
        if _PARTNER in vendor.known and _is_on(said, vendor.prefix + _PARTNER):
            for rule in rules:
                host = text_of(rule, "host")
                if host and not host.startswith("*."):
                    routes.setdefault(partner_of(host), set()).add("")
                    below.setdefault(partner_of(host), set()).add("")
                    wholes.update([partner_of(host)] if items_of(rule, "http", "paths") else [])
    found = {host: _kept(paths) for host, paths in routes.items()}
    return Served(
        age_of(ingress),
        found,
        _certificates(ingress, routes),
        any(
            _CLIENTS in vendor.known
            and vendor.prefix + _CLIENTS in said
            and said.get(vendor.prefix + _VERIFY, "on") != "off"
            for vendor in vendors.all
        ),
        any(vendor.passthrough and _is_on(said, vendor.prefix + vendor.passthrough) for vendor in vendors.all),
        tuple(wholes),
        found if below == routes else {host: _kept(paths) for host, paths in below.items()},
    )


def _kept(paths: set[str]) -> frozenset[str]:
    """Return *paths*; one object for equal sets of one path: most Ingresses have the path `/` alone."""
    found = frozenset(paths)
    return _shared(found) if len(found) == 1 and len(min(found)) <= _LONGEST_KNOWN_PATH else found


@lru_cache(_MOST_KNOWN_PATHS)
def _shared(paths: frozenset[str]) -> frozenset[str]:
    return paths


def _paths_of(rule: Mapping[str, Any], *, are_exact: bool) -> list[str]:
    paths = items_of(rule, "http", "paths")
    return [text_of(path, "path") for path in paths if (text_of(path, "pathType") == "Exact") == are_exact]


def age_of(ingress: Resource) -> Age:
    """Return what Ingresses are ordered by: the oldest first, then by namespace and name; as the libraries do."""
    return text_of(ingress, "metadata", "creationTimestamp") or _LATER, namespace_of(ingress), name_of(ingress)


def has_too_many_aliases(ingress: Resource, name: str) -> bool:
    """Whether the hosts in the annotation *name* are too many for the paths of *ingress*: then none of them counts."""
    text = (dig(ingress, "metadata", "annotations") or {}).get(name)
    return isinstance(text, str) and _are_too_many(_split(text), items_of(ingress, "spec", "rules"))


def _are_too_many(aliases: Sequence[str], rules: Sequence[Any]) -> bool:
    return len(aliases) * sum(len(items_of(rule, "http", "paths")) for rule in rules) > MOST_PAIRS


def _certificates(ingress: Resource, own: Collection[str]) -> Mapping[str, tuple[Named, ...]]:
    found: dict[str, dict[Named, None]] = {}
    listed = tls_of(ingress)
    if _are_too_many_secrets(listed, own):
        listed = [(hosts, secret) for hosts, secret in listed if hosts]
    for hosts, secret in listed:
        named = Named(secret, is_implied=not hosts)
        # An invalid host name rejects the Ingress, but not its Secret, which others may name as well.
        for host in filter(is_hostname, hosts or own):
            found.setdefault(host, {}).update({named: None} if secret else {})
    return {host: tuple(named) for host, named in found.items()} if found else _NO_CERTIFICATES


def _are_too_many_secrets(listed: Sequence[tuple[tuple[str, ...], str]], hosts: Collection[str]) -> bool:
    return sum(not named for named, _ in listed) * len(hosts) > MOST_PAIRS


def unused_certificates(ingress: Resource, served: Served) -> str:
    """Return why the entries without hosts of `spec.tls` are not used; empty if they are, or there are none."""
    listed = tls_of(ingress)
    if listed and not served.certificates and not any(hosts for hosts, _ in listed):
        return "no certificate is served, since the Ingress names no host"
    if _are_too_many_secrets(listed, served.routes):
        return "the entries without hosts are not used, since they are too many for the hosts of the Ingress"
    return ""


def tls_of(ingress: Resource) -> list[tuple[tuple[str, ...], str]]:
    """Return hosts and Secret of each entry of `spec.tls`."""
    return [
        (
            tuple(normal_host(host) for host in items_of(entry, "hosts") if isinstance(host, str)),
            text_of(entry, "secretName"),
        )
        for entry in items_of(ingress, "spec", "tls")
    ]


def normal_host(text: str) -> str:
    """Return a host name as it is compared."""
    normal = text.lower().rstrip(".")
    # Every Ingress keeps its hosts, so one object for both.
    return text if normal == text else normal


def normal_path(text: str) -> str:
    """Return a path as it is compared: decoded, without slashes at its end, `.` and `..`; empty for `/`."""
    if "%" not in text and "//" not in text and "/." not in text and text.isascii():
        return text.rstrip("/")
    parts: list[str] = []
    # A manifest can have a lone surrogate: it may fail its own Ingress, but no other object that looks at this path.
    for part in unquote_to_bytes(text.encode(errors="surrogatepass")).decode("latin-1").split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "".join("/" + part for part in parts)


def route_path(text: str, is_patterned: bool) -> str:
    """Return the path that a path of a rule is routed by, as `normal_path` has it."""
    if is_patterned:
        text = text.removeprefix("^")
        text = next((text.removesuffix(tail) for tail in PATTERN_TAILS if text.endswith(tail)), text)
    return normal_path(text)


def partner_of(host: str) -> str:
    """Return the host with `www.` if it has none, and without if it has."""
    host = normal_host(host)
    return host.removeprefix("www.") if host.startswith("www.") else "www." + host


def wildcard_of(host: str) -> str:
    """Return the wildcard that covers *host* in a certificate; empty for a wildcard, and where there is none."""
    _, dot, domain = host.partition(".")
    return f"*.{domain}" if dot and not host.startswith("*") else ""


def _is_on(said: Mapping[str, Any], name: str) -> bool:
    return str(said.get(name) or "").lower() in _YES


def _words(said: Mapping[str, Any], vendor: Vendor, name: str) -> list[str]:
    text = said.get(vendor.prefix + name) if name in vendor.known else None
    return _split(text) if isinstance(text, str) else []


def _split(text: str) -> list[str]:
    return [normal_host(word.strip()) for word in text.split(",") if word.strip()]


def _hosts_in(ingress: Any) -> list[str]:
    """Return the hosts that *ingress* may serve, for whichever libraries of annotations are loaded."""
    hosts = [normal_host(text_of(rule, "host")) or ANY for rule in items_of(ingress, "spec", "rules")]
    if not hosts and dig(ingress, "spec", "defaultBackend"):
        hosts.append(ANY)
    annotations = dig(ingress, "metadata", "annotations")
    for name, value in annotations.items() if isinstance(annotations, Mapping) else ():
        ending = name.rpartition("/")[2]
        if ending in (_ALIASES, _REDIRECTS) and isinstance(value, str):
            hosts += _split(value)
        elif ending == _PARTNER:
            hosts += [partner_of(host) for host in hosts if host != ANY]
    hosts += [host for listed, _ in tls_of(ingress) for host in listed]
    known = dict.fromkeys(hosts)
    return [*known, *dict.fromkeys(wildcard_of(host)[1:] for host in known if wildcard_of(host))]


def _paths_in(ingress: Any) -> list[str]:
    """Return the paths of the rules of *ingress* that have a host, as they are written."""
    found = (
        f"{text_of(rule, 'host')}|{'=' if text_of(one, 'pathType') == 'Exact' else ''}{text_of(one, 'path') or '/'}"
        for rule in items_of(ingress, "spec", "rules")
        if text_of(rule, "host")
        for one in items_of(rule, "http", "paths")
    )
    return [*dict.fromkeys(found)]


COMPUTED_KEYS: Final[Mapping[str, Path]] = {
    HOSTS_INDEX: Path(HOSTS_INDEX, None, _hosts_in),
    PATHS_INDEX: Path(PATHS_INDEX, None, _paths_in),
    PARENT_INDEX: Path(PARENT_INDEX, None, gateway_in),
    **ROUTE_KEYS,
}
"""Indexes that `indexBy` may name besides JSONPaths."""
