"""Filter for lists of addresses that others publish, such as addresses of bots: one address or network in each line."""

import ipaddress
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.values.faults import TemplateFaultError
from haptic_trio.templating.values.marks import strip_marks
from haptic_trio.templating.values.text import Emitted

_COMMENT: Final = re.compile(r"[#;]")
_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4: Final = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}").fullmatch


def address_list(value: Any, most: int = 100_000) -> Emitted:
    """Entries of a map, `<network> yes`, for each line of *value* that has an address or a network (CIDR).

    Blank lines, and comments after `#` or `;`, are left out; repeated networks
    too. The list is rejected, with the number of the line, if a line has
    anything else or a network of all addresses, and if it has more than *most* networks.
    """
    if not isinstance(value, str):
        raise TemplateFaultError("address_list expects text")
    return _entries(strip_marks(value), most)


# A render of a template without fragments asks again for lists that did not change.
@lru_cache(maxsize=32)
def _entries(text: str, most: int) -> Emitted:
    found: dict[str, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if entry := _COMMENT.split(line, maxsplit=1)[0].strip():
            found[f"{entry}/32" if _IPV4(entry) else _network(entry, number)] = None
            if len(found) > most:
                raise EmitError(f"address_list: line {number}: the list has more than {most:,} networks")
    return Emitted("".join(f"{network} yes\n" for network in found))


def _network(entry: str, number: int) -> str:
    try:
        # The spelling with a zone is one of Python alone.
        network = ipaddress.ip_network(entry, strict=False) if "%" not in entry else None
    except ValueError:
        network = None
    if network is None:
        raise EmitError(
            f"address_list: line {number} is neither an address nor a network",
            "one in each line, such as 192.0.2.7 or 2001:db8::/32; comments begin with # or ;",
        )
    if network.prefixlen == 0:
        raise EmitError(f"address_list: line {number} is every address")
    return str(network)


ADDRESS_LISTS: Final[dict[str, Callable[..., Any]]] = {"address_list": address_list}
