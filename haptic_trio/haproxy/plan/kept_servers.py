"""Rollback configurations: the servers of one configuration, everything else of another.

`undo_files` makes one without the changes of files that the check names.
`keep_servers` makes three for a rollback. Each must pass `haproxy -c` before it is used. None has lines of maps, lists
and crt-lists whose objects are gone. If all are rejected, or if a
backend cannot be changed without a change of its other lines (conditional
lines, rules that name a server, other inherited settings), the rollback
restores the servers of the last valid configuration there.
"""

from collections.abc import Callable

from haptic_trio.chunked import Paged, Piece
from haptic_trio.haproxy.config.parser import read_section
from haptic_trio.haproxy.config.writer import write_directive
from haptic_trio.haproxy.model import BY_LINE, AuxFile, Files, Generation, Section, make_file, make_generation
from haptic_trio.haproxy.plan.diff import diff_configs, same_words
from haptic_trio.haproxy.plan.section_parts import take_apart, with_servers_of
from haptic_trio.haproxy.plan.split import put_together


def keep_servers(valid: Generation, rejected: Generation) -> tuple[Generation, ...]:
    """Return *valid* with the servers of *rejected*, with those of its own servers that *rejected* has, and with all.

    All three lack the lines of files whose objects have no lines in
    *rejected*. Each may equal *valid* or *rejected*. None has been checked.
    Backends whose other lines differ keep what can be kept of them.
    """
    files = _without_lost_objects(valid.files, rejected.files)
    bare = make_generation(valid.config, files)
    # If sections depend on `.if`, the text does not determine the sections of the process.
    if valid.config.branched or rejected.config.branched:
        return (bare,)
    return _replace(bare, rejected, with_servers_of), _replace(bare, rejected, _without_gone), bare


def undo_files(valid: Generation, part: Generation, output: str) -> Generation:
    """Return *part* without its changes of the files that *output*, text of a rejection, names.

    *part* is *valid* with other data. The files lack the lines of objects that have none in *part*.
    """
    files = _without_lost_objects(valid.files, part.files)
    before, after = files.differing(part.files)
    # Pages that are not shared also have equal files.
    named = [path for path in before.keys() | after.keys() if path in output and before.get(path) != after.get(path)]
    if not named:
        return part
    put = [before[path] for path in named if path in before]
    return make_generation(part.config, part.files.changed(put, [path for path in named if path not in before]))


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


def _without_lost_objects(valid: Files, rejected: Files) -> Files:
    """Return *valid* without the lines of objects that have none in *rejected*; other objects keep all of theirs."""
    changed, _ = valid.differing(rejected)
    suspects = {_owner_of(piece) for file in changed.values() for piece in _pieces(file)} - {None}
    if not suspects:
        return valid
    lost = suspects - {_owner_of(piece) for file in rejected.values() for piece in _pieces(file)}
    reduced = [
        make_file(file.kind, file.path, Paged.of(kept), secret=file.secret)
        for file in changed.values()
        if len(kept := [piece for piece in _pieces(file) if _owner_of(piece) not in lost]) < len(_pieces(file))
    ]
    return valid.changed(reduced)


def _pieces(file: AuxFile) -> tuple[Piece, ...]:
    return tuple(file.lines.pages) if file.kind in BY_LINE else ()


def _owner_of(piece: Piece) -> tuple[str, str, str] | None:
    """Return kind, namespace and name of the object that *piece* is of; None if it is of none."""
    subject = getattr(piece.origin, "subject", None)
    return (subject.kind, subject.namespace, subject.name) if subject is not None else None


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
