"""Planner for changed servers of a section.

A server that stays is changed by commands if possible. A new server is added
with all its settings, since `add server` ignores `default-server`; a removed
one is deleted. A server with a change that no command supports is deleted and
added again, provided that another server serves meanwhile.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from haptic_trio.haproxy.config.servers import Member, ServerLine, ServerSettings, names_are_unique, read_server
from haptic_trio.haproxy.grammar.keywords import shipped_keywords
from haptic_trio.haproxy.grammar.options import walk_options
from haptic_trio.haproxy.model import Bases, Section
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.commands import is_sendable
from haptic_trio.haproxy.plan.diff import same_words
from haptic_trio.haproxy.plan.operations import (
    AddServer,
    DeleteServer,
    EnableChecks,
    Operation,
    SetServerAddress,
    SetServerState,
    SetServerWeight,
)
from haptic_trio.haproxy.plan.steps import Phase, Step

# Options with which the address has more effects than the destination of connections.
_BOUND_TO_ADDRESS: Final = frozenset({"resolvers", "init-addr", "hash-key"})
# Options that `no-` resets to the default, for example to override a default-server.
_SWITCHES: Final = frozenset(
    {
        *("agent-check", "backup", "check", "check-send-proxy", "check-ssl", "send-proxy", "send-proxy-v2"),
        *("send-proxy-v2-ssl", "send-proxy-v2-ssl-cn", "ssl"),
    }
)


class AddArguments(msgspec.Struct, frozen=True):
    """Arguments of `add server` for one server."""

    address: str
    options: dict[str, tuple[str, ...]]
    """Words of each option, by name."""
    disabled: bool

    @property
    def words(self) -> tuple[str, ...]:
        """The words after the address."""
        return tuple(word for words in self.options.values() for word in words)


def plan_servers(defaults: Bases, before: Section, after: Section, capabilities: Capabilities) -> list[Step] | None:
    """Return the steps from *before*, a backend of a configuration with *defaults*, to *after*.

    None if a reload is needed: for example if anything but servers differs,
    or if lines depend on `.if`. Both sections must inherit the same settings.
    """
    if not _same_frame(before, after):
        return None
    settings = ServerSettings(defaults, before)
    running, desired = settings.members(before), settings.members(after)
    if settings.disabled or not (settings.is_certain and names_are_unique(running) and names_are_unique(desired)):
        return None
    change = _Change(before.name, settings, running, desired)
    if change.alters_only and change.keeps_order:
        return change.altered
    if not (capabilities.servers and settings.takes_weights and change.keeps_order and change.keeps_serving):
        return None
    return change.plan_members(capabilities)


def add_server(backend: str, member: Member, capabilities: Capabilities) -> list[Step] | None:
    """Return the steps that add *member* to a backend; None if no command can."""
    arguments = add_arguments(member, capabilities)
    if arguments is None:
        return None
    steps: list[Step] = [(Phase.ADD, AddServer(backend, member.name, arguments.address, arguments.words))]
    if not arguments.disabled:
        steps.append((Phase.ENABLE, SetServerState(backend, member.name, "ready")))
    if "check" in arguments.options:
        steps.append((Phase.ENABLE, EnableChecks(backend, member.name)))
    if "agent-check" in arguments.options:
        steps.append((Phase.ENABLE, EnableChecks(backend, member.name, agent=True)))
    return steps


def add_arguments(member: Member, capabilities: Capabilities) -> AddArguments | None:
    """Return the arguments of `add server` for *member*, inherited settings included; None if they cannot be sent."""
    line = read_server(member.directive)
    if line is None or line.socket_address is None or any(one.raw for one in member.inherited):
        return None
    words = (*(word for one in member.inherited for word in one.words[1:]), *member.directive.words[3:])
    options: dict[str, tuple[str, ...]] = {}
    end, disabled = 0, False
    for option in walk_options(words, 0, shipped_keywords().server):
        end = option.at + 1 + len(option.values)
        if option.name in {"disabled", "enabled"}:
            disabled = option.name == "disabled"
        elif option.name.startswith("no-") and option.name[3:] in _SWITCHES:
            options.pop(option.name[3:], None)
        elif option.name in capabilities.server_options:
            options[option.name] = words[option.at : end]
        else:
            return None
    can_send = end == len(words) and all(is_sendable(word) for one in options.values() for word in one)
    return AddArguments(line.address, options, disabled) if can_send else None


def _same_frame(before: Section, after: Section) -> bool:
    """Whether everything except the servers is equal."""
    one, other = ([line for line in section.directives if line.keyword != "server"] for section in (before, after))
    return (
        len(one) == len(other)
        and same_words(before.header, after.header)
        and all(map(same_words, one, other))
        and all(len(line.words) > 1 for section in (before, after) for line in section.all("server"))
    )


class _Change:
    """Classification of the servers of a section: unchanged, altered, replaced, removed, and added."""

    def __init__(
        self, backend: str, settings: ServerSettings, running: Sequence[Member], desired: Sequence[Member]
    ) -> None:
        self._backend = backend
        self._settings = settings
        self._running = running
        self._desired = desired
        self.altered: list[Step] = []
        self._replaced: list[str] = []
        self._kept: set[str] = set()
        after = {member.name: member for member in desired}
        self._removed = [member.name for member in running if member.name not in after]
        for member in running:
            if member.name in after:
                self._compare(member, after[member.name])
        known = {member.name for member in running}
        self._added = [member for member in desired if member.name not in known or member.name in self._replaced]

    def _compare(self, member: Member, other: Member) -> None:
        steps = [] if member.same_as(other) else _alter(self._backend, self._settings, member, other)
        if steps is None:
            self._replaced.append(member.name)
        else:
            self.altered += [(Phase.ALTER, step) for step in steps]
            self._kept.add(member.name)

    @property
    def alters_only(self) -> bool:
        return not (self._removed or self._added)

    @property
    def keeps_order(self) -> bool:
        """Whether the order of servers, as far as it matters, is that of a newly started process."""
        running = [member.name for member in self._running]
        desired = [member.name for member in self._desired]
        if not self._settings.is_even:
            # Such an algorithm depends on the ids of servers, which count from 1 in a newly started process.
            grown = not self._replaced and desired[: len(running)] == running
            shrunk = not self._replaced and running[: len(desired)] == desired
            return running == desired if self.alters_only else grown or shrunk
        if self._settings.all_backups:
            return True
        # Of several backup servers the first one is used.
        backups = {member.name for member in self._desired if _mentions(member, "backup")}
        result = [name for name in running if name in self._kept] + [member.name for member in self._added]
        return [name for name in result if name in backups] == [name for name in desired if name in backups]

    @property
    def keeps_serving(self) -> bool:
        """Whether another server serves while one is replaced."""
        return not self._replaced or any(
            not _mentions(member, "disabled") and not _mentions(member, "backup")
            for member in self._desired
            if member.name in self._kept
        )

    def plan_members(self, capabilities: Capabilities) -> list[Step] | None:
        steps = list(self.altered)
        for member in self._added:
            added = add_server(self._backend, member, capabilities)
            if added is None:
                return None
            if member.name in self._replaced:
                added = [(max(phase, Phase.REPLACE), operation) for phase, operation in added]
                steps.append((Phase.REPLACE, DeleteServer(self._backend, member.name)))
            steps += added
        steps += [(Phase.REMOVE, DeleteServer(self._backend, name)) for name in self._removed]
        return steps


def _mentions(member: Member, word: str) -> bool:
    return any(word in line.words for line in (*member.inherited, member.directive))


def _alter(backend: str, settings: ServerSettings, before: Member, after: Member) -> list[Operation] | None:
    one, other = read_server(before.directive), read_server(after.directive)
    if one is None or other is None or one.rest != other.rest or not before.inherits_as(after):
        return None
    steps: list[Operation] = []
    for step in _steps(backend, settings, one, other):
        if step is None:
            return None
        steps.append(step)
    return steps


def _steps(backend: str, settings: ServerSettings, one: ServerLine, other: ServerLine) -> Iterator[Operation | None]:
    """Yield what turns *one* into *other*; None stands for what no command can do."""
    if one.address != other.address:
        yield _set_address(backend, settings, one, other)
    if one.weight != other.weight:
        yield _set_weight(backend, settings, one, other)
    if one.disabled != other.disabled:
        yield from _set_state(backend, settings, one, other)


def _set_address(backend: str, settings: ServerSettings, one: ServerLine, other: ServerLine) -> Operation | None:
    place = other.socket_address
    if place is None or one.socket_address is None:
        return None
    if not _BOUND_TO_ADDRESS.isdisjoint(one.rest) or not _BOUND_TO_ADDRESS.isdisjoint(settings.mentioned):
        return None
    return SetServerAddress(backend, one.name, *place)


def _set_weight(backend: str, settings: ServerSettings, one: ServerLine, other: ServerLine) -> Operation | None:
    if not settings.takes_weights or (None in {one.weight, other.weight} and "weight" in settings.mentioned):
        return None
    # Without a weight anywhere a server has weight 1.
    return SetServerWeight(backend, one.name, 1 if other.weight is None else other.weight)


def _set_state(
    backend: str, settings: ServerSettings, one: ServerLine, other: ServerLine
) -> Iterator[Operation | None]:
    inherited = None in {one.disabled, other.disabled} and "disabled" in settings.mentioned
    if inherited or "track" in one.rest or "track" in settings.mentioned:
        yield None
    elif bool(one.disabled) != bool(other.disabled):
        yield SetServerState(backend, one.name, "maint" if other.disabled else "ready")
