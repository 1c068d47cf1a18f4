"""Check whether an address belongs to an interface of this machine; asks the kernel each time.

Interfaces get and lose addresses while the process runs, so nothing is kept.
No packet is sent.
"""

import re
import socket
from pathlib import Path
from typing import Final

_PROBES: Final = {socket.AF_INET: "203.0.113.253", socket.AF_INET6: "2001:db8::fffd"}
"""Addresses of the documentation, which no interface has: a system that binds these binds anything."""
_TABLE: Final = Path("/proc/net/fib_trie")


def is_own_address(address: str) -> bool:
    """Whether connecting to *address*, an IP address, leads to this machine."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if _is_source(family, address):
        return True
    # The second address of an interface is not a source. A system that binds anything (ip_nonlocal_bind) has a table.
    return _can_bind(family, address) and (not _can_bind(family, _PROBES[family]) or _is_routed_here(address))


def _can_bind(family: socket.AddressFamily, address: str) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _is_source(family: socket.AddressFamily, address: str) -> bool:
    """Whether what is sent to *address* would come from it."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Only looks for a route.
            probe.connect((address, 9))
            return bool(probe.getsockname()[0] == address)
    except OSError:
        return False


def _is_routed_here(address: str) -> bool:
    try:
        table = _TABLE.read_text()
    except OSError:
        return False
    return re.search(rf"\|-- {re.escape(address)}\n\s*/32 host LOCAL", table) is not None
