"""Settings of servers that runtime commands can change: those of `server` lines, and inherited ones."""

import ipaddress
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from haptic_trio.haproxy.grammar.keywords import shipped_keywords
from haptic_trio.haproxy.grammar.options import walk_options
from haptic_trio.haproxy.grammar.placement import read_header
from haptic_trio.haproxy.model import Bases, Directive, Section

MAX_WEIGHT: Final = 256

# Algorithms that do not depend on the order of servers.
_EVEN_ALGORITHMS: Final = frozenset({"roundrobin", "leastconn", "random"})
_STATIC_ALGORITHM: Final = "static-rr"
_ADDRESS: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<four>[0-9.]+)):(?P<port>[0-9]{1,5})")


class ServerLine(msgspec.Struct, frozen=True):
    """A `server` line, split into settings that runtime commands can change and others."""

    name: str
    address: str
    """As written; see `socket_address`."""
    weight: int | None
    """None if the line does not set it."""
    disabled: bool | None
    """None if the line does not set it."""
    rest: tuple[str, ...]
    """All other words, in order; no command changes them."""

    @property
    def socket_address(self) -> tuple[str, int] | None:
        """IP address and port; None for an address that `set server addr` cannot express, such as a name or socket."""
        return read_address(self.address)


class Member(msgspec.Struct, frozen=True):
    """A server of a section, with the `default-server` lines that apply to it."""

    directive: Directive
    inherited: tuple[Directive, ...]
    """In the order in which HAProxy applies them."""

    @property
    def name(self) -> str:
        """Name of the server."""
        return self.directive.words[1]

    def same_as(self, other: "Member") -> bool:
        """Whether both are the same server with the same settings."""
        return self.key == other.key

    def inherits_as(self, other: "Member") -> bool:
        """Whether both inherit the same."""
        return self.key[1] == other.key[1]

    @property
    def key(self) -> tuple[object, tuple[object, ...]]:
        """Own and inherited words, for comparison."""
        inherited = tuple((one.words, one.raw) for one in self.inherited)
        return (self.directive.words, self.directive.raw), inherited


@lru_cache(maxsize=16_384)
def read_address(text: str) -> tuple[str, int] | None:
    """Return IP address and port of an address in the syntax of a `server` line; None for anything else."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return None
    try:
        address = ipaddress.ip_address(match["six"] or match["four"])
    except ValueError:
        return None
    port = int(match["port"])
    return (str(address), port) if 0 < port < 65536 else None


def read_server(directive: Directive) -> ServerLine | None:
    """Parse a `server` line; None if it has unknown options or refers to the environment."""
    words = directive.words
    if directive.raw or len(words) < 3:
        return None
    weight: int | None = None
    disabled: bool | None = None
    rest: list[str] = []
    end = 3
    for option in walk_options(words, 3, shipped_keywords().server):
        end = option.at + 1 + len(option.values)
        if option.name == "weight":
            if not option.values or not re.fullmatch("[0-9]{1,3}", option.values[0]):
                return None
            weight = int(option.values[0])
        elif option.name in {"disabled", "enabled"}:
            disabled = option.name == "disabled"
        else:
            rest += words[option.at : end]
    if end != len(words) or (weight is not None and weight > MAX_WEIGHT):
        return None
    return ServerLine(words[1], words[2], weight, disabled, tuple(rest))


class ServerSettings:
    """Settings for the servers of a section, from the section and from the *defaults* sections that it is based on."""

    def __init__(self, defaults: Bases, section: Section) -> None:
        self._sections = [section, *_bases_of(defaults, section)]
        self.disabled = any(_has(one, "disabled") for one in self._sections)
        self.all_backups = any("allbackups" in line.words for one in self._sections for line in one.all("option"))
        self.inherited = tuple(line for one in self._sections[:0:-1] for line in one.all("default-server"))
        self.mentioned = {word for one in self._sections for line in one.all("default-server") for word in line.words}

    @property
    def is_certain(self) -> bool:
        """Whether HAProxy reads every line of these sections: no line depends on `.if`."""
        return not any(section.conditional for section in self._sections)

    @property
    def bases(self) -> Sequence[Section]:
        """The `defaults` sections that the section inherits from, the nearest first."""
        return self._sections[1:]

    @property
    def takes_weights(self) -> bool:
        """Whether the load balancing algorithm accepts weight changes and new servers at runtime."""
        name = self._algorithm()
        if name in _EVEN_ALGORITHMS:
            return True
        hash_type = self.last("hash-type")
        return name not in {"", _STATIC_ALGORITHM} and hash_type is not None and hash_type.words[1:2] == ("consistent",)

    @property
    def is_even(self) -> bool:
        """Whether the algorithm does not depend on the order of servers."""
        return self._algorithm() in _EVEN_ALGORITHMS

    def _algorithm(self) -> str:
        line = self.last("balance")
        if line is None:
            return "roundrobin"
        return "" if line.raw or len(line.words) < 2 else line.words[1].partition("(")[0]

    def last(self, keyword: str) -> Directive | None:
        """Return the line with *keyword* that is in effect; None if there is none."""
        for section in self._sections:
            lines = list(section.all(keyword))
            if lines:
                return lines[-1]
        return None

    def members(self, section: Section) -> tuple[Member, ...]:
        """Return the servers of *section*: the section of these settings, or its successor with the same frame."""
        inherited = self.inherited
        found = []
        for line in section.directives:
            if line.keyword == "default-server":
                inherited = (*inherited, line)
            elif line.keyword == "server" and len(line.words) > 1:
                found.append(Member(line, inherited))
        return tuple(found)


def _bases_of(defaults: Bases, section: Section) -> Iterator[Section]:
    """Yield the sections of *defaults* that *section* inherits from, the nearest first."""
    current: Section | None = section
    while current is not None:
        name = read_header(current.header.words).base
        if name:
            named = [one for one in defaults if one.name == name]
            if len(named) > 1:
                named = [one for one in defaults.before(current) if one.name == name]
            current = named[-1] if named else None
        else:
            # Without `from` a proxy inherits from the last defaults section before it; a defaults section does not.
            before = defaults.before(current) if current.kind != "defaults" else ()
            current = before[-1] if before else None
        if current is not None:
            yield current


def names_are_unique(members: Sequence[Member]) -> bool:
    """Whether no two of *members* have the same name."""
    return len({member.name for member in members}) == len(members)


def _has(section: Section, keyword: str) -> bool:
    return next(section.all(keyword), None) is not None
