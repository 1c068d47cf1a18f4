"""Ownership of a host among several Ingresses: its paths, and its certificate.

A path of a host belongs to the namespace of the oldest Ingress that has this
path there, whatever its type; the host itself, and with it the certificate, to
that of the oldest Ingress that serves it. Within a namespace the usual order
holds. All of it is found by the host's text: a wildcard is a host of its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from haptic_trio.gateway.hostnames import is_hostname
from haptic_trio.gateway.listeners.exclusions import Exclusion, Owned, Room
from haptic_trio.gateway.objects import Lookups, Resource, derived
from haptic_trio.ingress.books import HostBook, Reader
from haptic_trio.ingress.classes import OwnClasses
from haptic_trio.ingress.ordered import ByNamespace
from haptic_trio.ingress.served import Age, Named, Served, Vendors

STORE: Final = "ingressesByHost"
_MOST_NAMED: Final = 4
_MOST_CLASSES: Final = 16
_Place: TypeAlias = tuple[int, Age, str]
_OLDER_ASKING: Final = 0
"""First item of the places of hosts that belong to others, are older, and ask clients for certificates."""
MOST_HOSTS: Final = 500
MOST_BYTES: Final = 8_000
"""Of names in one line of a crt-list: HAProxy takes 64 kB and 2,047 words from a file, and 16 kB at runtime."""
_ROOM: Final = Room(hosts=MOST_HOSTS, size=MOST_BYTES, share_hosts=MOST_HOSTS // 10, share_size=MOST_BYTES // 10)


class Claimant(NamedTuple):
    """An Ingress."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Contest(msgspec.Struct, frozen=True):
    """A path that several namespaces have."""

    holder: Claimant
    rival: Claimant
    """The oldest one of another namespace."""


class Choice(NamedTuple):
    """An Ingress that has Secrets for a host."""

    claimant: Claimant
    secrets: tuple[Named, ...]


class TlsOwners(msgspec.Struct, frozen=True):
    """The Ingresses that decide about TLS of a host."""

    owner: Claimant | None = None
    choices: tuple[Choice, ...] = ()
    """Objects of the owner's namespace that name a certificate; the first one whose Secret exists counts."""
    rival: Claimant | None = None
    """The oldest one that names another Secret for the host than the first of these."""
    clients: Claimant | None = None
    """The oldest one of the owner's namespace that asks clients for certificates."""
    clients_age: Age | None = None
    """The age of this one."""


_NO_CONTESTS: Final[Mapping[str, Contest]] = {}


class Owners(msgspec.Struct, frozen=True):
    """The owners of a host and its paths."""

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


class LeftOut(NamedTuple):
    """Hosts of a namespace that a wildcard does not exclude, because the namespace has too many."""

    claimant: Claimant
    """An Ingress of the namespace that serves one of them."""
    number: int


class Exclusions(msgspec.Struct, frozen=True):
    """The hosts that a wildcard's certificate must not be used for."""

    hosts: tuple[str, ...] = ()
    is_complete: bool = True
    """Whether each namespace with older hosts has its share."""
    has_asking: bool = True
    """Whether the hosts include each older one of another namespace that asks clients for certificates."""
    left_out: tuple[LeftOut, ...] = ()
    """Of the first few namespaces with older hosts that are not excluded."""
    foreign: frozenset[str] = frozenset()
    """See `Owners.foreign`."""


class Counted(Protocol):
    """An answer about the Ingresses of some classes."""

    @property
    def foreign(self) -> frozenset[str]:
        """See `Owners.foreign`."""
        ...


A = TypeVar("A", bound=Counted)


def owners_of(
    host: str, lookups: Lookups, own: OwnClasses, vendors: Vendors, among: frozenset[str] = frozenset()
) -> Owners:
    """Return the owners of *host*, a host in the form of `normal_host`; with *among* only these namespaces count."""

    def ask(classes: frozenset[str]) -> Owners:
        return derived(lookups, STORE, _AskOwners(host, vendors, classes, among), host)

    return of_classes(ask, lookups, own)


def exclusions_of(wildcard: str, claimant: Age, lookups: Lookups, own: OwnClasses, vendors: Vendors) -> Exclusions:
    """Return which hosts that *wildcard* covers are not served by the certificate of *claimant* for it.

    HAProxy may prefer the certificate of a wildcard to that of the very name,
    for its kind of key. So names with one of their own are excluded, and those
    that an older Ingress of another namespace serves: of each namespace up to
    its share, and beyond it while there is room. For the others the wildcard's
    certificate may be used.
    """
    key = wildcard[1:]

    def ask(classes: frozenset[str]) -> Exclusions:
        return derived(lookups, STORE, _AskExclusions(key, claimant, vendors, classes), key)

    return of_classes(ask, lookups, own)


def of_classes(ask: Callable[[frozenset[str]], A], lookups: Lookups, own: OwnClasses) -> A:
    """Return what *ask* says of the Ingresses that are served: most name our class, and others are looked up."""
    counted = _only(own.name)
    found = ask(counted)
    more = [name for name in found.foreign if own.handles(name, lookups)] if found.foreign else []
    return ask(counted.union(more)) if more else found


def _claimant(age: Age) -> Claimant:
    return Claimant(age[1], age[2])


class _Ask:
    """A lookup aspect over Ingresses. It keeps a large set of them, so that an answer costs only what has changed."""

    __slots__ = ("_classes", "_identity", "_reader", "_vendors")

    def __init__(self, key: str, vendors: Vendors, classes: frozenset[str], *more: Any) -> None:
        self._identity = (key, vendors, classes, *more)
        self._vendors = vendors
        self._classes = classes
        self._reader: Reader | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Ask) and type(other) is type(self) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def _read(self, found: Sequence[Resource]) -> Reader:
        reader = self._reader
        if reader is None:
            self._forget()
            reader = Reader(self._vendors, self._classes)
        # The reader is kept only after a complete read.
        self._reader = None
        reader.read(found, self._change)
        if not reader.is_small:
            self._reader = reader
        return reader

    def _forget(self) -> None:
        raise NotImplementedError

    def _change(self, served: Served, *, is_there: bool) -> None:
        raise NotImplementedError


class _AskOwners(_Ask):
    """Lookup aspect: the owners of a host among the Ingresses of some classes."""

    __slots__ = ("_among", "_book", "_host")

    def __init__(self, host: str, vendors: Vendors, classes: frozenset[str], among: frozenset[str]) -> None:
        super().__init__(host, vendors, classes, among)
        self._host = host
        self._among = among

    def __call__(self, found: Sequence[Resource]) -> Owners:
        reader, book = self._read(found), self._book
        if self._reader is None:
            # Keeping it costs more than reading again.
            del self._book
        return Owners(
            tuple(map(_claimant, book.firsts[:_MOST_NAMED])),
            {path: Contest(_claimant(one.holder), _claimant(one.rival)) for path, one in book.contests.items()}
            or _NO_CONTESTS,
            next(iter(book.requests), None),
            _tls_owners(book),
            reader.others,
        )

    def _forget(self) -> None:
        self._book = HostBook(self._host)

    def _change(self, served: Served, *, is_there: bool) -> None:
        if served.serves(self._host) and (not self._among or served.age[1] in self._among):
            self._book.change(served, is_there=is_there)


def _tls_owners(book: HostBook) -> TlsOwners:
    if not book.firsts:
        return TlsOwners()
    secrets, rival = book.secrets()
    clients = book.clients()
    return TlsOwners(
        _claimant(book.firsts[0]),
        tuple(Choice(_claimant(age), named) for age, named in secrets[:_MOST_NAMED]),
        None if rival is None else _claimant(rival),
        None if clients is None else _claimant(clients),
        clients,
    )


class _Hosts:
    """Hosts below a wildcard, by the namespace that each of them belongs to."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places = ByNamespace[_Place]()

    def change(self, place: _Place, *, is_there: bool) -> None:
        """Add *place*, or remove it."""
        self._places.change(place[1][1], place, is_there=is_there)

    def owned(self) -> Iterator[Owned]:
        """Yield the hosts of each namespace, in order."""
        for first in self._places.firsts:
            namespace = first[1][1]
            yield namespace, (host for _, _, host in self._places.lists[namespace])

    def left_out(self, hosts: AbstractSet[str]) -> Iterator[LeftOut]:
        """Yield what *hosts* do not have of each namespace: they have the first ones, if any."""
        for first in self._places.firsts:
            own = self._places.lists[first[1][1]]
            present = sum(1 for _ in takewhile(lambda place: place[2] in hosts, own))
            if present < len(own):
                yield LeftOut(_claimant(own[present][1]), len(own) - present)


class _AskExclusions(_Ask):
    """Lookup aspect: the hosts that a wildcard excludes; see `exclusions_of`."""

    __slots__ = ("_asking", "_books", "_claimant", "_domain", "_older", "_others")

    def __init__(self, key: str, claimant: Age, vendors: Vendors, classes: frozenset[str]) -> None:
        super().__init__(key, vendors, classes, claimant)
        self._domain = key[1:]
        self._claimant = claimant

    def __call__(self, found: Sequence[Resource]) -> Exclusions:
        reader, exclusion = self._read(found), Exclusion(_ROOM)
        if not exclusion.add_shares(self._older.owned()):
            return Exclusions((), is_complete=False, has_asking=False, foreign=reader.others)
        exclusion.add_shares(self._others.owned())
        exclusion.add_rest(self._older.owned())
        exclusion.add_rest(self._others.owned())
        return Exclusions(
            tuple(sorted(exclusion.hosts)),
            is_complete=True,
            has_asking=self._asking <= exclusion.hosts,
            left_out=tuple(islice(self._older.left_out(exclusion.hosts), _MOST_NAMED)),
            foreign=reader.others,
        )

    def _forget(self) -> None:
        self._books: dict[str, HostBook] = {}
        self._older, self._others = _Hosts(), _Hosts()
        self._asking: set[str] = set()

    def _change(self, served: Served, *, is_there: bool) -> None:
        for host in dict.fromkeys([*served.routes, *served.certificates]):
            # An invalid host name may reject its own Ingress, but not the certificate of the wildcard.
            if host.partition(".")[2] == self._domain and not host.startswith("*") and is_hostname(host):
                book = self._books.setdefault(host, HostBook(host))
                before = self._place(host, book)
                book.change(served, is_there=is_there)
                self._move(before, self._place(host, book))
                if not book.firsts:
                    del self._books[host]

    def _place(self, host: str, book: HostBook) -> _Place | None:
        """Return where *host* stands among those that are excluded: first those of others that are older."""
        if not book.firsts:
            return None
        age, asks = book.firsts[0], book.clients() is not None
        if age[1] != self._claimant[1] and age < self._claimant:
            return 0 if asks else 1, age, host
        if not book.secrets()[0]:
            return None
        return 2 if asks else 3, age, host

    def _move(self, before: _Place | None, after: _Place | None) -> None:
        if before == after:
            return
        for place, is_there in ((before, False), (after, True)):
            if place is None:
                continue
            (self._older if place[0] < 2 else self._others).change(place, is_there=is_there)
            if place[0] == _OLDER_ASKING:
                (self._asking.add if is_there else self._asking.discard)(place[2])


@lru_cache(_MOST_CLASSES)
def _only(name: str) -> frozenset[str]:
    """Return one set for each class: each lookup of a host keeps it."""
    return frozenset((name,))
