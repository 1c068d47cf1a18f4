"""Renders the shipped libraries over plain objects, without anything around the engine."""

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any

import msgspec

from haptic_trio.config.libraries import LibraryDoc, load_library, merge
from haptic_trio.config.model import Config, TemplatingConfig
from haptic_trio.config.templates import MAIN_TEMPLATE, template_set
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Store
from haptic_trio.templating.engine import Engine
from haptic_trio.templating.filters.emit import trust
from haptic_trio.templating.values.subjects import Rejection, subject_of
from haptic_trio.templating.views import ResourcesView

KINDS = {
    "ingresses": "Ingress",
    "ingressclasses": "IngressClass",
    "services": "Service",
    "endpointslices": "EndpointSlice",
    "secrets": "Secret",
    "configmaps": "ConfigMap",
}


class Rendered(msgspec.Struct, frozen=True):
    """What came out of one cycle, after all objects that had to be rejected were left out."""

    text: str
    files: dict[str, str]
    rejections: tuple[Rejection, ...]

    @property
    def rejected(self) -> dict[str, str]:
        """By object, such as `Ingress default/web`: why it was rejected."""
        return {str(rejection.subject): rejection.problem.message for rejection in self.rejections}


def library_config(*names: str, user: Config | None = None, **context: Any) -> Config:
    """Return the libraries *names*, merged, below *user* and *context* as the user's extraContext."""
    base = user or Config()
    user = msgspec.structs.replace(base, templating=TemplatingConfig(extra_context=context))
    return merge(*(_library(name) for name in names), user=user)


@cache
def _library(name: str) -> LibraryDoc:
    return load_library(name)


def render(
    objects: Iterable[Resource], *, libraries: tuple[str, ...] = ("base", "ssl", "ingress"), **context: Any
) -> Rendered:
    """Render *objects*, each of them or none of it, as the controller does."""
    return render_config(library_config(*libraries, **context), objects)


def render_config(config: Config, objects: Iterable[Resource]) -> Rendered:
    """Render *objects* with *config*; a rejected object is left out of everything."""
    objects, rejections = list(objects), list[Rejection]()
    while True:
        rendered = _render_once(config, objects)
        if not rendered.rejections:
            return msgspec.structs.replace(rendered, rejections=tuple(rejections))
        rejections += rendered.rejections
        rejected = {rejection.subject for rejection in rendered.rejections}
        kept = [item for item in objects if subject_of(item) not in rejected]
        assert len(kept) < len(objects), f"{rejected} cannot be left out"
        objects = kept


def _render_once(config: Config, objects: Iterable[Resource]) -> Rendered:
    templates = template_set(config)
    sources = {**templates.sources, **{name: snippet.template for name, snippet in templates.snippets.items()}}
    priorities = {name: snippet.priority for name, snippet in templates.snippets.items()}
    engine = _compiled(tuple(sources.items()), tuple(priorities.items()))
    variables = {**trust(config.templating.extra_context), "resources": ResourcesView(_stores(config, objects))}
    run = engine.start_run()
    files = {output.path: engine.render(output.name, variables, run).text for output in templates.outputs}
    text = engine.render(MAIN_TEMPLATE, variables, run).text
    files |= {file.path: file.text for file in run.files.values()}
    return Rendered(text, files, tuple(run.rejections))


@lru_cache(maxsize=8)
def _compiled(sources: tuple[tuple[str, str], ...], priorities: tuple[tuple[str, int], ...]) -> Engine:
    return Engine(dict(sources), snippets=dict(priorities))


def _stores(config: Config, objects: Iterable[Resource]) -> dict[str, Store]:
    stores = {name: Store(name, watched.index_by) for name, watched in config.watched_resources.items()}
    for name, watched in config.watched_resources.items():
        kind = KINDS[watched.resources]
        for item in objects:
            wanted = watched.field_selector != "type=kubernetes.io/tls" or item.get("type") == "kubernetes.io/tls"
            if item["kind"] == kind and wanted:
                stores[name].upsert(item)
    return stores
