"""Gaps of a host: paths that its owner does not have, and whether rules of a wider scope may serve them.

It is for hosts that belong to one namespace as a whole. A request for a path
that the host does not have goes on to the wildcard, and then to the rules for
every host, only if these belong to the same namespace.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from haptic_trio.gateway.hostnames import is_hostname
from haptic_trio.gateway.objects import Lookups, Resource, derived
from haptic_trio.ingress.books import Reader
from haptic_trio.ingress.classes import OwnClasses
from haptic_trio.ingress.kept_answers import MOST_KEPT, KeptAnswers, size_of_all
from haptic_trio.ingress.owners import STORE, of_classes
from haptic_trio.ingress.served import ANY, Age, Served, Vendors, wildcard_of

_MOST_OF_HOST: Final = MOST_KEPT // 8
"""Bytes that count for a host at most: one that very many Ingresses share is not read again for each of them."""


class Gap(msgspec.Struct, frozen=True):
    """A host with paths that the wildcard must not serve."""

    host: str
    goes_on: bool
    """Whether the rules for every host may serve them."""


class Verdict(msgspec.Struct, frozen=True):
    """The answer to one of the questions below."""

    holds: bool
    foreign: frozenset[str] = frozenset()
    """See `Owners.foreign`."""


class _Summary(msgspec.Struct, frozen=True):
    oldest: Age | None
    """The oldest Ingress that serves the host."""
    is_whole: bool
    """Whether an Ingress of its namespace has all paths of the host."""
    foreign: frozenset[str]


def gaps_of(
    served: Served, lookups: Lookups, own: OwnClasses, vendors: Vendors, *, is_open_to_catch_all: bool
) -> list[Gap]:
    """Return the gaps of the hosts whose oldest Ingress has *served*: of a host, one Ingress names the gap.

    With *is_open_to_catch_all* the rules for every host serve gaps whatever
    their namespace is. The answer depends on other Ingresses only as far as
    they decide what belongs to the namespace of this one.
    """

    def asks(host: str, claimant: Age, *, for_gap: bool) -> bool:
        def ask(classes: frozenset[str]) -> Verdict:
            return derived(lookups, STORE, _Ask(host, claimant, for_gap, vendors, classes), host)

        return of_classes(ask, lookups, own).holds

    def belongs(host: str) -> bool:
        return asks(host, ("", served.age[1], ""), for_gap=False)

    found = []
    for host in sorted({*served.routes, *served.certificates} - {ANY}):
        if not is_hostname(host) or not asks(host, served.age, for_gap=True):
            continue
        wildcard = wildcard_of(host)
        if wildcard and belongs(wildcard):
            continue
        goes_on = is_open_to_catch_all or belongs(ANY)
        if wildcard or not goes_on:
            found.append(Gap(host, goes_on))
    return found


class _Ask(msgspec.Struct, frozen=True):
    """Lookup aspect: whether a host belongs to the namespace of an Ingress; or whether that Ingress names its gap."""

    host: str
    claimant: Age
    for_gap: bool
    vendors: Vendors
    classes: frozenset[str]

    def __call__(self, found: Sequence[Resource]) -> Verdict:
        summary = _summary_of(found, self.host, self.vendors, self.classes)
        oldest = summary.oldest
        if self.for_gap:
            return Verdict(oldest == self.claimant and not summary.is_whole, summary.foreign)
        return Verdict(oldest is not None and oldest[1] == self.claimant[1], summary.foreign)


_known: Final = KeptAnswers[tuple[str, Vendors, frozenset[str]], Sequence[Resource], _Summary]()


def _summary_of(found: Sequence[Resource], host: str, vendors: Vendors, classes: frozenset[str]) -> _Summary:
    # Many Ingresses ask about one host: it is read once for all of them.
    key = host, vendors, classes
    summary = _known.find(key, found)
    if summary is None:
        summary = _read_summary(found, host, vendors, classes)
        _known.keep(key, found, summary, size_of_all(found, _MOST_OF_HOST))
    return summary


def _read_summary(found: Sequence[Resource], host: str, vendors: Vendors, classes: frozenset[str]) -> _Summary:
    serving: list[Served] = []

    def take(served: Served, *, is_there: bool) -> None:
        if is_there and served.serves(host):
            serving.append(served)

    reader = Reader(vendors, classes)
    reader.read(found, take)
    oldest = min((one.age for one in serving), default=None)
    is_whole = oldest is not None and any(one.age[1] == oldest[1] and host in one.wholes for one in serving)
    return _Summary(oldest, is_whole, reader.others)
