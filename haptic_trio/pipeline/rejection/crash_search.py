"""Finds what HAProxy crashes on: a crash names no line, so parts of the configuration are left out."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.templating.values.subjects import FragmentKey

T = TypeVar("T")

MOST_OF_GROUP: Final = 4
"""Culprits of one group that are searched for one by one; then the rest of the group is left out with them."""


class Culprits(NamedTuple, Generic[T]):
    """What has to be left out so that there is no crash."""

    found: list[T]
    """Each of these is a culprit."""
    beside: list[T]
    """These are left out because their group has too many culprits."""


class Fragments(NamedTuple):
    """Fragments to leave out so that there is no crash."""

    found: tuple[FragmentKey, ...]
    """HAProxy crashes on the output of each of these."""
    beside: tuple[FragmentKey, ...]
    """These belong to objects that are left out as a whole."""


async def find_fragments(
    suspects: Mapping[ResourceRef, Sequence[FragmentKey]],
    crashes: Callable[[Collection[FragmentKey]], Awaitable[bool]],
) -> Fragments:
    """Return the fragments of *suspects* to leave out so that there is no crash; none if that does not help.

    Whole objects are left out first, so that what is left fits together;
    then the fragments of each culprit are searched. *crashes* is as for
    `find_culprits`.
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

        async def crashes_with_others_left_out(
            keys: Collection[FragmentKey], others: list[FragmentKey] = others
        ) -> bool:
            return await crashes([*others, *keys])

        keys = suspects[ref]
        narrowed = [*keys] if len(keys) == 1 else (await find_culprits(keys, crashes_with_others_left_out)).found
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
    """Return those of *suspects* to leave out so that there is no crash; none if that does not help.

    *crashes* says whether there is a crash without the given suspects. It is
    asked about log2 of their number for each culprit, and for each *group*
    at most `MOST_OF_GROUP` times as often, however many culprits it has.
    A culprit is enough for a crash by itself; where a crash takes several
    suspects, the last of them is the culprit. Answers that contradict each
    other, since the suspects change meanwhile, make nobody a culprit.
    """
    rest, culprits = list(suspects), Culprits[T]([], [])
    if not rest or await crashes(rest):
        return culprits
    counts = Counter[str]()
    # With this many of the rest there is no crash.
    fine = 0
    while rest:
        left_out = [*culprits.found, *culprits.beside]
        bad = len(rest)
        while bad - fine > 1:
            middle = (fine + bad) // 2
            if await crashes([*left_out, *rest[middle:]]):
                bad = middle
            else:
                fine = middle
        others = [*left_out, *rest[: bad - 1], *rest[bad:]]
        if not await crashes(others) and (
            await crashes([*left_out, *rest[bad - 1 :]]) or not await crashes([*left_out, *rest[bad:]])
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
