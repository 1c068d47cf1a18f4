"""Fixtures: the objects that templates see in a test."""

import base64
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from haptic_trio.config.checks.validation_tests import CERTIFICATE_FOR, OBJECT, REPEAT
from haptic_trio.config.libraries import merge_context
from haptic_trio.config.model import Config, HttpResource, ValidationTest, WatchedResource
from haptic_trio.httpstore.content import Content, Failure
from haptic_trio.k8s.manifests.catalog import fill_in
from haptic_trio.k8s.manifests.objects import LocatedResource
from haptic_trio.k8s.resource import Resource, ResourceType
from haptic_trio.k8s.selectors import parse_field_selector, parse_label_selector
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.validation_tests.live.certificates import issue

CREATED: Final = "2026-01-01T00:00:00Z"
"""Default creation time of objects."""

_PLACE: Final = re.compile(r"\{n(?:(?P<operator>//|%|\+|\*)(?P<operand>[0-9]{1,9}))?(?::0(?P<width>[1-9]))?\}")

Objects = dict[str, list[Resource]]
"""Fixtures by watched resource."""
Contents = dict[str, Content | Failure]
"""Contents by URL."""


class ExpandedFixtures(msgspec.Struct, frozen=True, kw_only=True):
    """Expanded fixtures of a test, including those of extended tests."""

    objects: Objects
    previous: Objects | None
    """The cluster before the change; None without one."""
    contents: Contents
    """Results of fetches, by URL."""
    previous_contents: Contents
    context: dict[str, Any]
    """Overrides of the configuration's variables."""
    current_config: str


class FixtureCache:
    """Expands each list of fixtures once, so that tests with the same list share the objects."""

    def __init__(self, config: Config) -> None:
        self._config = config
        # Keep the list alive, so that its id is not reused.
        self._expanded: dict[tuple[int, str], tuple[Any, list[Resource]]] = {}
        self._fetched: dict[int, tuple[Any, Contents]] = {}

    def expand(self, test: ValidationTest) -> ExpandedFixtures:
        """Return the expanded fixtures of *test*; names and references are valid."""
        chain = list(self._chain(test))
        objects: Objects = {}
        context: dict[str, Any] = {}
        contents: Contents = {}
        for link in chain:
            contents |= self._contents_of(link.http_resources)
            context = merge_context(context, link.extra_context)
            for name, fixtures in link.fixtures.items():
                objects[name] = _merged(objects.get(name, []), self._expand(name, fixtures))
        previous = None
        if test.previous_fixtures or test.previous_http_resources:
            previous = dict(objects)
            for name, fixtures in test.previous_fixtures.items():
                previous[name] = self._expand(name, fixtures)
        return ExpandedFixtures(
            objects=objects,
            previous=previous,
            contents=contents,
            previous_contents=contents | self._contents_of(test.previous_http_resources),
            context=context,
            current_config=test.current_config,
        )

    def _contents_of(self, resources: list[HttpResource]) -> Contents:
        key = id(resources)
        if key not in self._fetched:
            # Keep the identity of equal values: other objects would render again.
            found = {resource.url: _content_of(resource) for resource in resources}
            self._fetched[key] = resources, found
        return self._fetched[key][1]

    def _chain(self, test: ValidationTest) -> Iterator[ValidationTest]:
        if test.extends:
            yield from self._chain(self._config.validation_tests[test.extends])
        yield test

    def _expand(self, name: str, fixtures: list[dict[str, Any]]) -> list[Resource]:
        key = id(fixtures), name
        if key not in self._expanded:
            watched = self._config.watched_resources[name]
            self._expanded[key] = fixtures, [resource for one in fixtures for resource in _objects(one, watched)]
        return self._expanded[key][1]


def _content_of(resource: HttpResource) -> Content | Failure:
    return Content.of(resource.content) if resource.content is not None else Failure(resource.error)


def make_stores(config: Config) -> Stores:
    """Return empty stores for *config*."""
    return Stores(
        Store(name, watched.index_by, (*config.watched_resources_ignore_fields, *watched.ignore_fields))
        for name, watched in config.watched_resources.items()
    )


def objects_by_store(config: Config, objects: Objects) -> Objects:
    """Return the objects of each store: all objects of its kind that it selects, from any list of fixtures."""
    by_type: dict[ResourceType, list[Resource]] = {}
    for name, resources in objects.items():
        by_type.setdefault(_type_of(config.watched_resources[name]), []).extend(resources)
    return {
        name: list(_select(watched, by_type.get(_type_of(watched), ())))
        for name, watched in config.watched_resources.items()
    }


def fill_stores(stores: Stores, objects: Objects, *, shuffled: random.Random | None = None) -> None:
    """Replace the contents of *stores* by *objects*; with *shuffled*, in another order."""
    for name, resources in objects.items():
        ordered = list(resources)
        if shuffled is not None:
            shuffled.shuffle(ordered)
        stores[name].replace(ordered)


def _type_of(watched: WatchedResource) -> ResourceType:
    return ResourceType(watched.api_version, watched.resources)


def _select(watched: WatchedResource, resources: Iterable[Resource]) -> Iterable[Resource]:
    if watched.namespaces:
        resources = [one for one in resources if one["metadata"].get("namespace", "") in watched.namespaces]
    for selector in (parse_label_selector(watched.label_selector), parse_field_selector(watched.field_selector)):
        resources = filter(selector.matches, resources)
    return resources


def _merged(lower: Sequence[Resource], upper: Sequence[Resource]) -> list[Resource]:
    if not lower:
        return list(upper)
    replaced = {_identity(one) for one in upper}
    return [one for one in lower if _identity(one) not in replaced] + list(upper)


def _identity(resource: Resource) -> tuple[str, str, str]:
    metadata = resource["metadata"]
    return resource["kind"], metadata.get("namespace", ""), metadata["name"]


def _objects(fixture: dict[str, Any], watched: WatchedResource) -> Iterator[Resource]:
    if REPEAT not in fixture:
        yield _finished(fixture, watched)
        return
    for number in range(fixture[REPEAT]):
        yield _finished(_filled(fixture[OBJECT], number), watched)


def _filled(value: Any, number: int) -> Any:
    """Return *value* with its number placeholders filled."""
    if isinstance(value, str):
        return _PLACE.sub(lambda match: _write(match, number), value) if "{n" in value else value
    if isinstance(value, dict):
        return {_filled(key, number): _filled(item, number) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, number) for item in value]
    return value


def _write(match: re.Match[str], number: int) -> str:
    operand = int(match["operand"] or 0)
    match match["operator"]:
        case "+":
            number += operand
        case "*":
            number *= operand
        case "//":
            number //= max(1, operand)
        case "%":
            number %= max(1, operand)
    return f"{number:0{match['width'] or 1}}"


def _finished(fixture: dict[str, Any], watched: WatchedResource) -> Resource:
    """Return *fixture* with the fields that an API server sets and templates can see."""
    given = {"apiVersion": watched.api_version, **fixture}
    names = given.pop(CERTIFICATE_FOR, None)
    if names:
        issued = issue(tuple(names))
        given = {"type": "kubernetes.io/tls", **given}
        given["stringData"] = {"tls.crt": issued.chain, "tls.key": issued.key, **(given.get("stringData") or {})}
    texts = given.pop("stringData", None)
    if isinstance(texts, Mapping):
        encoded = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
        given["data"] = {**(given.get("data") or {}), **encoded}
    resource = fill_in(LocatedResource(given, "", 0)).resource
    metadata = {"creationTimestamp": CREATED, **resource["metadata"], "resourceVersion": "1"}
    return {**resource, "metadata": metadata}
