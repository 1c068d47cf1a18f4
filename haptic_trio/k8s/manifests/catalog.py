"""Catalog of the objects in a set of manifest files: without I/O, with the time as an input.

Every document is a *claim* on an object. Of several live claims on one object
the first by file and line counts; the others are reported. A claim that goes
away lives on for a grace, because editors delete and create where they mean
"change". A file that has a problem loses none of its claims: what cannot be
read now may well be one of them.
"""

import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import sha1
from typing import Any, Final, TypeAlias

import msgspec

from haptic_trio.errors import Problem
from haptic_trio.k8s.kinds import CLUSTER_SCOPED, group_of, plural_of
from haptic_trio.k8s.manifests.objects import LocatedResource
from haptic_trio.k8s.resource import Resource, ResourceRef, ResourceType

UNDATED: Final = "9999-12-31T23:59:59Z"
"""Creation time of each object whose manifest has none: younger than every object with a creation time.

It is the same for all, so namespace and name decide which one comes first, on
every machine and after every restart. The times of files depend on checkouts
and editors.
"""

_NAMESPACE: Final = uuid.NAMESPACE_URL.bytes

Key: TypeAlias = tuple[str, str, str, str]
"""Group, kind, namespace, name."""


class Manifest(msgspec.Struct, frozen=True):
    """One document, with what a cluster would have filled in."""

    key: Key
    resource: Resource
    line: int


class FileContent(msgspec.Struct, frozen=True, kw_only=True):
    """Content of a file."""

    path: str
    manifests: tuple[Manifest, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Of documents that cannot be used."""
    faults: tuple[Problem, ...] = ()
    """Of fields of the manifests."""


class ObjectChange(msgspec.Struct, frozen=True):
    """An object before and after; None before it was there, and after it is gone."""

    old: Resource | None
    new: Resource | None


class Outcome(msgspec.Struct, frozen=True):
    """Result of an update."""

    changes: tuple[ObjectChange, ...]
    reports: tuple[tuple[str, tuple[Problem, ...]], ...]
    """Files whose problems are others than before."""


class _Claim:
    __slots__ = ("expires", "manifest", "path")

    def __init__(self, path: str, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self.expires: float | None = None

    @property
    def order(self) -> tuple[str, int]:
        return self.path, self.manifest.line


class _Object:
    __slots__ = ("generation", "plain", "resource")

    def __init__(self, plain: Resource, resource: Resource, generation: int) -> None:
        self.plain = plain  # as in the manifest
        self.resource = resource  # as published
        self.generation = generation


def fill_in(located: LocatedResource) -> Manifest:
    """Return the object with its key, a namespace where it needs one, and without what only a server knows."""
    resource = located.resource
    kind: str = resource["kind"]
    optional = ("namespace", "labels", "annotations")
    metadata = {
        field: value
        for field, value in resource["metadata"].items()
        if field != "resourceVersion" and not (field in optional and not value and value != {})
    }
    if kind in CLUSTER_SCOPED:
        metadata.pop("namespace", None)
    else:
        metadata.setdefault("namespace", "default")
    key = (group_of(resource["apiVersion"]), kind, metadata.get("namespace", ""), metadata["name"])
    return Manifest(key, {**resource, "metadata": metadata}, located.line)


class Catalog:
    """The objects of all files."""

    def __init__(self, grace: float) -> None:
        """*grace* is how long, in seconds, an object outlives its disappearance from the files."""
        self._grace = grace
        self._claims: dict[Key, list[_Claim]] = {}
        self._groups: dict[str, set[str]] = {}
        """Groups of the claims there have been, by kind."""
        self._files: dict[str, list[_Claim]] = {}
        self._file_problems: dict[str, tuple[Problem, ...]] = {}
        self._shadowed: dict[Key, dict[_Claim, Problem]] = {}
        self._shadowed_in: dict[str, dict[_Claim, Problem]] = {}
        self._reported: dict[str, tuple[Problem, ...]] = {}
        self._leaving: deque[tuple[float, _Claim]] = deque()
        self._objects: dict[Key, _Object] = {}
        self._by_type: dict[ResourceType, dict[tuple[str, str], Resource]] = {}
        self._version = 0

    @property
    def next_expiry(self) -> float | None:
        """When `update` should be called next although no file has changed."""
        return self._leaving[0][0] if self._leaving else None

    def select(self, resource_type: ResourceType) -> Iterator[Resource]:
        """Yield all objects of *resource_type*."""
        return iter(self._by_type.get(resource_type, {}).values())

    def all(self) -> Iterator[Resource]:
        """Yield all objects."""
        return (one.resource for one in self._objects.values())

    def find(self, resource_type: ResourceType, namespace: str, name: str) -> Resource | None:
        """Return one object, or None."""
        return self._by_type.get(resource_type, {}).get((namespace, name))

    def place_of(self, ref: ResourceRef) -> tuple[str, int] | None:
        """Return the file and the line on which the manifest of *ref* begins; None if there is none."""
        for group in self._groups.get(ref.kind, ()):
            if claims := self._claims.get((group, ref.kind, ref.namespace, ref.name)):
                return claims[0].order
        return None

    def places(self) -> dict[tuple[str, str, str], tuple[str, int]]:
        """Return what `place_of` says of each object, by kind, namespace and name."""
        found: dict[tuple[str, str, str], tuple[str, int]] = {}
        for key, claims in self._claims.items():
            if claims:
                found.setdefault(key[1:], claims[0].order)
        return found

    def update(self, contents: Iterable[FileContent], gone: Iterable[str], now: float) -> Outcome:
        """Take in what files hold now and which files are gone, and let go what has been gone for the grace."""
        touched: dict[Key, None] = {}
        files: dict[str, None] = {}
        for content in contents:
            files[content.path] = None
            self._take(content, now, touched)
        for path in gone:
            files[path] = None
            self._take(FileContent(path=path), now, touched)
        self._expire(now, touched)
        changes = [change for key in touched if (change := self._settle(key, files))]
        return Outcome(tuple(changes), tuple(self._reports(files)))

    def _take(self, content: FileContent, now: float, touched: dict[Key, None]) -> None:
        path = content.path
        fresh = [_Claim(path, manifest) for manifest in content.manifests]
        fresh_keys = {manifest.key for manifest in content.manifests}
        kept = []
        for claim in self._files.get(path, ()):
            key = claim.manifest.key
            if key in fresh_keys:
                touched[key] = None
                self._claims[key].remove(claim)
                continue
            kept.append(claim)
            if content.problems:
                claim.expires = None
            elif claim.expires is None:
                claim.expires = now + self._grace
                self._leaving.append((claim.expires, claim))
            touched[key] = None
        for claim in fresh:
            key = claim.manifest.key
            touched[key] = None
            self._claims.setdefault(key, []).append(claim)
            self._groups.setdefault(key[1], set()).add(key[0])
        self._put_or_drop(self._files, path, kept + fresh)
        self._put_or_drop(self._file_problems, path, content.problems + content.faults)

    def _expire(self, now: float, touched: dict[Key, None]) -> None:
        while self._leaving and self._leaving[0][0] <= now:
            expires, claim = self._leaving.popleft()
            key = claim.manifest.key
            # It may have been replaced meanwhile, or kept after all.
            if claim.expires == expires and claim in self._claims.get(key, ()):
                self._claims[key].remove(claim)
                remaining = [other for other in self._files[claim.path] if other is not claim]
                self._put_or_drop(self._files, claim.path, remaining)
                touched[key] = None

    def _settle(self, key: Key, files: dict[str, None]) -> ObjectChange | None:
        """Make the first claim on *key* the object; note in *files* whose problems that may change."""
        claims = self._claims.get(key, [])
        if len(claims) > 1:
            claims.sort(key=lambda claim: claim.order)
        if len(claims) > 1 or key in self._shadowed:
            self._note_shadowed(key, claims, files)
        current = self._objects.get(key)
        if not claims:
            self._claims.pop(key, None)
            if current is None:
                return None
            del self._objects[key]
            self._unlist(current.resource)
            return ObjectChange(current.resource, None)
        first = claims[0]
        if current is not None and current.plain == first.manifest.resource:
            return None
        published = self._objects[key] = self._publish(key, first, current)
        if current is not None:
            self._unlist(current.resource)
        metadata = published.resource["metadata"]
        place = (metadata.get("namespace", ""), metadata["name"])
        self._by_type.setdefault(type_of(published.resource), {})[place] = published.resource
        return ObjectChange(current.resource if current else None, published.resource)

    def _publish(self, key: Key, claim: _Claim, current: _Object | None) -> _Object:
        plain = claim.manifest.resource
        self._version += 1
        generation = 1
        if current is not None:
            generation = current.generation + (_desired(plain) != _desired(current.plain))
        assigned = {"uid": _uid(key), "generation": generation, "creationTimestamp": UNDATED}
        given = {field: value for field, value in plain["metadata"].items() if value is not None}
        metadata = {**assigned, **given, "resourceVersion": str(self._version)}
        return _Object(plain, {**plain, "metadata": metadata}, generation)

    def _unlist(self, resource: Resource) -> None:
        metadata = resource["metadata"]
        self._by_type[type_of(resource)].pop((metadata.get("namespace", ""), metadata["name"]), None)

    def _note_shadowed(self, key: Key, claims: Sequence[_Claim], files: dict[str, None]) -> None:
        for claim in self._shadowed.pop(key, {}):
            del self._shadowed_in[claim.path][claim]
            files[claim.path] = None
        live = [claim for claim in claims if claim.expires is None]
        # A claim that is leaving is about to make room: nothing to correct there.
        if len(live) < 2:
            return
        shadowed = {claim: _duplicate(key, claim, live[0]) for claim in live[1:]}
        self._shadowed[key] = shadowed
        for claim, problem in shadowed.items():
            self._shadowed_in.setdefault(claim.path, {})[claim] = problem
            files[claim.path] = None

    def _reports(self, files: Iterable[str]) -> Iterator[tuple[str, tuple[Problem, ...]]]:
        for path in files:
            shadowed = self._shadowed_in.get(path, {})
            problems = self._file_problems.get(path, ()) + tuple(shadowed.values())
            problems = tuple(sorted(problems, key=lambda problem: problem.line))
            if not shadowed:
                self._shadowed_in.pop(path, None)
            if problems != self._reported.get(path, ()):
                self._put_or_drop(self._reported, path, problems)
                yield path, problems

    @staticmethod
    def _put_or_drop(mapping: dict[str, Any], path: str, value: Sequence[Any]) -> None:
        if value:
            mapping[path] = value
        else:
            mapping.pop(path, None)


def type_of(resource: Resource) -> ResourceType:
    """Return the type under which the API would list *resource*."""
    return _type_of(resource["apiVersion"], resource["kind"])


@lru_cache(maxsize=1024)
def _type_of(api_version: str, kind: str) -> ResourceType:
    return ResourceType(api_version, plural_of(kind))


def _desired(resource: Resource) -> Resource:
    return {field: value for field, value in resource.items() if field not in {"metadata", "status"}}


def _uid(key: Key) -> str:
    """Return the text of `uuid.uuid5` for *key*, in a fifth of its time."""
    digest = bytearray(sha1(_NAMESPACE + "/".join(("haptic-trio", *key)).encode(), usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50  # the version
    digest[8] = digest[8] & 0x3F | 0x80  # the variant
    digits = digest.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _duplicate(key: Key, claim: _Claim, first: _Claim) -> Problem:
    _group, kind, namespace, name = key
    return Problem(
        message=f"defined already in {first.path}:{first.manifest.line}",
        source=claim.path,
        line=claim.manifest.line,
        hint="remove one of them; until then the first by file name and line counts",
        subject=str(ResourceRef(kind, namespace, name)),
    )
