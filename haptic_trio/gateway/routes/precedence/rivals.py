"""Decision between HTTPRoutes and GRPCRoutes that have a host name of a listener in common: the oldest one has it.

A route is displaced if an older route of the other kind, not displaced
itself, has one of its host names on the listener.
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import Final

from haptic_trio.gateway.hostnames import ANY, intersection, is_hostname, wider
from haptic_trio.gateway.listeners.listeners import Listener, has_hostname_fault
from haptic_trio.gateway.objects import Lookups, Resource, derived
from haptic_trio.gateway.routes.kinds import RIVALS, RouteKind
from haptic_trio.gateway.routes.precedence.contenders import Contender, Oldest, Order, Owner, contender_of

_AT_FIRST: Final = 8
"""Number of the oldest contenders that are looked up at first. In most cases the oldest one decides."""


def shared_hostnames(hostnames: Iterable[str], listener: Listener) -> tuple[tuple[str, str], ...]:
    """Return pairs of each host name that *listener* shares with one of *hostnames*, and that one."""
    shared: dict[str, str] = {}
    if has_hostname_fault(listener):
        # The fault is the listener's; it must not reject a route that has other listeners.
        return ()
    for hostname in hostnames:
        common = intersection(hostname, listener.hostname) if not hostname or is_hostname(hostname) else None
        # Of several host names of the route with the same intersection, the most specific one counts.
        if common is not None and (common not in shared or len(hostname) > len(shared[common])):
            shared[common] = hostname
    return tuple(shared.items())


def is_displaced(route: Resource, kind: str, listener: Listener, lookups: Lookups) -> bool:
    """Whether *route*, a route of *kind* that *listener* allows, is displaced on *listener*."""
    if kind not in RIVALS:
        return False
    contest = _Contest(listener, lookups)
    return contest.is_displaced(contender_of(route, kind, contest.owner))


class _Contest:
    """The decisions about the contenders for one listener, each made once."""

    def __init__(self, listener: Listener, lookups: Lookups) -> None:
        self._listener = listener
        self._lookups = lookups
        self.owner: Owner = listener.kind, listener.namespace, listener.owner
        self._is_accepted: dict[Order, bool] = {}

    def is_displaced(self, contender: Contender) -> bool:
        """Whether *contender* is displaced; without recursion, since chains of contenders may be long."""
        waiting = [(contender, self._older_rivals(contender))]
        while waiting:
            one, rivals = waiting[-1]
            # Displaced rivals do not matter.
            rival = next((found for found in rivals if self._is_accepted.get(found.order, True)), None)
            if rival is None:
                self._is_accepted[one.order] = True
                waiting.pop()
                if waiting:
                    self._is_accepted[waiting.pop()[0].order] = False
            elif rival.order in self._is_accepted:
                self._is_accepted[one.order] = False
                waiting.pop()
            else:
                waiting.append((rival, self._older_rivals(rival)))
        return not self._is_accepted[contender.order]

    def _older_rivals(self, contender: Contender) -> Iterator[Contender]:
        """Yield the older contenders of the other kind that share hosts with *contender*, the oldest first."""
        other = RIVALS[contender.kind]
        if other.name not in self._listener.kinds:
            return
        hosts = [host for host, _ in shared_hostnames(contender.hostnames, self._listener)]
        questions = dict.fromkeys(question for host in hosts for question in _questions(other, host, self.owner))
        sources = [
            self._oldest_first(*question, contender.order, first)
            for question in questions
            # Most find none: merging many empty sources would take longer than asking.
            if (first := self._oldest(*question, contender.order, _AT_FIRST))
        ]
        last = None
        for rival in heapq.merge(*sources, key=lambda one: one.order) if sources else ():
            if rival.order != last:
                yield rival
            last = rival.order

    def _oldest(
        self,
        store: str,
        key: str,
        domain: str,
        before: Order,
        count: int,
        listener: tuple[str, int] | None = None,
        without: frozenset[str] = frozenset(),
    ) -> tuple[Contender, ...]:
        return derived(self._lookups, store, Oldest(self.owner, before, domain, count, listener, without), key)

    def _oldest_first(
        self, store: str, key: str, domain: str, before: Order, found: tuple[Contender, ...]
    ) -> Iterator[Contender]:
        """Yield the contenders for the listener that the question finds; *found* are the first ones for its owner."""
        name, port = self._listener.name, self._listener.port
        listener, without = None, frozenset[str]()
        seen, count = 0, _AT_FIRST
        while True:
            strangers = without.union(
                one.namespace for one in found[seen:] if not self._listener.allows(self._lookups, one.namespace)
            )
            if strangers != without or (listener is None and not all(one.refers_to(name, port) for one in found)):
                # Each route of the listener would pass over all of them, however many there are.
                listener, without = (name, port), strangers
            else:
                yield from found[seen:]
                if len(found) < count:
                    return
                seen, count = count, count * _AT_FIRST
            found = self._oldest(store, key, domain, before, count, listener, without)


def _questions(other: RouteKind, host: str, owner: Owner) -> Iterator[tuple[str, str, str]]:
    """Yield store, key and domain of the lookups that find the routes of the kind *other* that may share *host*."""
    _, _, name_of_owner = owner
    if host == ANY or host.startswith("*"):
        yield other.by_gateway, name_of_owner, host
        return
    yield other.without_host, name_of_owner, ANY
    for name in (host, *wider(host)):
        yield other.by_host, name, ANY
