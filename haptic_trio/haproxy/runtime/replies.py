"""Parser for replies of HAProxy's runtime and master sockets."""

import re
from operator import itemgetter
from typing import Final

import msgspec

from haptic_trio.errors import HapticError

MAINTENANCE_FLAGS: Final = 0x01 | 0x02 | 0x20
"""Bits of a server's administrative state that mean maintenance: forced, inherited, or unresolved.

0x04 means only that the configuration has disabled the server; it remains set when the server is made ready.
"""

FORCED_MAINTENANCE: Final = 0x01
FORCED_DRAIN: Final = 0x08
"""Bits that are set by a command, by the configuration, or by an agent."""

DRAIN_FLAGS: Final = 0x08 | 0x10
"""Bits of a server's administrative state that mean draining: forced or inherited."""

_STATE_COLUMNS: Final = (
    *("be_name", "srv_name", "srv_addr", "srv_port", "srv_uweight", "srv_iweight"),
    *("srv_admin_state", "srv_op_state"),
)
_UPTIME: Final = re.compile(r"(?P<days>\d+)d ?(?P<hours>\d+)h(?P<minutes>\d+)m(?P<seconds>\d+)s")


class UnreadableReplyError(HapticError):
    """A reply has an unexpected format. A permanent error for this command."""


class ServerState(msgspec.Struct, frozen=True, gc=False):
    """Current state of a server in the process."""

    backend: str
    server: str
    address: str
    port: int
    weight: int
    """Weight in use; `initial_weight` is the configured one."""
    initial_weight: int
    admin_state: int
    """Bits, see MAINTENANCE_FLAGS and DRAIN_FLAGS."""
    operational_state: int
    """0 stopped, 1 starting, 2 running, 3 stopping."""

    @property
    def forced(self) -> str:
        """The state that was set explicitly, apart from inherited maintenance: `ready`, `drain`, or `maint`."""
        if self.admin_state & FORCED_MAINTENANCE:
            return "maint"
        return "drain" if self.admin_state & FORCED_DRAIN else "ready"

    @property
    def state(self) -> str:
        """The effective state, in the terms of `set server … state`: `ready`, `drain`, or `maint`."""
        if self.admin_state & MAINTENANCE_FLAGS:
            return "maint"
        return "drain" if self.admin_state & DRAIN_FLAGS else "ready"


class Process(msgspec.Struct, frozen=True):
    """A line in the reply to `show proc` of the master."""

    pid: int
    kind: str
    """`master`, `worker`, or `program`."""
    reloads: int
    """For the master: number of its reloads; for a worker: number of reloads since its start."""
    uptime: int
    """Seconds."""
    version: str
    is_old: bool
    """Whether it is a worker that a reload has replaced and that still has connections."""


def parse_servers_state(reply: str) -> tuple[ServerState, ...]:
    """Parse the reply to `show servers state`; raises UnreadableReplyError."""
    lines = [line for line in reply.splitlines() if line]
    if len(lines) < 2 or lines[0] != "1" or not lines[1].startswith("# "):
        raise UnreadableReplyError(f"unexpected reply to 'show servers state': {reply[:100]!r}")
    names = lines[1][2:].split()
    try:
        columns = itemgetter(*(names.index(name) for name in _STATE_COLUMNS))
        return tuple([_server_state(*columns(line.split(" "))) for line in lines[2:]])
    except (IndexError, ValueError) as exc:
        raise UnreadableReplyError("unexpected columns in the reply to 'show servers state'") from exc


def parse_map(reply: str) -> tuple[tuple[str, str], ...]:
    """Parse the reply to `show map <name>`: entries in order; raises UnreadableReplyError."""
    return tuple([(key, value) for key, _, value in (entry.partition(" ") for entry in parse_list(reply))])


def parse_list(reply: str) -> tuple[str, ...]:
    """Parse the reply to `show acl <name>`: keys in order; raises UnreadableReplyError."""
    entries = []
    for line in reply.split("\n"):
        if not line:
            continue
        reference, found, entry = line.partition(" ")
        if not found or not reference.startswith("0x"):
            raise UnreadableReplyError(f"unexpected reply to 'show map' or 'show acl': {line[:100]!r}")
        entries.append(entry)
    return tuple(entries)


def parse_proc(reply: str) -> tuple[Process, ...]:
    """Parse the reply to `show proc` of the master; lines in an unknown format are skipped."""
    processes = []
    is_old = False
    for line in reply.splitlines():
        if line.startswith("#"):
            is_old = line.startswith("# old")
            continue
        words = line.split()
        if len(words) >= 4 and words[0].isdecimal() and words[2].isdecimal():
            version = words[4] if len(words) > 4 else ""
            processes.append(Process(int(words[0]), words[1], int(words[2]), _seconds(words[3]), version, is_old))
    return tuple(processes)


def _server_state(
    backend: str, server: str, address: str, port: str, weight: str, initial: str, admin: str, operational: str
) -> ServerState:
    return ServerState(backend, server, address, int(port), int(weight), int(initial), int(admin), int(operational))


def _seconds(uptime: str) -> int:
    match = _UPTIME.fullmatch(uptime)
    if match is None:
        return 0
    days, hours, minutes, seconds = (int(match[part]) for part in ("days", "hours", "minutes", "seconds"))
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
