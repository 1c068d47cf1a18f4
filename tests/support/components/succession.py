"""Renders the shipped libraries with one configuration after the other, and keeps good versions of objects."""

from collections.abc import Mapping
from typing import Any

import msgspec
import trio

from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.pipeline.review.dry_run_object import render_dry_run
from tests.support.components.pipeline import stores_of
from tests.support.components.rendering import library_config

_LIMIT = 60.0
"""Seconds of a review; the machine may be busy."""


class Succession:
    """The configurations of one controller, without the instances; HAProxy would accept everything that is rendered."""

    def __init__(self, libraries: tuple[str, ...], *, limits: Mapping[str, int] | None = None, **settings: Any) -> None:
        """*limits* are fields of `TemplatingConfig`."""
        self._libraries, self._limits = libraries, limits or {}
        self._begin(settings)
        self._quarantine = Quarantine(self._config.templating.extra_context)

    def _begin(self, settings: dict[str, Any]) -> None:
        config = library_config(*self._libraries, **settings)
        templating = msgspec.structs.replace(config.templating, **self._limits)
        self._config = msgspec.structs.replace(config, templating=templating)
        self._renderer, self.stores = Renderer(self._config), stores_of(self._config)

    def configure(self, **settings: Any) -> Rendered:
        """Render the same objects with other *settings*."""
        renderer, stores = self._renderer, self.stores
        self._begin(settings)
        self._quarantine = self._quarantine.successor(self._config.templating.extra_context)
        self.stores.take_over(stores, stores.keys())
        self._renderer.take_over(renderer, self.stores, frozenset())()
        return self.render()

    def pause(self, kind: str, namespace: str, name: str) -> None:
        """Have new versions of an object wait, as after many that HAProxy has rejected."""
        ref, reason = ResourceRef(kind, namespace, name), Problem(message="rejected by HAProxy")
        for _turn in range(10):
            self._quarantine.setbacks.record({ref: reason}, 0)
        self._quarantine.pause(1)

    def delete(self, resource: Resource) -> None:
        """Delete *resource* from all stores."""
        for store in self.stores.values():
            store.delete(ref_of(resource))

    async def review(self, resource: Resource) -> None:
        """Render with *resource* in place of its present version, as a review does."""
        ref = ref_of(resource)
        changed = {name: {ref: resource} for name, store in self.stores.items() if store.by_ref(ref) is not None}
        with self.stores.frozen(), trio.fail_after(_LIMIT):
            await self._renderer.render(self.stores, self._quarantine.recall())
            recall = self._quarantine.recall()
            await render_dry_run(self._renderer, self.stores, changed, recall, limit=_LIMIT, longest=_LIMIT)

    def render(self, *objects: Resource, is_checked: bool = True) -> Rendered:
        """Write *objects*, and render; no template may be found at fault.

        Unless it *is_checked*, the parser has accepted the output, and HAProxy has not read it yet.
        """
        for one in objects:
            for name, watched in self._config.watched_resources.items():
                selectors = "", f"type={one.get('type')}", f"metadata.name={one['metadata']['name']}"
                is_selected = watched.field_selector in selectors
                if is_selected and (watched.api_version, watched.resources) == (one["apiVersion"], _plural_of(one)):
                    self.stores[name].upsert(one)
        rendered = self._renderer.render_here(self.stores, self._quarantine.recall())
        assert self._quarantine.find_template_faults(rendered.produced, rendered.rejections) == ()
        self._quarantine.take(rendered.serial, rendered.changed, is_new=rendered.is_new)
        self._quarantine.prepare(rendered.serial)
        if is_checked:
            self._quarantine.accept(rendered.serial, rendered.rejections)
        self._quarantine.update(rendered.rejections)
        return rendered


def _plural_of(resource: Resource) -> str:
    kind = str(resource["kind"]).lower()
    if kind.endswith("cy"):
        return kind[:-1] + "ies"
    return kind + "es" if kind.endswith("s") else kind + "s"
