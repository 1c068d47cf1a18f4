"""Search for the objects on which HAProxy crashes, by omission: a crash message names no line."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.templating.values.subjects import FragmentKey

T = TypeVar("T")

MOST_OF_GROUP: Final = 4
"""Number of culprits of one group to search for individually; after that the rest of the group is omitted as well."""


class Culprits(NamedTuple, Generic[T]):
    """Suspects to omit so that HAProxy does not crash."""

    found: list[T]
    """The culprits."""
    beside: list[T]
    """Other members of groups that have too many culprits."""


class Fragments(NamedTuple):
    """Fragments to omit so that HAProxy accepts the rest."""

    found: tuple[FragmentKey, ...]
    """Fragments whose output alone makes HAProxy fail."""
    beside: tuple[FragmentKey, ...]
    """Fragments of objects that are omitted as a whole."""


async def find_fragments(
    suspects: Mapping[ResourceRef, Sequence[FragmentKey]],
    crashes: Callable[[Collection[FragmentKey]], Awaitable[bool]],
) -> Fragments:
    """Return the fragments of *suspects* to omit so that HAProxy does not crash; none if omission does not help.

    Whole objects are omitted first, which keeps the remaining configuration
    consistent; then the fragments of each culprit are searched. *crashes* is
    as for `find_culprits`.
    """

    def keys_of(refs: Collection[ResourceRef]) -> list[FragmentKey]:
        return [key for ref in refs for key in suspects[ref]]

    async def crashes_without(refs: Collection[ResourceRef]) -> bool:
        return await crashes(keys_of(refs))

    culprits = await find_culprits(list(suspects), crashes_without, group=lambda ref: ref.namespace)
    found: list[FragmentKey] = []
    beside = keys_of(culprits.beside)
    for ref in culprits.found:
        others = keys_of([*culprits.beside, *(one for one in culprits.found if one != ref)])

        async def crashes_with_others_omitted(
            keys: Collection[FragmentKey], others: list[FragmentKey] = others
        ) -> bool:
            return await crashes([*others, *keys])

        keys = suspects[ref]
        narrowed = [*keys] if len(keys) == 1 else (await find_culprits(keys, crashes_with_others_omitted)).found
        found += narrowed
        if not narrowed:
            beside += keys
    return Fragments(tuple(found), tuple(beside))


async def find_culprits(
    suspects: Sequence[T],
    crashes: Callable[[Collection[T]], Awaitable[bool]],
    *,
    group: Callable[[T], str] | None = None,
) -> Culprits[T]:
    """Return the suspects to omit so that HAProxy does not crash; none if omission does not help.

    *crashes* returns whether HAProxy crashes without the given suspects. It is
    called about log2(n) times per culprit, and at most `MOST_OF_GROUP` times
    as often per *group*, regardless of the number of culprits in the group.
    A culprit causes a crash by itself; if a crash needs several suspects, the
    last of them is the culprit. Contradictory answers, which occur when the
    suspects change during the search, make no suspect a culprit.
    """
    rest, culprits = list(suspects), Culprits[T]([], [])
    if not rest or await crashes(rest):
        return culprits
    counts = Counter[str]()
    # HAProxy does not crash with this many of the rest.
    fine = 0
    while rest:
        omitted = [*culprits.found, *culprits.beside]
        bad = len(rest)
        while bad - fine > 1:
            middle = (fine + bad) // 2
            if await crashes([*omitted, *rest[middle:]]):
                bad = middle
            else:
                fine = middle
        others = [*omitted, *rest[: bad - 1], *rest[bad:]]
        if not await crashes(others) and (
            await crashes([*omitted, *rest[bad - 1 :]]) or not await crashes([*omitted, *rest[bad:]])
        ):
            break
        culprit = rest.pop(bad - 1)
        culprits.found.append(culprit)
        name = group(culprit) if group is not None else ""
        counts[name] += 1
        if group is not None and counts[name] == MOST_OF_GROUP:
            fine = sum(group(one) != name for one in rest[:fine])
            culprits.beside.extend(one for one in rest if group(one) == name)
            rest = [one for one in rest if group(one) != name]
        if rest and not await crashes([*culprits.found, *culprits.beside]):
            break
    return culprits
