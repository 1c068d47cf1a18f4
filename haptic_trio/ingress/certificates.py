"""Lines of a crt-list for the certificates of Ingresses: each names the hosts that it may be shown for."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from haptic_trio.gateway.hostnames import is_hostname
from haptic_trio.gateway.listeners.certificates import names_of
from haptic_trio.gateway.objects import Lookups, Resource, derived, name_of, namespace_of
from haptic_trio.ingress.classes import OwnClasses, class_of
from haptic_trio.ingress.owners import MOST_BYTES, MOST_HOSTS, Choice, Exclusions, Owners, exclusions_of, owners_of
from haptic_trio.ingress.served import ANY, NONE, Age, Named, Vendors, age_of, normal_host, served_by, wildcard_of

_STORE: Final = "ingressesByTlsSecret"
_MOST_REPORTED: Final = 10
_BEFORE_ALL: Final[Age] = ("", "", "")
"""An age before that of every Ingress."""


class Line(msgspec.Struct, frozen=True):
    """A line of a crt-list."""

    hosts: tuple[str, ...]
    excluded: tuple[str, ...] = ()
    """Hosts that a wildcard covers, but that the line excludes."""
    suffix: str = ""
    """Suffix of the file's name, since a list can have each file only once."""


class Wanted(msgspec.Struct, frozen=True):
    """An Ingress that names a Secret, and the hosts of the Secret."""

    age: Age
    class_name: str
    hosts: Mapping[str, bool]
    """Each with whether the certificate has to name it."""


class _AskWanted(msgspec.Struct, frozen=True):
    """Asks which Ingresses name a Secret."""

    secret: str
    vendors: Vendors

    def __call__(self, found: Sequence[Resource]) -> tuple[Wanted, ...]:
        wanted = []
        for ingress in found:
            listed = served_by(ingress, self.vendors).certificates.items()
            hosts = {
                host: all(one.is_implied for one in named if one.secret == self.secret)
                for host, named in listed
                if any(one.secret == self.secret for one in named)
            }
            wanted.append(Wanted(age_of(ingress), class_of(ingress), hosts))
        return tuple(wanted)


class SecretLines(msgspec.Struct, frozen=True):
    """The crt-list lines of a Secret, and the Ingresses that name it."""

    lines: tuple[Line, ...]
    named_by: tuple[Mapping[str, Any], ...]
    """The first Ingresses that name the Secret, reduced to their identity: owners of warnings."""


class Certificates(msgspec.Struct, frozen=True):
    """Certificates and client verification of hosts, for one render of a fragment."""

    lookups: Lookups
    own: OwnClasses
    vendors: Vendors
    catch_all: frozenset[str] = frozenset()
    """The namespaces that may have rules for every host; empty for all."""
    known: dict[str, Owners] = msgspec.field(default_factory=dict)
    """Cached owners by host."""
    names: dict[tuple[str, str], frozenset[str] | None] = msgspec.field(default_factory=dict)
    """Cached names of certificates, by namespace and name of the Secret."""

    def owners_of(self, host: str) -> Owners:
        """Return the owners of *host*."""
        found = self.known.get(host)
        if found is None:
            among = self.catch_all if host == ANY else NONE
            found = self.known[host] = owners_of(host, self.lookups, self.own, self.vendors, among)
        return found

    def lines(self, secret: Resource) -> SecretLines:
        """Return the lines for *secret*; none if it serves no host."""
        namespace, name = namespace_of(secret), name_of(secret)
        hosts: dict[str, Age] = {}
        named_by: list[str] = []
        for wanted in derived(self.lookups, _STORE, _AskWanted(name, self.vendors), namespace, name):
            if self.own.handles(wanted.class_name, self.lookups):
                named_by.append(wanted.age[2])
                for host, is_implied in wanted.hosts.items():
                    # Read only where it is asked for: the content of a Secret may have to be fetched.
                    if not is_implied or self._is_for(secret, host):
                        hosts[host] = min(wanted.age, hosts.get(host, wanted.age))
        mine = {host: age for host, age in hosts.items() if self._decides(host, namespace, name)}
        # The owners of the Secret and of the Ingress may differ. Only the first few Ingresses get a warning.
        return SecretLines(
            tuple(_lines(mine, self.excluded)),
            tuple(
                {"kind": "Ingress", "metadata": {"namespace": namespace, "name": ingress}}
                for ingress in named_by[:_MOST_REPORTED]
            ),
        )

    def default_lines(self, secret: Resource) -> list[Line]:
        """Return the lines for the names of *secret*, a default certificate, that have no certificate of an Ingress.

        HAProxy would prefer the default certificate there for its kind of key.
        """
        names = {normal_host(name) for name in names_of(secret) or ()}
        hosts = {name: _BEFORE_ALL for name in names if is_hostname(name) and not self._has_certificate(name)}
        return _lines(hosts, self._excluded_from_default)

    def client_lines(self, ingress: Resource) -> list[tuple[str, Line]]:
        """Return the Secrets, with lines of theirs, for the hosts whose clients *ingress* asks for certificates."""
        own, found = age_of(ingress), dict[str, dict[str, Age]]()
        for host in served_by(ingress, self.vendors).routes:
            chosen = self.choice(host) if self.asks(ingress, host) else None
            for named in chosen.secrets if chosen is not None else ():
                if self._is_usable(namespace_of(ingress), named, host):
                    found.setdefault(named.secret, {})[host] = own
        return [(secret, line) for secret, hosts in found.items() for line in _lines(hosts, self.excluded_from_asking)]

    def asks(self, ingress: Resource, host: str) -> bool:
        """Whether *ingress* decides by which authorities clients of *host* are verified."""
        if host == ANY or self.owners_of(host).tls.clients != age_of(ingress)[1:]:
            return False
        return self.covering(host, namespace_of(ingress)) is None

    def covering(self, host: str, namespace: str) -> Age | None:
        """Return the Ingress of another namespace than *namespace* whose line for a wildcard asks clients of *host*.

        Who is verified there has shown no certificate of the authorities of
        *host*. None if the line excludes *host*, or there is no such line.
        """
        wildcard = wildcard_of(host)
        asking = self.owners_of(wildcard).tls.clients_age if wildcard else None
        if asking is None or asking[1] == namespace:
            return None
        excluded = self.excluded_from_asking(wildcard, asking)
        return asking if excluded is not None and host not in excluded else None

    def choice(self, host: str) -> Choice | None:
        """Return the Ingress that provides the certificate for *host*; None if there is none."""
        known = self.owners_of(host).tls
        if known.owner is None or len(known.choices) < 2:
            return next(iter(known.choices), None)
        for choice in known.choices:
            if any(self._is_usable(choice.claimant.namespace, named, host) for named in choice.secrets):
                return choice
        return known.choices[0]

    def excluded(self, wildcard: str, age: Age) -> tuple[str, ...] | None:
        """Return the hosts that *wildcard* must exclude; None if the share of each namespace does not fit into a line.

        Hosts of a namespace beyond its share may be missing.
        """
        found = self.exclusions(wildcard, age)
        return found.hosts if found.is_complete else None

    def excluded_from_asking(self, wildcard: str, age: Age) -> tuple[str, ...] | None:
        """Return the same for a line that asks clients for certificates.

        Such a line must exclude every older host of another namespace that
        verifies clients: one that the line has verified would pass there.
        Younger hosts that it does not exclude ask no clients; see `covering`.
        """
        found = self.exclusions(wildcard, age)
        return found.hosts if found.is_complete and found.has_asking else None

    def exclusions(self, wildcard: str, age: Age) -> Exclusions:
        """Return the hosts that *wildcard* of an Ingress of *age* excludes, and how many more it should exclude."""
        return exclusions_of(wildcard, age, self.lookups, self.own, self.vendors)

    def _excluded_from_default(self, wildcard: str, age: Age) -> tuple[str, ...]:
        return tuple(host for host in self.exclusions(wildcard, age).hosts if self._has_certificate(host))

    def _has_certificate(self, host: str) -> bool:
        chosen = self.choice(host)
        return chosen is not None and any(
            self._is_usable(chosen.claimant.namespace, named, host) for named in chosen.secrets
        )

    def _decides(self, host: str, namespace: str, secret: str) -> bool:
        chosen = self.choice(host)
        return (
            chosen is not None
            and chosen.claimant.namespace == namespace
            and any(named.secret == secret for named in chosen.secrets)
        )

    def _is_usable(self, namespace: str, named: Named, host: str) -> bool:
        """Whether the Secret is there, and its certificate for *host* where its entry does not say so."""
        secrets: Any = self.lookups["tlsSecrets"]
        if not named.is_implied:
            return bool(secrets.has(namespace, named.secret))
        found = secrets.get(namespace, named.secret)
        return any(self._is_for(secret, host) for secret in found)

    def _is_for(self, secret: Resource, host: str) -> bool:
        key = namespace_of(secret), name_of(secret)
        if key not in self.names:
            self.names[key] = names_of(secret)
        names = self.names[key]
        # An unreadable certificate is rejected when it is rendered, and its fallback is used.
        return names is None or host in names or wildcard_of(host) in names


def _lines(hosts: dict[str, Age], excluded: Callable[[str, Age], tuple[str, ...] | None]) -> list[Line]:
    plain: list[str] = []
    wildcards: dict[str, tuple[str, ...]] = {}
    for host, age in sorted(hosts.items()):
        names = excluded(host, age) if host.startswith("*.") else ()
        if names:
            wildcards[host] = names
        elif names is not None:
            plain.append(host)
    lines = _in_parts(plain)
    for host, names in wildcards.items():
        # What is excluded is so for all names of a line.
        lines.append(Line((host,), names, _digest(host) if lines else ""))
    return lines


def _in_parts(hosts: Sequence[str]) -> list[Line]:
    """Return lines of so many *hosts* that each can be sent at runtime; one more or less changes one of them."""
    count = 1
    while len(hosts) > count * MOST_HOSTS // 2 or sum(len(host) + 1 for host in hosts) > count * MOST_BYTES // 2:
        count *= 2
    if count == 1:
        return [Line(tuple(hosts))] if hosts else []
    parts: dict[int, list[str]] = {}
    for host in hosts:
        parts.setdefault(int(_digest(host), 16) % count, []).append(host)
    return [Line(tuple(names), suffix=f"{count}-{number}") for number, names in sorted(parts.items())]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
