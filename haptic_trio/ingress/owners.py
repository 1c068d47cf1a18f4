"""Which of several Ingresses has a host: its paths, and what is shown to TLS clients that ask for it.

A path of a host belongs to the namespace of the oldest Ingress that has this
path there, whatever its type; the host itself, and with it the certificate, to
that of the oldest Ingress that serves it. Within a namespace the usual order
holds. All of it is found by the host's text: a wildcard is a host of its own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from haptic_trio.gateway.objects import Lookups, Resource, derived
from haptic_trio.ingress.classes import OwnClasses, class_of, classes_of
from haptic_trio.ingress.served import Age, Named, Served, Vendors, served_by

_STORE: Final = "ingressesByHost"
_MOST_NAMED: Final = 4
MOST_HOSTS: Final = 500
MOST_BYTES: Final = 8_000
"""Of names in one line of a crt-list: HAProxy takes 64 kB and 2,047 words from a file, and 16 kB at runtime."""


class Claimant(NamedTuple):
    """An Ingress."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Contest(msgspec.Struct, frozen=True):
    """A path that several namespaces want."""

    holder: Claimant
    rival: Claimant
    """The oldest one of another namespace."""


class Choice(NamedTuple):
    """An Ingress that has Secrets for a host."""

    claimant: Claimant
    secrets: tuple[Named, ...]


class TlsOwners(msgspec.Struct, frozen=True):
    """Who decides about TLS of a host."""

    owner: Claimant | None = None
    choices: tuple[Choice, ...] = ()
    """Who has a certificate, of the owner's namespace; the first one whose Secret is there counts."""
    rival: Claimant | None = None
    """The oldest one that names another Secret for the host than the first of these."""
    clients: Claimant | None = None
    """The oldest one of the owner's namespace that asks clients for certificates."""


class Owners(msgspec.Struct, frozen=True):
    """Who has a host and its paths."""

    firsts: tuple[Claimant, ...] = ()
    """The oldest Ingress of each namespace that serves the host, the oldest first; of the first few namespaces."""
    contests: Mapping[str, Contest] = {}
    """By path, where more than one namespace has it."""
    requests: Age | None = None
    """The oldest Ingress that has requests for the host; connections that pass through are none."""
    tls: TlsOwners = TlsOwners()
    foreign: frozenset[str] = frozenset()
    """Classes that are named and have not been counted."""

    def has_host(self, namespace: str) -> bool:
        """Whether the host belongs to *namespace*."""
        return not self.firsts or self.firsts[0].namespace == namespace

    def has_path(self, namespace: str, path: str) -> bool:
        """Whether *path* belongs to *namespace*."""
        contest = self.contests.get(path)
        return contest is None or contest.holder.namespace == namespace


class Exclusions(msgspec.Struct, frozen=True):
    """What a certificate for a wildcard must not be shown for."""

    hosts: tuple[str, ...] = ()
    is_complete: bool = True


def owners_of(host: str, lookups: Lookups, own: OwnClasses, vendors: Vendors) -> Owners:
    """Return who has *host*, as `normal_host` has it."""
    counted = frozenset((own.name,))
    found = derived(lookups, _STORE, _AskOwners(host, vendors, counted), host)
    # Most Ingresses name our class, so others are asked about where there are any.
    more = [name for name in found.foreign if own.handles(name, lookups)] if found.foreign else []
    return derived(lookups, _STORE, _AskOwners(host, vendors, counted.union(more)), host) if more else found


def exclusions_of(wildcard: str, claimant: Age, lookups: Lookups, own: OwnClasses, vendors: Vendors) -> Exclusions:
    """Return which hosts that *wildcard* covers are not served by the certificate of *claimant* for it.

    HAProxy may prefer the certificate of a wildcard to that of the very name,
    for its kind of key. So all names with one of their own are excluded, and
    those that an older Ingress of another namespace serves.
    """
    key = wildcard[1:]
    return derived(lookups, _STORE, _AskExclusions(key, claimant, vendors, _our_classes(key, lookups, own)), key)


def _our_classes(key: str, lookups: Lookups, own: OwnClasses) -> frozenset[str]:
    named = derived(lookups, _STORE, classes_of, key)
    return frozenset(name for name in named if own.handles(name, lookups))


def _serving(found: Iterable[Resource], vendors: Vendors, classes: frozenset[str]) -> Iterator[Served]:
    return (served_by(ingress, vendors) for ingress in found if class_of(ingress) in classes)


def _in_order(found: Iterable[Resource], host: str, vendors: Vendors, classes: frozenset[str]) -> list[Served]:
    serving = [served for served in _serving(found, vendors, classes) if served.serves(host)]
    if len(serving) > 1:
        serving.sort(key=_age)
    return serving


def _age(served: Served) -> Age:
    return served.age


def _claimant(served: Served) -> Claimant:
    return Claimant(served.age[1], served.age[2])


class _AskOwners(msgspec.Struct, frozen=True):
    """Asks who has a host, of the Ingresses of some classes."""

    host: str
    vendors: Vendors
    classes: frozenset[str]

    def __call__(self, found: Sequence[Resource]) -> Owners:
        serving = _in_order(found, self.host, self.vendors, self.classes)
        firsts: dict[str, Claimant] = {}
        for served in serving:
            firsts.setdefault(served.age[1], _claimant(served))
        requests = (served.age for served in serving if self.host in served.routes and not served.passes_through)
        return Owners(
            tuple(firsts.values())[:_MOST_NAMED],
            self._contests(serving) if len(firsts) > 1 else {},
            next(requests, None),
            tls_owners(serving, self.host),
            frozenset(map(class_of, found)) - self.classes,
        )

    def _contests(self, serving: Iterable[Served]) -> Mapping[str, Contest]:
        holders: dict[str, Claimant] = {}
        contests: dict[str, Contest] = {}
        for served in serving:
            claimant = _claimant(served)
            for path in served.routes.get(self.host, ()):
                holder = holders.setdefault(path, claimant)
                if holder.namespace != claimant.namespace and path not in contests:
                    contests[path] = Contest(holder, claimant)
        return contests


def tls_owners(serving: Sequence[Served], host: str) -> TlsOwners:
    """Return who decides about TLS of *host*, which all *serving* serve, the oldest first."""
    if not serving:
        return TlsOwners()
    owner = _claimant(serving[0])
    own = [served for served in serving if served.age[1] == owner.namespace]
    choices: dict[tuple[Named, ...], Choice] = {}
    rivals: list[Claimant] = []
    for served in serving:
        secrets = served.certificates.get(host)
        if secrets and served.age[1] == owner.namespace:
            choices.setdefault(secrets, Choice(_claimant(served), secrets))
        if secrets and (served.age[1] != owner.namespace or secrets != next(iter(choices))):
            rivals.append(_claimant(served))
    clients = (_claimant(served) for served in own if served.clients and host in served.routes)
    return TlsOwners(owner, tuple(choices.values())[:_MOST_NAMED], next(iter(rivals), None), next(clients, None))


class _AskExclusions(msgspec.Struct, frozen=True):
    """Asks for what a wildcard is not for; see `exclusions_of`."""

    key: str
    claimant: Age
    vendors: Vendors
    classes: frozenset[str]

    def __call__(self, found: Sequence[Resource]) -> Exclusions:
        hosts: dict[str, list[Served]] = {}
        for served in _serving(found, self.vendors, self.classes):
            for host in dict.fromkeys([*served.routes, *served.certificates]):
                if host.partition(".")[2] == self.key[1:] and not host.startswith("*"):
                    hosts.setdefault(host, []).append(served)
        older: list[tuple[Age, str]] = []
        others: list[tuple[bool, Age, str]] = []
        for host, serving in hosts.items():
            serving.sort(key=_age)
            known = tls_owners(serving, host)
            age = serving[0].age
            if age[1] != self.claimant[1] and age < self.claimant:
                older.append((age, host))
            elif known.choices:
                others.append((known.clients is None, age, host))
        room = MOST_BYTES
        chosen: list[str] = []
        for host in (*(host for _, host in sorted(older)), *(host for _, _, host in sorted(others))):
            room -= len(host) + 2
            if len(chosen) == MOST_HOSTS or room < 0:
                break
            chosen.append(host)
        return Exclusions(tuple(chosen), len(chosen) >= len(older))
