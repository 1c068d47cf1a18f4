"""What a running HAProxy can be told about a server whose line changed."""

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from haptic_trio.haproxy.diff import same_words
from haptic_trio.haproxy.grammar import read_header
from haptic_trio.haproxy.keywords import shipped_keywords
from haptic_trio.haproxy.model import Config, Directive, Section
from haptic_trio.haproxy.operations import Operation, SetServerAddress, SetServerState, SetServerWeight
from haptic_trio.haproxy.options import walk_options

MAX_WEIGHT: Final = 256

# Algorithms that take a new weight at any time; the others do with `hash-type consistent` only.
_DYNAMIC_ALGORITHMS: Final = frozenset({"roundrobin", "leastconn", "random"})
_STATIC_ALGORITHM: Final = "static-rr"
# With these the address means more than where to connect to.
_BOUND_TO_ADDRESS: Final = frozenset({"resolvers", "init-addr", "hash-key"})
_ADDRESS: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<four>[0-9.]+)):(?P<port>[0-9]{1,5})")


class ServerLine(msgspec.Struct, frozen=True):
    """A `server` line as far as runtime commands reach."""

    name: str
    address: str
    """As written; see `socket_address`."""
    weight: int | None
    """None where the line says nothing."""
    disabled: bool | None
    """None where the line says nothing."""
    rest: tuple[str, ...]
    """Everything else, in order: only a reload changes it."""

    @property
    def socket_address(self) -> tuple[str, int] | None:
        """IP address and port; None for names, sockets, and everything else that `set server addr` cannot express."""
        match = _ADDRESS.fullmatch(self.address)
        if match is None:
            return None
        try:
            address = ipaddress.ip_address(match["six"] or match["four"])
        except ValueError:
            return None
        port = int(match["port"])
        return (str(address), port) if 0 < port < 65536 else None


def read_server(directive: Directive) -> ServerLine | None:
    """Take a `server` line apart; None where its options are not all known or refer to the environment."""
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


def pair_servers(running: Section, desired: Section) -> list[tuple[Directive, Directive]] | None:
    """Return the `server` lines that differ if nothing else does, each with its counterpart of the same name."""
    if len(running.directives) != len(desired.directives) or not same_words(running.header, desired.header):
        return None
    pairs = []
    for before, after in zip(running.directives, desired.directives, strict=True):
        if same_words(before, after):
            continue
        if before.words[0] != "server" or before.words[:2] != after.words[:2]:
            return None
        pairs.append((before, after))
    return pairs


class ServerPlanner:
    """Turns changed `server` lines of one running configuration into operations."""

    def __init__(self, config: Config) -> None:
        self._defaults = list(config.all("defaults"))

    def plan(self, section: Section, pairs: Sequence[tuple[Directive, Directive]]) -> list[Operation] | None:
        """Return the operations that carry out the changes in *pairs*; None if a reload is needed."""
        settings = _Settings([section, *self._bases_of(section)])
        if settings.disabled:
            return None
        operations: list[Operation] = []
        for before, after in pairs:
            one, other = read_server(before), read_server(after)
            if one is None or other is None or one.rest != other.rest:
                return None
            for step in _steps(section.name, settings, one, other):
                if step is None:
                    return None
                operations.append(step)
        return operations

    def _bases_of(self, section: Section) -> Iterator[Section]:
        """Yield the defaults sections that *section* takes its settings from, the nearest first."""
        current: Section | None = section
        while current is not None:
            name, line = read_header(current.header.words).base, current.header.line
            before = [one for one in self._defaults if one.header.line < line]
            if name:
                current = next((one for one in before if one.name == name), None)
            else:
                # Without a name a proxy takes the last defaults section before it; one of those takes none.
                current = before[-1] if before and current.kind != "defaults" else None
            if current is not None:
                yield current


class _Settings:
    """What a section and its defaults say about their servers."""

    def __init__(self, sections: Sequence[Section]) -> None:
        self._sections = sections
        self.disabled = any(_has(section, "disabled") for section in sections)
        self.mentioned = {
            word for section in sections for directive in section.all("default-server") for word in directive.words
        }

    @property
    def takes_weights(self) -> bool:
        """Whether the load balancing algorithm takes a new weight at any time."""
        algorithm = self._last("balance")
        if algorithm is None:
            return True
        if algorithm.raw or len(algorithm.words) < 2:
            return False
        name = algorithm.words[1].partition("(")[0]
        if name in _DYNAMIC_ALGORITHMS or name == _STATIC_ALGORITHM:
            return name != _STATIC_ALGORITHM
        hash_type = self._last("hash-type")
        return hash_type is not None and hash_type.words[1:2] == ("consistent",)

    def _last(self, keyword: str) -> Directive | None:
        for section in self._sections:
            lines = list(section.all(keyword))
            if lines:
                return lines[-1]
        return None


def _has(section: Section, keyword: str) -> bool:
    return next(section.all(keyword), None) is not None


def _steps(backend: str, settings: _Settings, one: ServerLine, other: ServerLine) -> Iterator[Operation | None]:
    """Yield what turns *one* into *other*; None stands for what only a reload can do."""
    if one.address != other.address:
        yield _set_address(backend, settings, one, other)
    if one.weight != other.weight:
        yield _set_weight(backend, settings, one, other)
    if one.disabled != other.disabled:
        yield from _set_state(backend, settings, one, other)


def _set_address(backend: str, settings: _Settings, one: ServerLine, other: ServerLine) -> Operation | None:
    if one.socket_address is None or other.socket_address is None:
        return None
    if not _BOUND_TO_ADDRESS.isdisjoint(one.rest) or not _BOUND_TO_ADDRESS.isdisjoint(settings.mentioned):
        return None
    return SetServerAddress(backend, one.name, *other.socket_address)


def _set_weight(backend: str, settings: _Settings, one: ServerLine, other: ServerLine) -> Operation | None:
    if not settings.takes_weights or (None in {one.weight, other.weight} and "weight" in settings.mentioned):
        return None
    # Without a weight anywhere a server has weight 1.
    return SetServerWeight(backend, one.name, 1 if other.weight is None else other.weight)


def _set_state(backend: str, settings: _Settings, one: ServerLine, other: ServerLine) -> Iterator[Operation | None]:
    inherited = None in {one.disabled, other.disabled} and "disabled" in settings.mentioned
    if inherited or "track" in one.rest or "track" in settings.mentioned:
        yield None
    elif bool(one.disabled) != bool(other.disabled):
        yield SetServerState(backend, one.name, "maint" if other.disabled else "ready")
