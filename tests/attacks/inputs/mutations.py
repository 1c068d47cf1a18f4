"""Every text of every object in a sample, and of every field that the schemas add, changed into something hostile."""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal, TypeVar

import msgspec

from haptic_trio.k8s.resource import Resource
from tests.attacks.inputs.annotation_samples import BESIDE, EXAMPLES, VENDORS, annotated
from tests.attacks.inputs.samples import SAMPLES
from tests.attacks.inputs.schema_fields import fields
from tests.attacks.inputs.tenants import Sample, Tenant
from tests.attacks.inputs.values import OTHER_TYPES, TEXTS

T = TypeVar("T")
Step = str | int
How = Literal["instead", "before", "behind", "within"]
HOWS: Final[tuple[How, ...]] = ("instead", "before", "behind", "within")
ATTACKER: Final = "attacker"
ATTACKER_AGE: Final = 20
# What an object is found by; an API server sets it, or a tenant cannot choose that of others.
_IDENTITY: Final = {("kind",), ("apiVersion",)}
_KEY: Final = "example.com/x"
# As `haptic_trio.k8s.manifests.objects` reads them, and API servers do.
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_MAPS: Final = {"annotations", "labels", "data", "matchLabels"}


class Leaf(msgspec.Struct, frozen=True):
    """A place in an object of a sample."""

    sample: str
    object: int
    path: tuple[Step, ...]
    of_key: bool = False
    """The key at the end of the path, and not what stands under it."""

    def __str__(self) -> str:
        return f"{self.sample}[{self.object}].{'.'.join(map(str, self.path))}{' (key)' if self.of_key else ''}"


class Mutation(msgspec.Struct, frozen=True):
    """A hostile value in one place, and perhaps others in others of the same sample."""

    leaf: Leaf
    value: Any
    how: How = "instead"
    others: tuple["Mutation", ...] = ()

    def objects(self, number: int) -> list[Resource]:
        """Return the copy *number* of the sample with the value in its place."""
        found = samples()[self.leaf.sample].build(tenant_of(number))
        for one in (self, *self.others):
            found[one.leaf.object] = _changed(found[one.leaf.object], one)
        return found

    def __str__(self) -> str:
        return "; ".join(f"{one.leaf} {one.how} {one.value!r:.200}" for one in (self, *self.others))


def tenant_of(number: int) -> Tenant:
    """Return the attacker as the owner of the copy *number*."""
    return Tenant(ATTACKER, number, ATTACKER_AGE)


@cache
def samples() -> Mapping[str, Sample]:
    """Return all samples by name: those of `samples.py`, and one for each annotation that a library knows."""
    found = {sample.name: sample for sample in SAMPLES}
    for vendor, entry in VENDORS.items():
        for name in entry["known"]:
            found[f"{vendor}/{name}"] = Sample(f"{vendor}/{name}", _AnnotationSample(vendor, name), 60)
    return found


class _AnnotationSample(msgspec.Struct, frozen=True):
    """An Ingress with one annotation, and with those that give it a meaning."""

    vendor: str
    name: str

    def __call__(self, tenant: Tenant) -> list[Resource]:
        beside = BESIDE[self.vendor]
        at = "/api(/|$)(.*)" if "rewrite-target" in beside else "/"
        values = {**beside, self.name: beside.get(self.name, EXAMPLES[self.vendor].get(self.name, ""))}
        return [annotated(tenant, "known", self.vendor, values, at)]


@cache
def leaves(sample: str) -> tuple[Leaf, ...]:
    """Return every place of *sample* that holds, or could hold, a text or a number."""
    if "/" in sample:
        vendor, _, name = sample.partition("/")
        return (Leaf(sample, 0, ("metadata", "annotations", VENDORS[vendor]["prefix"] + name)),)
    found = list(_walked(sample))
    for number, one in enumerate(_first(sample)):
        patterns = {pattern_of(leaf) for leaf in _walked(sample) if leaf.object == number and not leaf.of_key}
        for field in fields():
            if field.kind in ("*", one["kind"]) and field.path not in patterns:
                found.append(Leaf(sample, number, tuple(_steps(field.path))))  # noqa: PERF401  easier to read so
    return tuple(found)


def _first(sample: str) -> list[Resource]:
    return samples()[sample].build(tenant_of(1))


@cache
def _walked(sample: str) -> Mapping[Leaf, None]:
    return {
        Leaf(sample, number, path, of_key): None
        for number, one in enumerate(_first(sample))
        for path, of_key in _walk(one)
    }


def _walk(value: Any, path: tuple[Step, ...] = ()) -> Iterator[tuple[tuple[Step, ...], bool]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if path and path[-1] in _MAPS:
                yield (*path, key), True
            yield from _walk(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _walk(inner, (*path, index))
    elif path not in _IDENTITY:
        yield path, False


def pattern_of(leaf: Leaf) -> str:
    """Return the path of *leaf* as `fields.txt` writes it."""
    path, text = leaf.path, ""
    for at, step in enumerate(path):
        text += (
            "[]" if isinstance(step, int) else "{}" if step == _KEY or (at and path[at - 1] in _MAPS) else f".{step}"
        )
    return text.removeprefix(".")


def _steps(path: str) -> Iterator[Step]:
    for part in re.findall(r"\[\]|\{\}|[^.\[\]{}]+", path):
        yield 0 if part == "[]" else _KEY if part == "{}" else part


def _changed(one: Resource, mutation: Mutation) -> Resource:
    result = copy.deepcopy(one)
    *way, last = mutation.leaf.path
    place: Any = result
    before: Any
    for at, step in enumerate(way):
        place = _enter(place, step, [] if isinstance(mutation.leaf.path[at + 1], int) else {})
    if mutation.leaf.of_key:
        if last in place:
            place[_written(str(last), mutation)] = place.pop(last)
        return result
    if isinstance(last, int):
        _enter(place, last, "")
    before = place.get(last, "") if isinstance(place, dict) else place[last]
    place[last] = _written(before, mutation)
    return result


def _enter(place: Any, step: Step, new: Any) -> Any:
    if isinstance(place, list):
        if not place:
            place.append(new)
        return place[min(int(step), len(place) - 1)]
    if not isinstance(place.get(step), dict | list):
        place[step] = new
    return place[step]


def _written(before: Any, mutation: Mutation) -> Any:
    if mutation.how == "instead" or not isinstance(before, str) or not isinstance(mutation.value, str):
        return mutation.value
    middle = len(before) // 2
    match mutation.how:
        case "before":
            return mutation.value + before
        case "behind":
            return before + mutation.value
        case _:
            return before[:middle] + mutation.value + before[middle:]


def without(leaf: Leaf, number: int) -> list[Resource]:
    """Return the copy *number* of the sample without what is at *leaf*."""
    found = samples()[leaf.sample].build(tenant_of(number))
    *way, last = leaf.path
    place: Any = found[leaf.object]
    for step in way:
        place = place[step]
    del place[last]
    return found


def can_be_stored(mutation: Mutation) -> bool:
    """Whether an API server, and a directory, would take the object from a tenant.

    Names are checked there, labels and annotations are texts, an API server
    sets the time of creation, and a tenant has no right to write in other
    namespaces, or what the cluster has once.
    """
    objects = mutation.objects(1)
    return all(_can_be_at(one.leaf.path, objects[one.leaf.object]["metadata"]) for one in (mutation, *mutation.others))


def _can_be_at(path: Sequence[Step], metadata: Mapping[str, Any]) -> bool:
    """Whether the object with *metadata* would be taken for what it has at *path*."""
    if tuple(path) == ("metadata", "creationTimestamp"):
        return False
    if tuple(path) in (("metadata", "name"), ("metadata", "namespace")):
        text = metadata[str(path[1])]
        is_legal = isinstance(text, str) and _NAME.fullmatch(text) and (path[1] == "name" or "." not in text)
        return bool(is_legal) and "namespace" in metadata and metadata["namespace"] not in ("victim", "victim-other")
    if path[0] == "metadata" and path[1] in ("labels", "annotations"):
        return all(isinstance(value, str) for value in metadata[str(path[1])].values())
    return True


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield *items* in pieces of *size*."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def is_read(leaf: Leaf) -> bool:
    """Whether the libraries are known to read what is at *leaf*, since a benign sample has something there."""
    return "/" in leaf.sample or leaf in _walked(leaf.sample)


def table(sample: str, own_names: Sequence[str], *, every: int, offset: int = 0) -> Iterator[Mutation]:
    """Yield every place of *sample* with hostile values: one of each *every*, others in the next place.

    *own_names* are what the victim has: its hosts, sections and files. Places
    that no library is known to read get one of four times as many.
    """
    texts = (*TEXTS, *own_names)
    for at, leaf in enumerate(leaves(sample), offset):
        others: tuple[Any, ...] = () if leaf.of_key else OTHER_TYPES
        stride = every if is_read(leaf) else 4 * every
        for number, value in enumerate((*texts, *others)):
            if (number + at * 7) % stride == 0:
                how = HOWS[(number + at) % len(HOWS)] if isinstance(value, str) else "instead"
                mutation = Mutation(leaf, value, how)
                if can_be_stored(mutation):
                    yield mutation
