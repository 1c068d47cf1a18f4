"""Lists of candidates in the maps that route: their text, and which candidates a list that is too long omits."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from haptic_trio.gateway.objects import Resource, age_of, name_of, namespace_of
from haptic_trio.gateway.routes.matches import Match
from haptic_trio.gateway.routes.programs import MAX_PROGRAM, conditions_text


class Candidate(msgspec.Struct, frozen=True):
    """A match of a route for the path of an entry."""

    match: Match
    target: str
    route: Resource
    order: tuple[Any, ...]
    """Sort key by precedence."""
    number: tuple[int, int]
    """Numbers of the rule and of the match."""
    owner: str = ""
    """The namespace of the route, if the target is a backend of another namespace: the target does not show it."""

    @property
    def age(self) -> tuple[Any, ...]:
        """Sort key by age, then by rule and match."""
        return *age_of(self.route), *self.number

    @property
    def destination(self) -> str:
        """The target, and the owner if the target does not show it."""
        return f"{self.target}>{self.owner}" if self.owner else self.target


def list_of(candidates: Iterable[Candidate], *, is_wide: bool = False) -> tuple[str, tuple[Resource, ...]]:
    """Return the value of a path's entry for *candidates*, in order of precedence, and the routes that it omits.

    A list that is too long omits candidates and never fails: its writer has
    other entries, which routes of other namespaces may need. Entries of a wide
    scope, which requests may reach after a list, name the owner of each target.
    """
    conditional: list[Candidate] = []
    last: list[str] = []
    for candidate in candidates:
        if not candidate.match.is_conditional:
            if not conditional:
                return candidate.destination if is_wide else candidate.target, ()
            last = [f">{candidate.destination}"]
            break
        conditional.append(candidate)
    texts = [f"{conditions_text(one.match)}>{one.destination}" for one in conditional]
    # Each candidate costs a separator; the first one costs the question mark.
    costs = [len(text) + 1 for text in texts]
    room = MAX_PROGRAM - sum(len(text) + 1 for text in last)
    omitted: tuple[Resource, ...] = ()
    if sum(costs) > room:
        kept = _kept(conditional, costs, room)
        omitted = _in_turns(one.route for position, one in enumerate(conditional) if position not in kept)
        texts = [texts[position] for position in sorted(kept)]
    return "?" + ";".join(texts + last), omitted


def _in_turns(routes: Iterable[Resource]) -> tuple[Resource, ...]:
    """Return *routes*, each once: the oldest of each namespace, then the second ones, so a few warnings reach all."""
    namespaces: dict[str, dict[str, Resource]] = {}
    for route in sorted(routes, key=age_of):
        namespaces.setdefault(namespace_of(route), {})[name_of(route)] = route
    turns = zip_longest(*(routes.values() for routes in namespaces.values()))
    return tuple(route for turn in turns for route in turn if route is not None)


def _kept(candidates: Sequence[Candidate], costs: Sequence[int], room: int) -> set[int]:
    """Return the positions of the candidates that have room: an equal share for each namespace, the rest by age."""
    by_age = sorted(range(len(candidates)), key=lambda position: candidates[position].age)
    namespaces = [namespace_of(candidate.route) for candidate in candidates]
    left = dict.fromkeys(namespaces, room // len(set(namespaces)))
    kept: set[int] = set()
    for position in by_age:
        if costs[position] <= left[namespaces[position]]:
            left[namespaces[position]] -= costs[position]
            kept.add(position)
    room -= sum(costs[position] for position in kept)
    for position in by_age:
        if position not in kept and costs[position] <= room:
            room -= costs[position]
            kept.add(position)
    return kept
