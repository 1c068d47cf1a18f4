"""Selection of changed files that can be applied before a reload brings the rest.

An entry of a map waits for the reload if it names a backend that only the
reload adds, or whose rules the reload changes: its requests would pass by the
new rules, such as a password. Then the other changed routes of the namespace
wait as well, since requests could fall to a shorter path without rules. So
does a route that is removed, if a backend of its namespace waits, or another
route for its host and path. An entry that ends lookups, since it names no
backend, waits with others of its map.
Files of an object that only rules of backends look up, such as the networks
and keys of its clients, wait with these rules, and with the routes to these
backends: clients would be admitted to other paths, or by fewer rules. So do
removed entries of other files whose keys are in these rules. If a guard changes
together with its routes (`haptic_trio.haproxy.config.guards`), all guards and
routes of its namespace wait.
All entries of a map or list wait if the reload changes the use of the file.
Certificates, crt-lists and authorities wait if they depend on a file that
waits.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from haptic_trio.chunked import Page, Piece, Splice, spliced
from haptic_trio.haproxy.causes import namespace_of_change, namespaces_named
from haptic_trio.haproxy.config.guards import WORD, ChangedGuards, words_of
from haptic_trio.haproxy.config.maps import MapUse, diff_maps, file_entries, find_map_use, form_of, has_entries
from haptic_trio.haproxy.model import (
    AuxFile,
    Config,
    FileChange,
    FileKind,
    Files,
    Generation,
    Section,
    make_file,
)
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.certificates import CertificatePlanner
from haptic_trio.haproxy.plan.diff import ConfigDiff, diff_files
from haptic_trio.haproxy.plan.plan import alters_rules

SERVING_KINDS: Final = ("backend", "listen")

_CONSTANT: Final = re.compile(r"\bstr\([^()]*\)")
_FORM: Final = form_of(MapUse.UNORDERED)


class Waiting:
    """The sections that requests reach by entries of maps, and that the process has only after the reload."""

    def __init__(self, desired: Config, diff: ConfigDiff, added: Iterable[Section]) -> None:
        """*diff* is the difference of the two configurations; the process gets *added* before the reload."""
        self._desired = desired
        self._names = {section.name for section in diff.added if section.kind in SERVING_KINDS}
        self._names -= {section.name for section in added}
        altered = [change.desired for change in diff.changed if alters_rules(change)]
        self._names |= {section.name for section in altered if section.kind in (*SERVING_KINDS, "frontend")}
        # Lists of users, and profiles: the sections that name them have other rules, too.
        bases = [section for section in altered if section.kind not in (*SERVING_KINDS, "frontend") and section.name]
        self._bases = {section.name for section in bases}
        self.namespaces = frozenset().union(*map(namespaces_named, self._names), map(namespace_of_change, bases))
        """The namespaces of the sections."""
        self._known: dict[str, bool] = {}

    def __bool__(self) -> bool:
        return bool(self._names or self._bases)

    def named_in(self, text: str) -> set[str]:
        """Return the sections that *text*, an entry of a map, names."""
        return {word for word in words_of(text) if self.has(word)}

    def has(self, name: str) -> bool:
        """Whether *name* is one of the sections."""
        if name not in self._known:
            self._known[name] = name in self._names or self._depends(name)
        return self._known[name]

    def _depends(self, name: str) -> bool:
        if not self._bases:
            return False
        sections = (self._desired.find(kind, name) for kind in SERVING_KINDS)
        return any(not self._bases.isdisjoint(WORD.findall(one.text)) for one in sections if one is not None)


def choose_files(
    running: Generation, desired: Generation, effective: Config, *, waiting: Waiting, capabilities: Capabilities
) -> Files:
    """Return the files of *desired* that a process with *running* can use together with *effective*."""
    # The frontends decide where requests go.
    changes = diff_files(running.files, desired.files)
    guards = ChangedGuards(running, changes)
    together = frozenset(guards.conflicts)
    is_split = waiting or together
    frontends = [one.text for one in running.config.sections if one.kind == "frontend"] if is_split else []
    maps: list[_MapChange] = []
    others: list[FileChange] = []
    for change in changes:
        if change.path in guards and change.desired is not None and change.desired.namespace in together:
            continue
        if not has_entries(running, change):
            others.append(change)
        elif (found := _read_map(running, desired, change)) is not None:
            is_route = any(change.path in text for text in frontends)
            maps.append(msgspec.structs.replace(found, is_route=is_route))
    count = -1
    # A file that depends on a removed one is found in the next round.
    while count != len(others):
        count = len(others)
        candidate = msgspec.structs.replace(desired, config=effective, files=_with(running.files, others))
        planner = CertificatePlanner(running, candidate, capabilities)
        others = [change for change in others if planner.plan(change) is not None]
    return _with(running.files, [*_take_maps(maps, waiting, together, running.config), *others])


def _with(files: Files, changes: Sequence[FileChange]) -> Files:
    return files.changed(
        [change.desired for change in changes if change.desired is not None],
        [change.path for change in changes if change.desired is None],
    )


class _MapChange(msgspec.Struct, frozen=True):
    """A changed map or list that both configurations use in the same way."""

    path: str
    running: AuxFile
    desired: AuxFile
    former: Mapping[str, str]
    """Values of the changed keys in the running file; of a repeated key, one in each line."""
    latter: Mapping[str, str]
    """The same in the desired file."""
    is_ordered: bool = False
    """Whether it can only change as a whole."""
    is_route: bool = False
    """Whether a frontend uses it: its entries may lead requests to backends."""

    def text_of(self, key: str, *values: str) -> str:
        """Return the parts of an entry that may name sections: keys of routes do, too."""
        return " ".join((key, *values) if self.is_route else values)

    def named_by(self, key: str) -> str:
        """Return the parts of the entries of *key* that may name sections."""
        return self.text_of(key, self.former.get(key, ""), self.latter.get(key, ""))


def _read_map(running: Generation, desired: Generation, change: FileChange) -> _MapChange | None:
    """Return *change* of a map or list; None if the whole file has to wait."""
    before, after, path = change.running, change.desired, change.path
    if before is None or after is None or _uses(running.config, path) != _uses(desired.config, path):
        return None
    use = find_map_use(running, path)
    if use in {MapUse.NONE, MapUse.OTHER}:
        return None
    if use is MapUse.LIST:
        return _MapChange(path, before, after, {}, {})
    found = diff_maps(before.lines, after.lines, form_of(use))
    former, latter = found.before, found.after
    if not found.unique:
        former, latter = (_all_values(file) for file in (before, after))
    keys = {key for key in former.keys() | latter.keys() if former.get(key) != latter.get(key)}
    former, latter = ({key: one[key] for key in keys & one.keys()} for one in (former, latter))
    return _MapChange(path, before, after, former, latter, use is MapUse.ORDERED)


def _all_values(file: AuxFile) -> dict[str, str]:
    """Return the values of each key, one in each line."""
    found: dict[str, str] = {}
    for key, value in file_entries(file.lines, _FORM):
        found[key] = f"{found[key]}\n{value}" if key in found else value
    return found


def _take_maps(
    maps: Sequence[_MapChange], waiting: Waiting, together: AbstractSet[str], config: Config
) -> list[FileChange]:
    """Return *maps* without the entries that have to wait; *config* is the running one.

    The routes of the namespaces *together* wait with their guards.
    """
    if not (waiting or together):
        return [FileChange(one.path, one.running, one.desired) for one in maps]
    namespaces = set(together)
    for one in maps:
        for key, value in one.latter.items():
            namespaces.update(*map(namespaces_named, waiting.named_in(one.text_of(key, value))))
        for key in one.former.keys() - one.latter.keys() if one.is_route else ():
            namespaces |= namespaces_named(one.named_by(key)) & waiting.namespaces
    held = {one.path: _held_by(one, waiting, namespaces) for one in maps}
    successors = _successors(maps, held)
    passed = {one.path: _passed(one, held[one.path], successors) for one in maps}
    for one in maps:
        held[one.path] |= passed[one.path].keys() | (_ends(one, config) if held[one.path] else set())
    reached = {word for one in maps if one.is_route for key in held[one.path] for word in words_of(one.named_by(key))}
    rules = _keys_of_rules(maps, config, lambda name: name in reached or waiting.has(name))
    taken: list[FileChange] = []
    for one in maps:
        if one.path in rules and one.desired.namespace:
            continue
        keys = held[one.path] | rules.get(one.path, set())
        if not keys:
            taken.append(FileChange(one.path, one.running, one.desired))
        elif not one.is_ordered:
            taken.append(FileChange(one.path, one.running, _with_former(one, keys, passed[one.path])))
    return taken


def _held_by(change: _MapChange, waiting: Waiting, namespaces: AbstractSet[str]) -> set[str]:
    """Return the keys whose sections are *waiting*, and for routes those of *namespaces*."""
    held = {key for key, value in change.latter.items() if waiting.named_in(change.text_of(key, value))}
    if change.is_route:
        keys = change.former.keys() | change.latter.keys()
        held |= {key for key in keys if not namespaces.isdisjoint(namespaces_named(change.named_by(key)))}
    return held


def _successors(maps: Sequence[_MapChange], held: Mapping[str, set[str]]) -> dict[tuple[str, str], object]:
    """Return the places of routes that wait, with the origins of their lines."""
    found: dict[tuple[str, str], object] = {}
    for one in maps:
        keys = held[one.path] & one.latter.keys() if one.is_route else set()
        for page in one.desired.lines.pages.pages if keys else ():
            for piece in page.items if not keys.isdisjoint(page.summary(_FORM.keys)) else ():
                found.update((_place(key), piece.origin) for key, _ in _FORM.read((piece,)) if key in keys)
    return found


def _passed(
    change: _MapChange, held: AbstractSet[str], successors: Mapping[tuple[str, str], object]
) -> dict[str, object]:
    """Return the removed routes that wait for *successors*, with the origins of these."""
    gone = change.former.keys() - change.latter.keys() - held if change.is_route else set()
    places = {key: _place(key) for key in gone}
    return {key: successors[place] for key, place in places.items() if place in successors}


def _place(key: str) -> tuple[str, str]:
    """Return the host and the path of a key, which are the same for `h|/a` as a whole path and `h|/a/` as a prefix."""
    host, _, path = key.partition("|/")
    return host.rstrip("|/"), path.rstrip("/")


def _ends(change: _MapChange, config: Config) -> set[str]:
    """Return the keys of routes that ended a lookup: they named no backend, so others did not serve the requests."""
    return {
        key
        for key, value in change.former.items()
        if change.is_route
        and not namespaces_named(value)
        and not any(config.find(kind, value) for kind in SERVING_KINDS)
    }


def _keys_of_rules(maps: Sequence[_MapChange], config: Config, is_chosen: Callable[[str], bool]) -> dict[str, set[str]]:
    """Return the files that rules of the sections which requests reach and *is_chosen* look up.

    Of a file that belongs to no namespace, these are the removed keys that a
    rule contains, if there are any.
    """
    paths: dict[int, list[tuple[str, set[str]]]] = {}
    for one in maps:
        gone = one.former.keys() - one.latter.keys()
        if one.is_route or not (gone or one.desired.namespace):
            continue
        for line in config.naming(one.path):
            keys = gone & {part for word in line.words for part in words_of(word)}
            if keys or one.desired.namespace:
                paths.setdefault(id(line), []).append((one.path, keys))
    found: dict[str, set[str]] = {}
    for section in config.sections if paths else ():
        mine = [item for line in section.paths for item in paths.get(id(line), ())]
        if mine and section.kind in SERVING_KINDS and is_chosen(section.name):
            for path, keys in mine:
                found.setdefault(path, set()).update(keys)
    return found


def _with_former(change: _MapChange, held: set[str], passed: Mapping[str, object]) -> AuxFile:
    """Return the desired map, in which the keys *held* have their former values or are missing.

    *passed* are those that count for another origin.
    """
    pages = change.desired.lines.pages
    splices: list[Splice[Piece]] = []
    count = 0
    for page in pages.pages:
        if not held.isdisjoint(page.summary(_FORM.keys)):
            splices.append(Splice(count, len(page.items), _chosen(page, lambda key: key not in held)))
        count += len(page.items)
    # The lines before them may have no end.
    former = [Piece("\n")]
    for page in change.running.lines.pages.pages:
        if not held.isdisjoint(page.summary(_FORM.keys)):
            former += _chosen(page, lambda key: key in held and key not in passed)
    for key, origin in passed.items():
        former += [Piece(f"{key} {value}\n", origin) for value in change.former[key].split("\n")]
    content = spliced(pages, [*splices, Splice(count, 0, tuple(former))])
    return make_file(FileKind.MAP, change.path, content, secret=change.running.secret or change.desired.secret)


def _chosen(page: Page[Piece], is_chosen: Callable[[str], bool]) -> tuple[Piece, ...]:
    """Return the lines of a page whose keys are chosen, with the origins of its pieces."""
    pieces = page.items
    if not all(piece.text.endswith("\n") for piece in pieces[:-1] if piece.text):
        pieces = (Piece("".join([piece.text for piece in pieces])),)
    found: list[Piece] = []
    for piece in pieces:
        lines = [
            line for line in piece.text.split("\n") if all(is_chosen(key) for key, _ in _FORM.read((Piece(line),)))
        ]
        text = "".join(f"{line}\n" for line in lines if line)
        found += [Piece(text, piece.origin)] if text else []
    return tuple(found)


def _uses(config: Config, path: str) -> set[tuple[object, ...]]:
    """Return how *config* uses a file; lines that differ in constants alone, such as keys, are one use."""
    return {(tuple([_CONSTANT.sub("str()", word) for word in line.words]), line.raw) for line in config.naming(path)}
