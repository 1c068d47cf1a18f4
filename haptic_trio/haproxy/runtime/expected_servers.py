"""Servers that a process should have, in a form that can be compared with their state."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from haptic_trio.haproxy.config.servers import ServerSettings
from haptic_trio.haproxy.grammar.keywords import shipped_keywords
from haptic_trio.haproxy.grammar.options import walk_options
from haptic_trio.haproxy.grammar.placement import read_header
from haptic_trio.haproxy.model import Config, Directive, Section

_SERVING_KINDS: Final = frozenset({"backend", "listen"})


class Expected(NamedTuple):
    """Expected state of a server; None for a value that the process may choose, or that its line does not determine."""

    address: str | None
    """As written; see `haptic_trio.haproxy.config.servers.read_address`."""
    weight: int | None
    state: str | None
    """`ready` or `maint`."""


_ANY: Final = Expected(None, None, None)


class SectionServers(NamedTuple):
    """The servers of one backend or listen section."""

    section: Section
    servers: dict[str, Expected]
    takes_weights: bool
    others: re.Pattern[str] | None
    """Pattern of additional names, from templates; None if any name is possible."""


class _Options(NamedTuple):
    """Settings in the words after the address."""

    weight: int | None
    state: str | None
    is_resolved: bool


_NOTHING: Final = re.compile("(?!)")
_UNKNOWN: Final = _Options(None, None, True)


def expected_servers(config: Config) -> Iterator[SectionServers]:
    """Yield the servers of *config* by section, except for disabled sections and those with repeated names."""
    reader = _Reader(config)
    for section in config.sections:
        if section.kind in _SERVING_KINDS and (found := reader.read(section)) is not None:
            yield found


class _Common:
    """Settings common to the servers of one section, or of all sections with one base and only `server` lines."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        # A state file has precedence over a line.
        from_file = settings.last("load-server-state-from-file")
        self.uses_lines = from_file is None or from_file.words[1:2] == ("none",)
        self.takes_weights = settings.takes_weights
        self._options: dict[tuple[object, ...], _Options] = {}

    def expect(self, line: Directive, inherited: Sequence[Directive]) -> Expected:
        words = line.words
        if not self.uses_lines or line.raw or len(words) < 3:
            return _ANY
        key = (words[3:], len(inherited))
        options = self._options.get(key)
        if options is None:
            options = self._options[key] = _read_options(line, inherited)
        return Expected(None if options.is_resolved else words[2], options.weight, options.state)


class _Reader:
    """Reads sections; common settings of sections with only `server` lines are read once for each base."""

    def __init__(self, config: Config) -> None:
        self._defaults = config.bases
        self._common: dict[str, _Common] = {}

    def read(self, section: Section) -> SectionServers | None:
        lines = section.directives
        base = read_header(section.header.words).base
        if base and not any(line.words[0] != "server" or 1 in line.raw for line in lines):
            common = self._common.get(base)
            if common is None:
                common = self._common[base] = _Common(ServerSettings(self._defaults, section))
            others: re.Pattern[str] | None = _NOTHING
            inherited, count = common.settings.inherited, len(lines)
            servers = {line.words[1]: common.expect(line, inherited) for line in lines if len(line.words) > 1}
        else:
            common = _Common(ServerSettings(self._defaults, section))
            members = [one for one in common.settings.members(section) if 1 not in one.directive.raw]
            count, others = len(members), _names_besides(section)
            servers = {one.name: common.expect(one.directive, one.inherited) for one in members}
        if common.settings.disabled or len(servers) != count:
            return None
        return SectionServers(section, servers, common.takes_weights, others)


def _names_besides(section: Section) -> re.Pattern[str] | None:
    lines = [line for kind in ("server", "server-template") for line in section.all(kind) if len(line.words) > 1]
    if any(1 in line.raw for line in lines):
        return None
    templates = [line.words[1] for line in lines if line.keyword == "server-template"]
    return re.compile("|".join(f"{re.escape(prefix)}[0-9]+" for prefix in templates)) if templates else _NOTHING


def _read_options(line: Directive, inherited: Sequence[Directive]) -> _Options:
    if any(one.raw for one in inherited):
        return _UNKNOWN
    words = (*(word for one in inherited for word in one.words[1:]), *line.words[3:])
    end, weight, state = 0, "1", "ready"
    is_resolved = has_agent = False
    for option in walk_options(words, 0, shipped_keywords().server):
        end = option.at + 1 + len(option.values)
        match option.name:
            case "weight":
                weight = "".join(option.values)
            case "disabled" | "enabled":
                state = "maint" if option.name == "disabled" else "ready"
            case "agent-check" | "no-agent-check":
                has_agent = option.name == "agent-check"
            case "resolvers" | "init-addr":
                is_resolved = True
    if end != len(words) or not re.fullmatch("[0-9]{1,3}", weight):
        return _UNKNOWN
    # An agent sets both weight and state.
    return _Options(None, None, is_resolved) if has_agent else _Options(int(weight), state, is_resolved)
