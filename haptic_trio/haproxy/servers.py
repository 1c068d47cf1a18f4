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
        self._config = config
        self._defaults_mention = {
            word
            for section in config.sections
            for directive in section.directives
            if directive.words[0] == "default-server"
            for word in directive.words
        }

    def plan(self, section: Section, pairs: Sequence[tuple[Directive, Directive]]) -> list[Operation] | None:
        """Return the operations that carry out the changes in *pairs*; None if a reload is needed."""
        if any(directive.words[0] == "disabled" for directive in section.directives):
            return None
        operations: list[Operation] = []
        for before, after in pairs:
            one, other = read_server(before), read_server(after)
            if one is None or other is None or one.rest != other.rest:
                return None
            steps = list(self._steps(section, one, other))
            if None in steps:
                return None
            operations += [step for step in steps if step is not None]
        return operations

    def _steps(self, section: Section, one: ServerLine, other: ServerLine) -> Iterator[Operation | None]:
        """Yield what turns *one* into *other*; None stands for what only a reload can do."""
        if one.address != other.address:
            yield self._set_address(section, one, other)
        if one.weight != other.weight:
            yield self._set_weight(section, one, other)
        if bool(one.disabled) != bool(other.disabled) or {one.disabled, other.disabled} == {None, False}:
            yield from self._set_state(section, one, other)

    def _set_address(self, section: Section, one: ServerLine, other: ServerLine) -> Operation | None:
        if one.socket_address is None or other.socket_address is None:
            return None
        if not _BOUND_TO_ADDRESS.isdisjoint(one.rest) or not _BOUND_TO_ADDRESS.isdisjoint(self._defaults_mention):
            return None
        return SetServerAddress(section.name, one.name, *other.socket_address)

    def _set_weight(self, section: Section, one: ServerLine, other: ServerLine) -> Operation | None:
        if None in {one.weight, other.weight} and "weight" in self._defaults_mention:
            return None
        if not self._takes_weights(section):
            return None
        # Without a weight anywhere a server has weight 1.
        return SetServerWeight(section.name, one.name, 1 if other.weight is None else other.weight)

    def _set_state(self, section: Section, one: ServerLine, other: ServerLine) -> Iterator[Operation | None]:
        inherited = None in {one.disabled, other.disabled} and "disabled" in self._defaults_mention
        if inherited or "track" in one.rest or "track" in self._defaults_mention:
            yield None
        elif bool(one.disabled) != bool(other.disabled):
            yield SetServerState(section.name, one.name, "maint" if other.disabled else "ready")

    def _takes_weights(self, section: Section) -> bool:
        algorithm = self._last_of(section, "balance")
        if algorithm is None or (len(algorithm.words) > 1 and algorithm.words[1] in _DYNAMIC_ALGORITHMS):
            return True
        if algorithm.raw or algorithm.words[1:2] == (_STATIC_ALGORITHM,):
            return False
        hash_type = self._last_of(section, "hash-type")
        return hash_type is not None and hash_type.words[1:2] == ("consistent",)

    def _last_of(self, section: Section, keyword: str) -> Directive | None:
        """Return the line with *keyword* that holds for *section*: its own last one, or that of its defaults."""
        current: Section | None = section
        while current is not None:
            lines = list(current.all(keyword))
            if lines:
                return lines[-1]
            current = self._base_of(current)
        return None

    def _base_of(self, section: Section) -> Section | None:
        base = read_header(section.header.words).base
        if base:
            return self._config.find("defaults", base)
        if section.kind == "defaults":
            return None
        before = [one for one in self._config.all("defaults") if one.header.line < section.header.line]
        return before[-1] if before else None
