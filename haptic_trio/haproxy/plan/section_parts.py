"""Parts of sections: the servers, and everything else. Sections with the servers of others are made from them."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from haptic_trio.haproxy.config.parser import read_section
from haptic_trio.haproxy.config.servers import ServerLine, read_server
from haptic_trio.haproxy.config.writer import write_directive
from haptic_trio.haproxy.model import Directive, Section
from haptic_trio.haproxy.plan.diff import same_words

# Lines that apply to all servers of a section.
_SHARED: Final = frozenset({"default-server", "mode"})


class Parts(NamedTuple):
    """Parts of a section whose servers all inherit the same settings."""

    frame: tuple[Directive, ...]
    lines: tuple[Directive, ...]
    """The servers."""
    servers: dict[str, ServerLine]


def shared_lines(sections: Iterable[Section]) -> list[tuple[object, ...]]:
    """Return the lines of *sections* that apply to all servers, in a form that can be compared."""
    return [(line.words, line.raw) for one in sections for line in one.directives if line.keyword in _SHARED]


def take_apart(section: Section) -> Parts | None:
    """Return the parts of *section*; None if its servers do not all inherit the same settings."""
    if section.conditional:
        return None
    order = [line.keyword for line in section.directives if line.keyword in {"server", "default-server"}]
    lines = tuple(section.all("server"))
    found = [server for line in lines if (server := read_server(line)) is not None]
    # Sorted: no `default-server` follows a server.
    if len(found) != len(lines) or order != sorted(order):
        return None
    frame = tuple(line for line in section.directives if line.keyword != "server")
    return Parts(frame, lines, {server.name: server for server in found})


def with_servers_of(before: Section, after: Section) -> Section | None:
    """Return *before* with the servers of *after*; None if their lines may have another meaning there."""
    one, other = take_apart(before), take_apart(after)
    if one is None or other is None or shared_lines([before]) != shared_lines([after]):
        return None
    options = {server.rest for server in one.servers.values()}
    if any(server.rest not in options for server in other.servers.values()):
        return None
    gone = one.servers.keys() - other.servers.keys()
    # Rules may name servers.
    if any(name in word for line in one.frame for word in line.words for name in gone):
        return None
    return _put_together(before.header, (*one.frame, *other.lines))


def with_some_servers_of(before: Section | None, after: Section, count: int, start: int) -> Section | None:
    """Return *after* with at most *count* of its changes of servers; the others are as in *before* (None: no section).

    Changed servers come first, from the number *start* on, then added ones,
    then removed ones. Returns None if the two differ in more than servers, or
    if that cannot be decided.
    """
    other = take_apart(after)
    one = take_apart(before) if before is not None else Parts(other.frame, (), {}) if other is not None else None
    if one is None or other is None or not _same_lines(one.frame, other.frame):
        return None
    if before is not None and not same_words(before.header, after.header):
        return None
    old, new = ({line.words[1]: line for line in parts.lines} for parts in (one, other))
    if len(old) != len(one.lines) or len(new) != len(other.lines):
        return None
    altered = [name for name, line in new.items() if name in old and not same_words(old[name], line)]
    at = start % len(altered) if altered else 0
    chosen = set((altered[at:] + altered[:at])[:count])
    count -= len(chosen)
    added = [line for name, line in new.items() if name not in old][:count]
    count -= len(added)
    # From the end, as a shorter list of endpoints does it.
    removed = set([name for name in reversed(old) if name not in new][:count])
    kept = [new[name] if name in chosen else line for name, line in old.items() if name not in removed]
    return _put_together(after.header, (*other.frame, *kept, *added))


def _same_lines(one: tuple[Directive, ...], other: tuple[Directive, ...]) -> bool:
    return len(one) == len(other) and all(map(same_words, one, other))


def _put_together(header: Directive, lines: Iterable[Directive]) -> Section | None:
    text = "".join(f"  {write_directive(line)}\n" for line in lines)
    return read_section(f"{write_directive(header)}\n{text}")
