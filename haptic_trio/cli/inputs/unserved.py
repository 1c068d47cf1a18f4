"""Objects in a directory of manifests that have no effect, or not the one that their owner expects.

A cluster may have other controllers, for which such objects are meant. In a
directory they are usually mistakes, about which nothing else complains.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from haptic_trio.cli.inputs.oneshot import Snapshot
from haptic_trio.cli.output.findings import Finding
from haptic_trio.config.libraries import library_names, load_library
from haptic_trio.config.model import Config
from haptic_trio.errors import Problem
from haptic_trio.explain.why_not import foreign_class
from haptic_trio.gateway.extensions import allowed_filters
from haptic_trio.gateway.objects import GROUP, dig, text_of
from haptic_trio.gateway.reasons import Fault, gateway_faults, route_faults
from haptic_trio.gateway.routes.kinds import ROUTE_KINDS
from haptic_trio.ingress.classes import class_of
from haptic_trio.k8s.kinds import group_of, plural_of
from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of
from haptic_trio.yaml.paths import key_path

_SERVED: Final = {"networking.k8s.io": {"Ingress"}, GROUP: {"Gateway", "ListenerSet", "BackendTLSPolicy", *ROUTE_KINDS}}
"""Kinds that have no purpose except to be served, by group."""
_NO_CERTIFICATE: Final = re.compile(
    r"the Secret (?P<name>[^\s/]+/\S+) does not exist, or is not of type kubernetes\.io/tls"
)
_SECRET: Final = "Secret"  # noqa: S105  a kind of object
_ANNOTATIONS: Final = "ingressAnnotations"


def find_unserved(snapshot: Snapshot) -> Iterator[Problem]:
    """Yield a warning about each object of the directory that the configuration of *snapshot* does not serve."""
    if snapshot.loaded is None:
        return
    config = snapshot.loaded.config
    watched = {(one.api_version, one.resources) for one in config.watched_resources.values()}
    for resource in snapshot.manifests:
        group = group_of(resource["apiVersion"])
        if resource["kind"] not in _SERVED.get(group, ()):
            continue
        if (resource["apiVersion"], plural_of(resource["kind"])) not in watched:
            faults = _unwatched(resource, config)
        elif resource["kind"] == "Ingress":
            faults = _ingress_faults(resource, snapshot, config)
        else:
            faults = _gateway_api_faults(resource, snapshot, config)
        for fault in faults:
            yield Problem(message=f"{fault.reason}: {fault}", subject=str(ref_of(resource)))


def with_types_of_secrets(findings: Iterable[Finding], manifests: Iterable[Resource]) -> Iterator[Finding]:
    """Yield *findings*; those about a missing certificate say whether *manifests* have its Secret."""
    secrets = {ref_of(one): one for one in manifests if one["kind"] == _SECRET}
    for finding in findings:
        problem = finding.problem
        match = _NO_CERTIFICATE.search(problem.message)
        if match is None:
            yield finding
            continue
        text = "does not exist"
        found = secrets.get(ResourceRef(_SECRET, *match["name"].split("/")))
        if found is not None:
            text = f"is of type {text_of(found, 'type') or 'Opaque'}, not kubernetes.io/tls"
        message = problem.message.replace(match[0], f"the Secret {match['name']} {text}")
        yield msgspec.structs.replace(finding, problem=msgspec.structs.replace(problem, message=message))


def _unwatched(resource: Resource, config: Config) -> Iterator[Fault]:
    kind, version = resource["kind"], resource["apiVersion"]
    library = _library_of(lambda one: (version, plural_of(kind)) in one.watched, config)
    if library:
        message = f"no effect: the library {library} is not loaded; add it to templating.libraries"
        yield Fault("NotWatched", "", message)


def _ingress_faults(ingress: Resource, snapshot: Snapshot, config: Config) -> Iterator[Fault]:
    reason = foreign_class(ingress, snapshot.stores, config.templating.extra_context)
    if reason:
        field = "spec.ingressClassName"
        if class_of(ingress) and not text_of(ingress, "spec", "ingressClassName"):
            field = key_path("metadata.annotations", "kubernetes.io/ingress.class")
        yield Fault("ForeignClass", field, f"not served: {reason}")
        return
    loaded = config.templating.extra_context.get(_ANNOTATIONS) or {}
    known = {text_of(one, "prefix") for one in loaded.values()} if isinstance(loaded, dict) else set()
    found: dict[str, list[str]] = {}
    for name in dig(ingress, "metadata", "annotations") or ():
        prefix = f"{name.partition('/')[0]}/"
        if prefix not in known and (library := _reader_of(prefix, config)):
            found.setdefault(library, []).append(name)
    for library, names in found.items():
        others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        message = f"no effect{others}: the library {library} is not loaded; add it to templating.libraries"
        yield Fault("AnnotationIgnored", key_path("metadata.annotations", names[0]), message)


def _gateway_api_faults(resource: Resource, snapshot: Snapshot, config: Config) -> Iterator[Fault]:
    controller = str(config.templating.extra_context.get("gatewayController", ""))
    # A configuration with templates of its own may serve them in another way.
    if controller and "gatewayClasses" in snapshot.stores:
        if resource["kind"] == "Gateway":
            yield from gateway_faults(resource, snapshot.stores, controller)
        elif resource["kind"] in ROUTE_KINDS:
            filters = allowed_filters(config.templating.extra_context)
            yield from route_faults(resource, snapshot.stores, controller, filters)


class _Library(NamedTuple):
    name: str
    prefixes: frozenset[str]
    """Prefixes of the annotations that it reads."""
    watched: frozenset[tuple[str, str]]
    """API version and plural of the kinds that it watches."""


def _library_of(has: Callable[[_Library], bool], config: Config) -> str:
    """Return the first library that *config* does not load and that *has* something; empty without one."""
    return next((one.name for one in _shipped() if one.name not in config.templating.libraries and has(one)), "")


def _reader_of(prefix: str, config: Config) -> str:
    return _library_of(lambda one: prefix in one.prefixes, config)


@lru_cache(maxsize=1)
def _shipped() -> tuple[_Library, ...]:
    found = []
    for name in library_names():
        library = load_library(name)
        annotations: dict[str, Any] = library.templating.extra_context.get(_ANNOTATIONS) or {}
        found.append(
            _Library(
                name,
                frozenset(text_of(one, "prefix") for one in annotations.values()),
                frozenset((one.api_version, one.resources) for one in library.watched_resources.values()),
            )
        )
    return tuple(found)
