"""Filter for topology hints of EndpointSlices: the endpoints that clients of a zone leave to others."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from haptic_trio.templating.filters.selection import dig

_NOTHING: Final[list[Any]] = []


def far_addresses(slices: Iterable[Mapping[str, Any]], zone: Any) -> list[str]:
    """The first addresses of the ready endpoints in *slices* whose hints do not name *zone*; none without a zone.

    As in kube-proxy, hints count only if every ready endpoint has some, and at
    least one of them names the zone: otherwise no endpoint is far.
    """
    if not zone:
        return []
    near, far = 0, list[str]()
    for one in slices:
        for endpoint in dig(one, "endpoints", _NOTHING):
            if not dig(endpoint, "conditions.ready", True):
                continue
            hints = dig(endpoint, "hints.forZones", _NOTHING)
            if not hints:
                return []
            if any(dig(hint, "name", "") == zone for hint in hints):
                near += 1
            else:
                far += dig(endpoint, "addresses", _NOTHING)[:1]
    return far if near else []
