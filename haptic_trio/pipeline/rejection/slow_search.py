"""Search for the objects and namespaces that make `haproxy -c` slow: measures the CPU time that each adds."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.pipeline.rejection.crash_search import MOST_OF_GROUP, Fragments
from haptic_trio.templating.values.subjects import FragmentKey

MOST_MEASUREMENTS: Final = 60
"""Maximum number of measurements in one search; after that it returns the objects found so far."""

IsSlow = Callable[[Collection[FragmentKey]], Awaitable[bool]]
"""Whether the given fragments, without the other suspects, add more than the allowed CPU time to a check."""


async def find_slow_fragments(suspects: Mapping[ResourceRef, Sequence[FragmentKey]], is_slow: IsSlow) -> Fragments:
    """Return the fragments of *suspects* that are slow by themselves, and those of objects to omit as a whole.

    Objects that are slow only together are not reported (see `find_slow_namespaces`),
    nor is an object that is slow only once in two measurements. The rest of a
    namespace with `MOST_OF_GROUP` slow objects is omitted as a whole if it is
    slow as a whole.
    """
    measurements = 0

    async def measure(refs: Collection[ResourceRef]) -> bool:
        nonlocal measurements
        measurements += 1
        return await is_slow([key for ref in refs for key in suspects[ref]])

    counts = Counter[str]()
    slow: list[ResourceRef] = []
    beside: list[ResourceRef] = []
    parts = [list(suspects)]
    while parts and measurements < MOST_MEASUREMENTS:
        part = parts.pop()
        if not part or not await measure(part):
            continue
        if len(part) > 1:
            middle = len(part) // 2
            parts += part[:middle], part[middle:]
            continue
        # A virtual machine may count the time for which the host did not run it; the lower of two figures is right.
        if not await measure(part):
            continue
        slow += part
        namespace = part[0].namespace
        counts[namespace] += 1
        if counts[namespace] == MOST_OF_GROUP:
            rest = [ref for others in parts for ref in others if ref.namespace == namespace]
            parts = [[ref for ref in others if ref.namespace != namespace] for others in parts]
            if rest and await measure(rest):
                beside += rest
    found: list[FragmentKey] = []
    whole = [key for ref in beside for key in suspects[ref]]
    for ref in slow:
        keys = suspects[ref]
        narrowed = [*keys] if len(keys) == 1 else [key for key in keys if await is_slow([key])]
        found += narrowed
        if not narrowed:
            whole += keys
    return Fragments(tuple(found), tuple(whole))


async def find_slow_namespaces(
    suspects: Mapping[ResourceRef, Sequence[FragmentKey]], is_slow: IsSlow
) -> tuple[FragmentKey, ...]:
    """Return the fragments of *suspects* to omit so that no namespace is slow with the rest of its objects.

    *suspects* are in the order of age, the oldest first: the youngest objects of
    a slow namespace are omitted, as few as possible. Objects without a namespace
    are the administrator's, and are never omitted. Namespaces that are slow only
    together are not reported, nor is one that is slow only once in two measurements.
    """
    measurements = 0

    async def measure(refs: Collection[ResourceRef]) -> bool:
        nonlocal measurements
        measurements += 1
        return await is_slow([key for ref in refs for key in suspects[ref]])

    members: dict[str, list[ResourceRef]] = {}
    for ref in suspects:
        if ref.namespace:
            members.setdefault(ref.namespace, []).append(ref)
    omitted: list[FragmentKey] = []
    # The largest are measured first, since the measurements are limited.
    parts = [sorted(members.values(), key=len)]
    while parts and measurements < MOST_MEASUREMENTS:
        part = parts.pop()
        if not part or not await measure([ref for refs in part for ref in refs]):
            continue
        if len(part) > 1:
            middle = len(part) // 2
            parts += part[:middle], part[middle:]
            continue
        [refs] = part
        if not await measure(refs):
            continue
        # The first `fast` objects are not slow together, the first `slow` objects are.
        fast, slow = 0, len(refs)
        while slow - fast > 1:
            middle = (fast + slow) // 2
            if await measure(refs[:middle]):
                slow = middle
            else:
                fast = middle
        omitted += [key for ref in refs[fast:] for key in suspects[ref]]
    return tuple(omitted)
