"""Guards: files that an object has registered and rules of backends look up, such as the networks of its clients.

A request meets entries of routes and of guards. If a guard changes together
with a route to one of its backends, or with another guard of this backend, no
order of commands is safe: the new path would be open to the former clients,
or the former path to the new ones. Such changes need a reload. The authorities
of clients belong to no backend, so all routes and guards of their namespace
count.

A guard that changes otherwise changes after new routes and before removed
ones (`haptic_trio.haproxy.plan.steps`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

from haptic_trio.haproxy.causes import namespaces_named, without_percents
from haptic_trio.haproxy.config.maps import MapUse, diff_maps, file_entries, find_map_use, form_of
from haptic_trio.haproxy.model import FileChange, FileKind, Generation

WORD: Final = re.compile(r"[A-Za-z0-9_:.-]+")
"""A word of a line or entry that may be the name of a section."""
_KINDS: Final = frozenset({FileKind.MAP, FileKind.FILE})


def words_of(text: str) -> list[str]:
    """Return the words of *text* that may be names of sections; names may be percent-encoded."""
    return WORD.findall(without_percents(text))


class ChangedGuards:
    """The changed guards among *changes* of files that a process with *running* can take without a reload."""

    def __init__(self, running: Generation, changes: Iterable[FileChange]) -> None:
        self._running = running
        self._changes = {change.path: change for change in changes}
        self._namespaces: dict[str, str] = {}
        for path, change in self._changes.items():
            known, file = change.running, change.desired
            is_candidate = known is not None and file is not None and file.namespace and file.kind in _KINDS
            if is_candidate and file is not None and self._guards(path, file.kind):
                self._namespaces[path] = file.namespace

    def __contains__(self, path: str) -> bool:
        return path in self._namespaces

    @cached_property
    def conflicts(self) -> Mapping[str, str]:
        """The namespaces whose changed guards and routes need a reload, each with a reason."""
        guarded: dict[str, str] = {}
        for path, namespace in self._namespaces.items():
            guarded.setdefault(namespace, path)
        routes = list(self._changed_routes())
        if not routes and len(guarded) == len(self._namespaces):
            # Nearly always: to find the backends takes a look at all of them.
            return {}
        found: dict[str, str] = {}
        owners: dict[str, str] = {}
        authorities = {self._namespaces[path]: path for path in self._namespaces if not self._is_of_backends(path)}
        for path, sections in self._sections_by_guard().items():
            namespace = self._namespaces[path]
            others = {owners.setdefault(section, path) for section in sections} - {path}
            # Those of other hosts are no reason for authorities.
            others |= {authorities[namespace]} if sections and namespace in authorities else set()
            if others:
                reason = f"file {path} changed, and {min(others)}: both decide about the same clients"
                found.setdefault(namespace, reason)
        for text in routes:
            named = namespaces_named(text)
            # Keys of rules do not name the backends behind them.
            known = guarded if "Route/" in text else authorities
            paths = [(one, known[one]) for one in sorted(named & known.keys())]
            paths += [(self._namespaces[owners[word]], owners[word]) for word in words_of(text) if word in owners]
            for namespace, path in paths:
                found.setdefault(namespace, f"file {path} changed, and routes to backends that look it up")
        return found

    @cached_property
    def _frontends(self) -> list[str]:
        return [one.text for one in self._running.config.sections if one.kind == "frontend"]

    def _is_of_backends(self, path: str) -> bool:
        """Whether rules of backends look the file up; else it has authorities, which entries of crt-lists may name."""
        return any(line.keyword != "bind" for line in self._running.config.naming(path))

    def _guards(self, path: str, kind: FileKind) -> bool:
        if not self._is_of_backends(path):
            return kind is FileKind.FILE
        lines = list(self._running.config.naming(path))
        if any(path in text for text in self._frontends):
            return False
        # Longest prefixes are looked up for paths, which are no clients.
        return not all(f"map_beg({path}" in word for line in lines for word in line.words if path in word)

    def _sections_by_guard(self) -> dict[str, set[str]]:
        """Return the backends whose rules look each guard up; none for authorities."""
        found: dict[str, set[str]] = {path: set() for path in self._namespaces}
        lines: dict[int, list[str]] = {}
        for path in found:
            for line in self._running.config.naming(path):
                lines.setdefault(id(line), []).append(path)
        for section in self._running.config.sections if lines else ():
            if section.kind in {"backend", "listen"}:
                for path in [path for line in section.paths for path in lines.get(id(line), ())]:
                    found[path].add(section.name)
        return found

    def _changed_routes(self) -> Iterator[str]:
        """Yield the changed entries of maps that frontends look up, in their former and their new version."""
        for path, change in self._changes.items() if self._namespaces else ():
            before, after = change.running, change.desired
            if before is None or after is None or {before.kind, after.kind} != {FileKind.MAP}:
                continue
            use = find_map_use(self._running, path)
            if use in {MapUse.NONE, MapUse.LIST} or not any(path in text for text in self._frontends):
                continue
            form = form_of(use)
            found = diff_maps(before.lines, after.lines, form)
            if found.unique:
                changed = found.before.items() ^ found.after.items()
            else:
                old, new = (tuple(file_entries(file.lines, form)) for file in (before, after))
                # Of equal keys, the first one is used.
                changed = (set(old) ^ set(new)) | (dict(reversed(old)).items() ^ dict(reversed(new)).items())
            yield from (f"{key} {value}" for key, value in changed)
