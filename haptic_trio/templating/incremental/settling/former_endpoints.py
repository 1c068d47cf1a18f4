"""Endpoints in former outputs: those that have been removed meanwhile are left out.

A rejected object may be served by its last good version for a long time.
Meanwhile the address of one of its servers may become that of a pod of another
tenant, who would get its requests. Such an address is removed from a `server`
line, together with the line, and from the end of a map entry. All former
addresses stay while an EndpointSlice has an invalid address: the owner has
made a mistake, and the endpoints that it means are unknown.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from ipaddress import ip_address
from traceback import walk_tb
from typing import Any, Final

import msgspec

from haptic_trio.logs import get_logger
from haptic_trio.templating.incremental.outputs import FragmentOutput
from haptic_trio.templating.incremental.questions import Dependency, Question
from haptic_trio.templating.values.report import describe

_ADDRESS: Final = r"(\[[0-9A-Fa-f:.]+\]|[0-9.]+):[0-9]+"
_SERVER: Final = re.compile(rf"^[ \t]+server[ \t]+[^ \t\n]+[ \t]+{_ADDRESS}[^\n]*\n?", re.MULTILINE)
_ENTRY_END: Final = re.compile(rf"(?<=[^\n])(?:,{_ADDRESS})+$", re.MULTILINE)
_ITEM: Final = re.compile(rf",{_ADDRESS}")
_BLANK: Final = " \t"
_UNREADABLE: Final = ""
"""Stands for each invalid address."""
_ANY: Final = "0.0.0.0"  # noqa: S104  not an address to bind: that of servers whose address a rule sets


def endpoint_lookups(asked: Iterable[Dependency], stores: frozenset[str]) -> tuple[Question, ...]:
    """Return the lookups of whole objects among *asked* in *stores*, which hold EndpointSlices."""
    return tuple(one for one in asked if isinstance(one, tuple) and one[0] == "get" and one[1] in stores)


def as_it_may_be(
    output: FragmentOutput, variables: Mapping[str, Any], look_up: Callable[[Question], AbstractSet[str]]
) -> FragmentOutput | None:
    """Return *output*, a former one, as it may be used now; None if it may not. See `FragmentOutput.conditions`."""
    try:
        return _revised(output, variables, look_up)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  whatever breaks it must break the object of the output alone
        # The message may quote a value: `describe` removes it.
        get_logger("templating").warning(
            "last good version is not usable: it cannot be revised",
            object=_name_of(output.resource),
            error=describe(error)[0],
            place=_place_of(error),
        )
        return None


def _name_of(resource: Any) -> str:
    metadata = resource.get("metadata") if isinstance(resource, Mapping) else None
    if not isinstance(metadata, Mapping):
        return ""
    return f"{resource.get('kind')} {metadata.get('namespace') or ''}/{metadata.get('name')}"


def _place_of(error: Exception) -> str:
    frames = list(walk_tb(error.__traceback__))
    frame, line = frames[-1]
    return f"{frame.f_globals.get('__name__', '')}:{line}"


def _revised(
    output: FragmentOutput, variables: Mapping[str, Any], look_up: Callable[[Question], AbstractSet[str]]
) -> FragmentOutput | None:
    found = without_former(output, look_up)
    text = found.text
    for condition in found.conditions:
        revised = condition(variables["resources"], text)
        if revised is None:
            return None
        text = revised
    return found if text == found.text else with_text(found, text)


def with_text(output: FragmentOutput, text: str) -> FragmentOutput:
    """Return *output* with another *text*, which counts for its object as a whole."""
    return msgspec.structs.replace(
        output,
        text=text,
        own_text=None,
        inner_files=frozenset(),
        original=output.original or output,
        is_renewed=False,
    )


def without_former(output: FragmentOutput, look_up: Callable[[Question], AbstractSet[str]]) -> FragmentOutput:
    """Return *output* without addresses that its EndpointSlices no longer have; *output* itself if it has none.

    *look_up* returns the `addresses_in` what a lookup finds now.
    """
    if not output.endpoints:
        return output
    present = {_ANY}.union(*map(look_up, output.endpoints))
    if _UNREADABLE in present:
        return output

    def is_former(match: re.Match[str]) -> bool:
        return _canonical(match[1].strip("[]")) not in present

    def of_entry(match: re.Match[str]) -> str:
        start = match.string.rfind("\n", 0, match.start()) + 1
        if match.string[start] in _BLANK:
            return match[0]
        return "".join(item[0] for item in _ITEM.finditer(match[0]) if not is_former(item))

    text = _SERVER.sub(lambda match: "" if is_former(match) else match[0], output.text)
    text = _ENTRY_END.sub(of_entry, text)
    if text == output.text:
        return output
    return with_text(output, text)


def addresses_in(found: Sequence[Any]) -> frozenset[str]:
    """Return the addresses in EndpointSlices, and `_UNREADABLE` for invalid ones.

    It is a lookup aspect, so it is asked once for very many outputs.
    """
    return frozenset(
        _canonical(address)
        for one in found
        for endpoint in _items_of(one, "endpoints")
        for address in _items_of(endpoint, "addresses")
        if isinstance(address, str)
    )


def _items_of(value: Any, field: str) -> Sequence[Any]:
    """Return the list in *field*; empty for anything else: a malformed object must fail no other one."""
    found = value.get(field) if isinstance(value, Mapping) else None
    return found if isinstance(found, list | tuple) else ()


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        return _UNREADABLE
