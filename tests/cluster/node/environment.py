"""The environment and the command of a container, from its spec and what that refers to; no I/O."""

import base64
import re
from collections.abc import Mapping
from typing import Any, Protocol

from haptic_trio.k8s.resource import Resource

_VARIABLE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_KEYED_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class SourceMissingError(Exception):
    """A Secret, ConfigMap, key or field that a Pod refers to is not there; it may come."""


class Sources(Protocol):
    """Where Secrets and ConfigMaps are found."""

    def secret(self, namespace: str, name: str) -> Resource | None:
        """Return the Secret, if it exists."""

    def config_map(self, namespace: str, name: str) -> Resource | None:
        """Return the ConfigMap, if it exists."""


def files_of(kind: str, source: Resource) -> dict[str, bytes]:
    """Return the content of a Secret or ConfigMap by key; *kind* is `secret` or `configMap`."""
    data: Mapping[str, str] = source.get("data") or {}
    if kind == "secret":
        return {key: base64.b64decode(value) for key, value in data.items()}
    binary: Mapping[str, str] = source.get("binaryData") or {}
    return {key: value.encode() for key, value in data.items()} | {
        key: base64.b64decode(value) for key, value in binary.items()
    }


def find_source(sources: Sources, namespace: str, kind: str, name: str, *, optional: bool) -> dict[str, bytes] | None:
    """Return the content of a Secret or ConfigMap; None for an optional one that is absent."""
    found = (sources.secret if kind == "secret" else sources.config_map)(namespace, name)
    if found is not None:
        return files_of(kind, found)
    if optional:
        return None
    raise SourceMissingError(f"{kind} {namespace}/{name} not found")


def read_field(pod: Resource, path: str) -> str:
    """Return the field of *pod* that a fieldRef names."""
    metadata = pod["metadata"]
    if match := _KEYED_FIELD.fullmatch(path):
        return str((metadata.get(match[1]) or {}).get(match[2], ""))
    spec, status = pod["spec"], pod.get("status") or {}
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.podIP": status.get("podIP", ""),
        "status.podIPs": status.get("podIP", ""),
        "status.hostIP": status.get("hostIP", ""),
        "status.hostIPs": status.get("hostIP", ""),
    }
    if path in {"metadata.labels", "metadata.annotations"}:
        pairs = metadata.get(path.rpartition(".")[2]) or {}
        return "\n".join(f'{key}="{value}"' for key, value in sorted(pairs.items()))
    if path not in fields:
        raise SourceMissingError(f"no field {path}")
    return str(fields[path])


def build_environment(
    pod: Resource, container: Mapping[str, Any], base: Mapping[str, str], sources: Sources
) -> dict[str, str]:
    """Return the variables of *container*, which win over *base*; raises SourceMissingError."""
    namespace = pod["metadata"]["namespace"]
    result = dict(base)
    for entry in container.get("envFrom") or ():
        kind = "secret" if "secretRef" in entry else "configMap"
        reference = entry[f"{kind}Ref"]
        found = find_source(sources, namespace, kind, reference["name"], optional=reference.get("optional", False))
        prefix = entry.get("prefix", "")
        result |= {prefix + key: value.decode(errors="replace") for key, value in (found or {}).items()}
    for entry in container.get("env") or ():
        value = _value_of(entry, pod, container, sources)
        if value is not None:
            result[entry["name"]] = fill_in(value, result) if "value" in entry else value
    return result


def fill_in(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value and `$$` by `$`; an unknown name stays as it is."""
    return _VARIABLE.sub(lambda match: "$" if match[1] is None else variables.get(match[1], match[0]), text)


def _value_of(entry: Mapping[str, Any], pod: Resource, container: Mapping[str, Any], sources: Sources) -> str | None:
    origin: Mapping[str, Any] = entry.get("valueFrom") or {}
    if "fieldRef" in origin:
        return read_field(pod, origin["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in origin:
        kind, _, name = origin["resourceFieldRef"]["resource"].partition(".")
        return str(((container.get("resources") or {}).get(kind) or {}).get(name, "0"))
    for kind in ("secret", "configMap"):
        if reference := origin.get(f"{kind}KeyRef"):
            optional = reference.get("optional", False)
            found = find_source(sources, pod["metadata"]["namespace"], kind, reference["name"], optional=optional)
            if found is not None and reference["key"] in found:
                return found[reference["key"]].decode(errors="replace")
            if optional:
                return None
            raise SourceMissingError(f"{kind} {reference['name']} has no key {reference['key']}")
    return str(entry.get("value", ""))
