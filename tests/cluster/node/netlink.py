"""Links, addresses and routes of a network namespace, by rtnetlink: no `ip` command is needed.

Requests and attributes are those of linux/rtnetlink.h, linux/if_link.h and linux/if_addr.h. A `Netlink` speaks to the
namespace in which it was opened.
"""

import fcntl
import os
import socket
import struct
from ipaddress import IPv4Address, IPv4Interface
from typing import Final, Self

_NEWLINK: Final = 16
_SETLINK: Final = 19
_NEWADDR: Final = 20
_DELADDR: Final = 21
_NEWROUTE: Final = 24
_ERROR: Final = 2
_REQUEST: Final = 0x1
_ACK: Final = 0x4
_CREATE: Final = 0x400 | 0x200  # with NLM_F_EXCL: what exists already is an error
_IFF_UP: Final = 1

_IFLA_IFNAME: Final = 3
_IFLA_MASTER: Final = 10
_IFLA_LINKINFO: Final = 18
_IFLA_NET_NS_FD: Final = 28
_INFO_KIND: Final = 1
_INFO_DATA: Final = 2
_VETH_PEER: Final = 1
_IFA_ADDRESS: Final = 1
_IFA_LOCAL: Final = 2
_RTA_GATEWAY: Final = 5
_SIOCGIFINDEX: Final = 0x8933


class Netlink:
    """A conversation with the kernel about one network namespace; every method raises OSError when rejected."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))
        self._sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def add_bridge(self, name: str) -> None:
        """Create a bridge, which is up."""
        info = _attribute(_IFLA_LINKINFO, _attribute(_INFO_KIND, b"bridge"))
        self._ask(_NEWLINK, _CREATE, _link(up=True) + _named(name) + info)

    def add_pair(self, name: str, master: str, peer: str, peer_namespace: int) -> None:
        """Create a veth pair: *name*, up and in the bridge *master*; *peer* in the namespace of that descriptor."""
        inner = _link() + _named(peer) + _attribute(_IFLA_NET_NS_FD, struct.pack("=I", peer_namespace))
        data = _attribute(_INFO_KIND, b"veth") + _attribute(_INFO_DATA, _attribute(_VETH_PEER, inner))
        body = _link(up=True) + _named(name) + _attribute(_IFLA_LINKINFO, data)
        self._ask(_NEWLINK, _CREATE, body + _attribute(_IFLA_MASTER, _index(self.index_of(master))))

    def set_up(self, name: str) -> None:
        """Set the link *name* up."""
        self._ask(_SETLINK, 0, _link(self.index_of(name), up=True))

    def add_address(self, name: str, address: IPv4Interface) -> None:
        """Give the link *name* an address; the network of its prefix becomes reachable through it."""
        self._ask(_NEWADDR, _CREATE, self._address(name, address))

    def remove_address(self, name: str, address: IPv4Interface) -> None:
        """Take an address from the link *name*."""
        self._ask(_DELADDR, 0, self._address(name, address))

    def add_default_route(self, gateway: IPv4Address) -> None:
        """Send all else by way of *gateway*."""
        # family, lengths, tos, table main, protocol boot, scope universe, type unicast
        header = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 3, 0, 1, 0)
        self._ask(_NEWROUTE, _CREATE, header + _attribute(_RTA_GATEWAY, gateway.packed))

    def index_of(self, name: str) -> int:
        """Return the number of the link *name*."""
        reply = fcntl.ioctl(self._socket, _SIOCGIFINDEX, struct.pack("16s24x", name.encode()))
        return int(struct.unpack("16xi20x", reply)[0])

    def _address(self, name: str, address: IPv4Interface) -> bytes:
        header = struct.pack("=BBBBI", socket.AF_INET, address.network.prefixlen, 0, 0, self.index_of(name))
        packed = address.ip.packed
        return header + _attribute(_IFA_LOCAL, packed) + _attribute(_IFA_ADDRESS, packed)

    def _ask(self, kind: int, flags: int, body: bytes) -> None:
        self._sequence += 1
        header = struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | _ACK | flags, self._sequence, 0)
        self._socket.send(header + body)
        reply = self._socket.recv(65536)
        reply_kind, status = struct.unpack_from("=4xH10xi", reply)
        assert reply_kind == _ERROR, "one request has one acknowledgement"
        if status:
            raise OSError(-status, os.strerror(-status))


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _named(name: str) -> bytes:
    return _attribute(_IFLA_IFNAME, name.encode() + b"\0")


def _index(number: int) -> bytes:
    return struct.pack("=I", number)


def _link(index: int = 0, *, up: bool = False) -> bytes:
    flag = _IFF_UP if up else 0
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flag, flag)
