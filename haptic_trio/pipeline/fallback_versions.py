"""Versions of quarantined objects that lookups find: those from which their fallbacks were rendered."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import nullcontext
from typing import Any, Final, cast

from haptic_trio.k8s.index import Keys
from haptic_trio.k8s.overlay import Overlay
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.k8s.store import ReadableStore, same_content
from haptic_trio.templating.incremental.refresh import Touched, take_changes
from haptic_trio.templating.incremental.run import RenderRun
from haptic_trio.templating.views import ResourcesView, answers_from, seen_in, show_instead, shown_by, views_in

Versions = Mapping[ResourceRef, Any]

_NONE: Final[Versions] = {}


class FallbackVersions:
    """Has the views of a session answer lookups of quarantined objects by other versions than the stores have."""

    def __init__(self, run: RenderRun, views: ResourcesView, released: AbstractSet[ResourceRef]) -> None:
        """*released* are the objects for whose changes turns were rendered ahead, at any time."""
        self._run = run
        self._released = released
        self._views = views_in(views)
        self._versions: Versions = _NONE
        self._shown: dict[str, tuple[ReadableStore, Versions]] = {}
        """By name, the store below, and the versions that lookups find instead of those in it."""

    def shown_in(self, name: str) -> Versions:
        """Return the versions that lookups in the store *name* find instead of those in it."""
        return self._shown[name][1] if name in self._shown else _NONE

    def hides(self, name: str, ref: ResourceRef) -> bool:
        """Whether lookups in the store *name* find *ref*, which exists, in another version than the store has."""
        return ref in self.shown_in(name) and self._base(name).by_ref(ref) is not None

    def visible(self, name: str, ref: ResourceRef) -> Any | None:
        """Return the version of *ref* that lookups in the store *name* find."""
        shown = self.shown_in(name)
        return shown[ref] if ref in shown else self._base(name).by_ref(ref)

    def seen_with(self, name: str, ref: ResourceRef, version: Any | None) -> Overlay:
        """Return what lookups in the store *name* would find with *version* of *ref*."""
        return Overlay(self._base(name), {**self.shown_in(name), ref: version})

    def undone(self) -> dict[str, Touched]:
        """Return what would change if no versions were shown any more."""
        found = {}
        for name, (base, versions) in self._shown.items():
            objects = {ref: base.by_ref(ref) for ref in versions}
            keys = {keys for ref, one in objects.items() for keys in keys_of_change(base, versions[ref], one)}
            found[name] = Touched(keys, {(ref.namespace, ref.name, ref.kind): one for ref, one in objects.items()})
        return found

    def take(self, *, are_seen: bool = False) -> None:
        """Take the versions for the objects that are quarantined now, and show them.

        With *are_seen*, they are what has been found until now, though the stores have newer versions already.
        """
        versions = self._run.quarantined.fallback_versions(self._run) if self._run.quarantined else {}
        self._versions = {
            ResourceRef(kind, namespace, name): resource
            for (namespace, name, kind), resource in versions.items()
            # Objects of on-demand stores are not kept.
            if type(resource) is dict
        }
        for name in self._views if self._versions or self._shown else ():
            self._show(name, are_seen=are_seen)

    def put_on_top(self) -> None:
        """Show the present versions on top of the stores that the views show now."""
        for name, (base, versions) in tuple(self._shown.items()):
            if self._base(name) is not base or any(base.by_ref(ref) is None for ref in versions):
                self._show(name)

    def forget(self) -> None:
        """Let go of the stores."""
        self._shown.clear()

    def _base(self, name: str) -> ReadableStore:
        return cast("ReadableStore", shown_by(self._views[name]))

    def _show(self, name: str, *, are_seen: bool = False) -> None:
        view, base, before = self._views[name], self._base(name), self.shown_in(name)
        now = {ref: good for ref, good in self._versions.items() if base.by_ref(ref) is not None}
        if now:
            self._shown[name] = base, now
        else:
            self._shown.pop(name, None)
        show_instead(view, Overlay(base, now) if now else None)
        if are_seen:
            return
        released: set[Keys] = set()
        others: set[Keys] = set()
        for ref in {**before, **now}:
            was, becomes = (versions[ref] if ref in versions else base.by_ref(ref) for versions in (before, now))
            (released if ref in self._released else others).update(keys_of_change(base, was, becomes))
        for keys, context in ((others, nullcontext()), (released, self._run.ahead.releasing())):
            if keys:
                with context:
                    take_changes(self._run, {name: Touched(keys, {}, answers_from(seen_in(view).get))})


def keys_of_change(store: ReadableStore, was: Any | None, becomes: Any | None) -> set[Keys]:
    """Return the keys of lookups in *store* whose answer differs if one version replaces another; none if both are the
    same.
    """
    if was is becomes or (type(was) is dict and type(becomes) is dict and same_content(was, becomes)):
        return set()
    return {(), *(keys for one in (was, becomes) if one is not None for keys in store.schema.prefixes(one))}
