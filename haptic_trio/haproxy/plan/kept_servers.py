"""Rollback configurations: the servers of one configuration, everything else of another.

`keep_servers` makes two for a rollback. Both must pass `haproxy -c` before they are used. If both are rejected, or if a
backend cannot be changed without a change of its other lines (conditional
lines, rules that name a server, other inherited settings), the rollback
restores the servers of the last valid configuration there.
"""

from collections.abc import Callable

from haptic_trio.haproxy.config.parser import read_section
from haptic_trio.haproxy.config.writer import write_directive
from haptic_trio.haproxy.model import Generation, Section, make_generation
from haptic_trio.haproxy.plan.diff import diff_configs, same_words
from haptic_trio.haproxy.plan.section_parts import take_apart, with_servers_of
from haptic_trio.haproxy.plan.split import put_together


def keep_servers(valid: Generation, rejected: Generation) -> tuple[Generation, ...]:
    """Return *valid* with the servers of *rejected*, and *valid* with those of its own servers that *rejected* has.

    Either may equal *valid* or *rejected*. Neither has been checked. Backends
    whose other lines differ keep what can be kept of them.
    """
    # If sections depend on `.if`, the text does not determine the sections of the process.
    if valid.config.branched or rejected.config.branched:
        return ()
    return _replace(valid, rejected, with_servers_of), _replace(valid, rejected, _without_gone)


def move_servers(running: Generation, before: Generation, after: Generation) -> Generation:
    """Return *running* with the servers of those sections that differ between *before* and *after*.

    Sections that *running* does not have, or that cannot take these servers,
    stay as they are.
    """
    if running.config.branched or after.config.branched:
        return running
    replaced: dict[tuple[str, str], Section] = {}
    for change in diff_configs(before.config, after.config).changed:
        section = running.config.find(*change.desired.key)
        moved = _take_servers(section, change.desired) if section is not None else None
        if moved is not None:
            replaced[moved.key] = moved
    return make_generation(put_together(running.config, replaced, ()), running.files) if replaced else running


def _replace(valid: Generation, rejected: Generation, make: Callable[[Section, Section], Section | None]) -> Generation:
    replaced: dict[tuple[str, str], Section] = {}
    for change in diff_configs(valid.config, rejected.config).changed:
        mixed = make(change.running, change.desired)
        if mixed is not None:
            replaced[change.running.key] = mixed
    return make_generation(put_together(valid.config, replaced, ()), valid.files)


def _take_servers(before: Section, after: Section) -> Section | None:
    one, other = take_apart(before), take_apart(after)
    if one is None or other is None:
        return None
    frames = (before.header, *one.frame), (after.header, *other.frame)
    if len(one.frame) == len(other.frame) and all(map(same_words, *frames)):
        return after
    return with_servers_of(before, after)


def _without_gone(before: Section, after: Section) -> Section | None:
    """Return *before* without the servers whose names or addresses *after* does not have."""
    one, other = take_apart(before), take_apart(after)
    if one is None or other is None:
        return None
    there = {name: server.address for name, server in other.servers.items()}
    gone = {name for name, server in one.servers.items() if there.get(name) != server.address}
    # Rules may name servers.
    if not gone or any(name in word for line in one.frame for word in line.words for name in gone):
        return None
    lines = [line for line in before.directives if line.keyword != "server" or line.words[1] not in gone]
    text = "".join(f"  {write_directive(line)}\n" for line in lines)
    return read_section(f"{write_directive(before.header)}\n{text}")
