"""Addresses for Gateways: run in a Pod before HAProxy, this gives its network card more of them.

python -m tests.conformance.addresses 10.244.200.1 10.244.200.2 ...
"""

import sys
from ipaddress import IPv4Address, IPv4Interface
from typing import Final

from tests.cluster.node.netlink import Netlink

CARD: Final = "eth0"
POOL: Final = tuple(str(IPv4Address("10.244.200.1") + number) for number in range(100))
"""What Gateways may have; Pods get other addresses, unless ten thousand have been before them."""
STATIC: Final = "10.244.200.200"
"""An address that works, and that no Gateway gets without asking for it."""
UNUSABLE: Final = "192.0.2.1"
"""An address that leads nowhere: of the range for documentation (RFC 5737)."""


def main() -> int:
    """Add the addresses of the command line."""
    with Netlink() as here:
        for one in sys.argv[1:]:
            # /32: they are no source address.
            here.add_address(CARD, IPv4Interface(f"{one}/32"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
