"""Objects of a published configuration: what HAProxy instances run, as resources of the API server. No I/O."""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from haptic_trio.channels import InstanceState
from haptic_trio.k8s.resource import Resource, ResourceType

API_VERSION: Final = "published.haptic-trio/v1alpha1"
CONFIGURATIONS: Final = ResourceType(API_VERSION, "publishedconfigurations")
FILES: Final = ResourceType(API_VERSION, "publishedfiles")
MOST_BYTES: Final = 256 * 1024
"""Limit on the text in one object. etcd accepts objects of about 1.5 MiB."""
MOST_FILES: Final = 64
MOST_OMITTED: Final = 1000
"""Limit on the paths of omitted files: a map of each of very many objects would fill the object."""
MOST_INSTANCES: Final = 100
MOST_CHARACTERS: Final = 1000
"""Limit on one message about an instance."""
_SHORT: Final = 12
_UNSUITABLE: Final = re.compile(r"[^a-z0-9]+")


class PublishedText(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a configuration, without content of Secrets."""

    path: str
    kind: str
    """`configuration` or `map`."""
    text: str
    """The first lines, at most `MOST_BYTES` bytes."""
    bytes: int
    """Size of the whole file."""
    first_omitted: int = 0
    """1-based number of the first line that is not in the text; 0 if all are."""
    hidden_lines: int = 0
    """Number of lines that show a digest instead of content of a Secret."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A generation as text."""

    generation: str
    texts: tuple[PublishedText, ...]
    """haproxy.cfg first, then maps."""
    omitted: tuple[str, ...] = ()
    """Paths of further files beyond `MOST_FILES`, at most `MOST_OMITTED`."""


def in_order(maps: Iterable[str], outputs: Collection[str]) -> list[str]:
    """Return the paths *maps* in the order of their publication.

    Those of templates, *outputs*, come first: objects of a tenant may add
    very many others, such as one for each list of API keys.
    """
    return sorted(maps, key=lambda path: (path not in outputs, path))


def file_name(owner: str, path: str) -> str:
    """Return the name of the object for the file *path* of the configuration *owner*; a name stands for one path."""
    digest = hashlib.sha256(path.encode(errors="surrogatepass")).hexdigest()[:8]
    readable = _UNSUITABLE.sub("-", path.lower()).strip("-")[:100]
    return "-".join(part for part in (owner[:140].rstrip("-."), readable, digest) if part)


def configuration_of(namespace: str, name: str, snapshot: Snapshot) -> Resource:
    """Return the object that names what is published of *snapshot*."""
    return {
        "apiVersion": API_VERSION,
        "kind": "PublishedConfiguration",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "generation": snapshot.generation,
            "shortGeneration": snapshot.generation[:_SHORT],
            "files": [_described(name, text) for text in snapshot.texts],
            "omittedFiles": list(snapshot.omitted),
        },
    }


def files_of(namespace: str, name: str, uid: str, snapshot: Snapshot) -> Iterator[Resource]:
    """Yield an object for each file of *snapshot*, owned by the configuration object with *uid*."""
    owner = {"apiVersion": API_VERSION, "kind": "PublishedConfiguration", "name": name, "uid": uid}
    for text in snapshot.texts:
        yield {
            "apiVersion": API_VERSION,
            "kind": "PublishedFile",
            "metadata": {"namespace": namespace, "name": file_name(name, text.path), "ownerReferences": [owner]},
            "spec": {
                "path": text.path,
                "kind": text.kind,
                "bytes": text.bytes,
                "firstOmittedLine": text.first_omitted,
                "hiddenLines": text.hidden_lines,
                "content": text.text,
            },
        }


def names_in(configuration: Resource) -> set[str]:
    """Return the names of the objects for files that *configuration*, as it is stored, names."""
    listed = (configuration.get("spec") or {}).get("files") or ()
    return {one["object"] for one in listed if isinstance(one, Mapping) and isinstance(one.get("object"), str)}


def status_of(namespace: str, name: str, states: Mapping[str, InstanceState], endpoints: Iterable[str]) -> Resource:
    """Return the object with the state of each instance among *endpoints*; texts in *states* are without secrets."""
    names = sorted(set(endpoints))
    shown = [_instance(one, states.get(one)) for one in names]
    count = sum(one["inSync"] for one in shown)
    # Beyond the limit, the ones that are not in sync matter more.
    kept = sorted(shown, key=lambda one: one["inSync"])[:MOST_INSTANCES]
    return {
        "apiVersion": API_VERSION,
        "kind": "PublishedConfiguration",
        "metadata": {"namespace": namespace, "name": name},
        "status": {
            "inSync": f"{count}/{len(shown)}",
            "instances": sorted(kept, key=lambda one: one["name"]),
            "omittedInstances": len(shown) - len(kept),
        },
    }


def _described(owner: str, text: PublishedText) -> dict[str, Any]:
    return {
        "path": text.path,
        "kind": text.kind,
        "object": file_name(owner, text.path),
        "bytes": text.bytes,
        "isTruncated": text.first_omitted > 0,
    }


def _instance(name: str, state: InstanceState | None) -> dict[str, Any]:
    if state is None:
        return {"name": name, "generation": "", "inSync": False, "heldBack": [], "lastError": ""}
    return {
        "name": name,
        "generation": state.generation,
        "inSync": state.is_in_sync,
        "heldBack": [text[:MOST_CHARACTERS] for text in state.held[:5]],
        "lastError": state.error[:MOST_CHARACTERS],
    }
