"""Read-back: compares a running process with its generation, and returns the repair.

The comparison covers everything that can be changed and read on a runtime
socket: backends, servers with address, weight and administrative state,
entries of maps and ACL lists, certificates, and entries of crt-lists. Changes
by HAProxy itself are not reported: results of checks, resolved addresses,
values set by agents, and maps and lists that rules write to.

A server in maintenance that is in no file is not reported either: it is a
leftover of a removal, by this controller or its predecessor.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from haptic_trio.haproxy.config.servers import ServerSettings, read_address
from haptic_trio.haproxy.grammar.placement import read_header
from haptic_trio.haproxy.model import Generation, Section
from haptic_trio.haproxy.plan.backends import add_backend
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.operations import (
    DeleteBackend,
    DeleteServer,
    Removal,
    SetServerAddress,
    SetServerState,
    SetServerWeight,
    UnpublishBackend,
)
from haptic_trio.haproxy.plan.servers import plan_servers
from haptic_trio.haproxy.plan.steps import Phase, Step
from haptic_trio.haproxy.runtime.differences import Finding, Kind
from haptic_trio.haproxy.runtime.expected_servers import Expected, SectionServers, expected_servers
from haptic_trio.haproxy.runtime.read_stores import StoreReader
from haptic_trio.haproxy.runtime.replies import ServerState, parse_servers_state

_SERVERS: Final = "show servers state"
_BACKENDS: Final = "show backend"


class Differences(msgspec.Struct, frozen=True):
    """Result of a comparison."""

    findings: tuple[Finding, ...] = ()
    left_over: tuple[Removal, ...] = ()
    """Leftovers of removals: objects of the process that are in no file."""


class ReadBack:
    """Compares a process with *generation*, which it should run; the caller sends the questions."""

    def __init__(self, generation: Generation, capabilities: Capabilities) -> None:
        self._generation = generation
        self._capabilities = capabilities
        self._defaults = generation.config.bases
        self._is_doubtful = any(base.conditional for base in self._defaults)
        self._stores = StoreReader(generation, capabilities)
        self.questions: tuple[str, ...] = (_SERVERS, _BACKENDS, *self._stores.questions)
        """Commands for the process, each on a connection of its own."""

    def compare(self, answers: Sequence[str]) -> Differences:
        """Return the differences shown by *answers*, in the order of the questions; raises UnreadableReplyError."""
        servers, backends, *stores = answers
        findings = list(self._stores.compare(stores))
        config = self._generation.config
        # If sections depend on `.if`, the text does not determine the sections of the process.
        if config.branched:
            return Differences(tuple(findings))
        present = {line for line in backends.splitlines() if line and line[0] not in "#<"}
        states: dict[str, dict[str, ServerState]] = {}
        for state in parse_servers_state(servers):
            states.setdefault(state.backend, {})[state.server] = state
        left_over: list[Removal] = []
        findings += self._compare_backends(present, states, left_over)
        for section in expected_servers(config):
            if section.section.name in present and self._is_certain(section.section):
                findings += self._compare_section(section, states.get(section.section.name, {}), left_over)
        return Differences(tuple(findings), tuple(left_over))

    def _is_certain(self, section: Section) -> bool:
        if section.conditional or not self._is_doubtful:
            return not section.conditional
        return ServerSettings(self._defaults, section).is_certain

    def _compare_backends(
        self, present: set[str], states: dict[str, dict[str, ServerState]], left_over: list[Removal]
    ) -> Iterator[Finding]:
        sections = {one.name: one for one in self._generation.config.sections if one.kind in {"backend", "listen"}}
        for name in sections.keys() - present:
            added = add_backend(self._defaults, self._defaults, sections[name], self._capabilities)
            yield _finding(Kind.BACKEND, f"backend {name} removed", added)
        for name in sorted(present - sections.keys()):
            servers = states.get(name, {})
            removals: list[Removal] = [*(DeleteServer(name, server) for server in servers), DeleteBackend(name)]
            if self._capabilities.backends and all(one.forced == "maint" for one in servers.values()):
                left_over += removals
                continue
            steps: list[Step] = [(Phase.UNPUBLISH, UnpublishBackend(name))]
            steps += [(Phase.REMOVE, removal) for removal in removals]
            yield _finding(Kind.BACKEND, f"backend {name} added", steps if self._capabilities.backends else None)

    def _compare_section(
        self, expected: SectionServers, states: dict[str, ServerState], left_over: list[Removal]
    ) -> Iterator[Finding]:
        backend = expected.section.name
        for name, server in expected.servers.items():
            state = states.get(name)
            steps = _alter(state, server, takes_weights=expected.takes_weights) if state is not None else []
            if steps is None or steps:
                yield _finding(Kind.SERVER, f"server {backend}/{name} changed", steps)
        missing = expected.servers.keys() - states.keys()
        if missing:
            steps = self._add(expected.section, missing)
            for name in sorted(missing):
                # The steps of the first finding add all of them.
                yield _finding(Kind.SERVER, f"server {backend}/{name} removed", steps)
                steps = steps and []
        others = expected.others
        for name in sorted(states.keys() - expected.servers.keys()):
            if others is None or others.fullmatch(name):
                continue
            if states[name].forced == "maint":
                left_over.append(DeleteServer(backend, name))
                continue
            steps = [(Phase.REMOVE, DeleteServer(backend, name))] if self._capabilities.servers else None
            yield _finding(Kind.SERVER, f"server {backend}/{name} added", steps)

    def _add(self, section: Section, missing: set[str]) -> list[Step] | None:
        if not read_header(section.header.words).base and len(self._defaults) > 1:
            # Its base depends on its position, which `section` does not contain.
            return None
        kept = [line for line in section.directives if line.keyword != "server" or line.words[1] not in missing]
        present = msgspec.structs.replace(section, directives=tuple(kept))
        return plan_servers(self._defaults, present, section, self._capabilities)


def _alter(state: ServerState, expected: Expected, *, takes_weights: bool) -> list[Step] | None:
    """Return the steps that bring a server to its expected state; None if no command can."""
    backend, name = state.backend, state.server
    steps: list[Step] = []
    if expected.address is not None and (address := _other_address(state, expected.address)) is not None:
        steps.append((Phase.ALTER, SetServerAddress(backend, name, *address)))
    if expected.weight is not None and state.weight != expected.weight:
        if not takes_weights:
            return None
        steps.append((Phase.ALTER, SetServerWeight(backend, name, expected.weight)))
    if expected.state is not None and state.forced != expected.state:
        steps.append((Phase.ALTER, SetServerState(backend, name, expected.state)))
    return steps


def _other_address(state: ServerState, expected: str) -> tuple[str, int] | None:
    """Parse the *expected* address of a line; None if it is the address of the server, or not an IP address."""
    if expected == f"{state.address}:{state.port}":
        return None
    address = read_address(expected)
    # Equal addresses may be written differently.
    present = read_address(f"{state.address}:{state.port}") or read_address(f"[{state.address}]:{state.port}")
    return address if address != present else None


def _finding(kind: Kind, what: str, steps: Sequence[Step] | None) -> Finding:
    return Finding(kind, what, None if steps is None else tuple(steps))
