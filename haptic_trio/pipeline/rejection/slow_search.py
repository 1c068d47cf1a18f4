"""Finds the objects that make `haproxy -c` slow: each is tried without the others, and its CPU time counts."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.pipeline.rejection.crash_search import MOST_OF_GROUP, Fragments
from haptic_trio.templating.values.subjects import FragmentKey

MOST_QUESTIONS: Final = 60
"""How often is asked in one search; what has been found by then is the result."""

IsSlow = Callable[[Collection[FragmentKey]], Awaitable[bool]]
"""Whether the given fragments, and none of the other suspects, add more to the CPU time of a check than they may."""


async def find_slow_fragments(suspects: Mapping[ResourceRef, Sequence[FragmentKey]], is_slow: IsSlow) -> Fragments:
    """Return the fragments of *suspects* that are slow by themselves, and those of objects to leave out as a whole.

    Many objects that are slow only together are none of them: then the result
    is empty. The rest of a namespace with `MOST_OF_GROUP` slow objects is left
    out as one, if it is slow as one.
    """
    questions = 0

    async def ask(refs: Collection[ResourceRef]) -> bool:
        nonlocal questions
        questions += 1
        return await is_slow([key for ref in refs for key in suspects[ref]])

    counts = Counter[str]()
    slow: list[ResourceRef] = []
    beside: list[ResourceRef] = []
    parts = [list(suspects)]
    while parts and questions < MOST_QUESTIONS:
        part = parts.pop()
        if not part or not await ask(part):
            continue
        if len(part) > 1:
            middle = len(part) // 2
            parts += part[:middle], part[middle:]
            continue
        slow += part
        namespace = part[0].namespace
        counts[namespace] += 1
        if counts[namespace] == MOST_OF_GROUP:
            rest = [ref for others in parts for ref in others if ref.namespace == namespace]
            parts = [[ref for ref in others if ref.namespace != namespace] for others in parts]
            if rest and await ask(rest):
                beside += rest
    found: list[FragmentKey] = []
    left_out = [key for ref in beside for key in suspects[ref]]
    for ref in slow:
        keys = suspects[ref]
        narrowed = [*keys] if len(keys) == 1 else [key for key in keys if await is_slow([key])]
        found += narrowed
        if not narrowed:
            left_out += keys
    return Fragments(tuple(found), tuple(left_out))
