"""Lists the scalar fields of every kind that the libraries watch, from the published schemas, as `fields.txt` has them.

The schemas are those of the Gateway API's CRDs (`config/crd/experimental` of
the Go module `sigs.k8s.io/gateway-api`) and of Kubernetes
(`api/openapi-spec/v3` of `k8s.io/kubernetes`):

    python -m tests.attacks.inputs.schema_fields CRDS OPENAPI > tests/attacks/inputs/fields.txt
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

FIELDS: Final = Path(__file__).with_name("fields.txt")
_CORE: Final = {
    "Ingress": ("apis__networking.k8s.io__v1_openapi.json", "io.k8s.api.networking.v1.Ingress"),
    "IngressClass": ("apis__networking.k8s.io__v1_openapi.json", "io.k8s.api.networking.v1.IngressClass"),
    "EndpointSlice": ("apis__discovery.k8s.io__v1_openapi.json", "io.k8s.api.discovery.v1.EndpointSlice"),
    "Service": ("api__v1_openapi.json", "io.k8s.api.core.v1.Service"),
    "Secret": ("api__v1_openapi.json", "io.k8s.api.core.v1.Secret"),
    "ConfigMap": ("api__v1_openapi.json", "io.k8s.api.core.v1.ConfigMap"),
    "Namespace": ("api__v1_openapi.json", "io.k8s.api.core.v1.Namespace"),
}
# Controllers write the status; the rest is the same for every kind, and is listed once, as `*`.
_SKIPPED: Final = {"status", "metadata", "apiVersion", "kind"}
_METADATA: Final = (
    *("metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion", "metadata.creationTimestamp"),
    *("metadata.labels{}", "metadata.annotations{}", "metadata.generateName"),
)


class Field(msgspec.Struct, frozen=True):
    """A scalar field: `spec.rules[].host`; `[]` stands for an item of a list, `{}` for a key of a map."""

    kind: str
    path: str
    type: str


def fields() -> list[Field]:
    """Return the fields that `fields.txt` lists."""
    return [Field(*line.split()) for line in FIELDS.read_text("utf-8").splitlines() if not line.startswith("#")]


def _leaves(schema: dict[str, Any], schemas: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    if "allOf" in schema:
        schema = {**schema, **schema["allOf"][0]}
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if "properties" in schema:
        for name, inner in schema["properties"].items():
            if path or name not in _SKIPPED:
                yield from _leaves(inner, schemas, f"{path}.{name}" if path else name)
    elif schema.get("type") == "array":
        yield from _leaves(schema["items"], schemas, path + "[]")
    elif isinstance(schema.get("additionalProperties"), dict):
        yield from _leaves(schema["additionalProperties"], schemas, path + "{}")
    else:
        yield path, schema.get("type", "string")


def _of_crds(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(folder.glob("gateway.networking.k8s.io_*.yaml")):
        crd = next(yaml.safe_load_all(file.read_text("utf-8")))
        if crd["kind"] == "CustomResourceDefinition":
            newest = next(version for version in crd["spec"]["versions"] if version["storage"])
            yield crd["spec"]["names"]["kind"], newest["schema"]["openAPIV3Schema"]


def main(crds: Path, openapi: Path) -> None:
    """Write the list to standard output."""
    found = [Field("*", path, "string") for path in _METADATA]
    found += [Field(kind, *leaf) for kind, schema in _of_crds(crds) for leaf in _leaves(schema, {})]
    for kind, (file, name) in _CORE.items():
        schemas = json.loads((openapi / file).read_text("utf-8"))["components"]["schemas"]
        found += [Field(kind, *leaf) for leaf in _leaves(schemas[name], schemas)]
    sys.stdout.write("# Written by tests/attacks/inputs/schema_fields.py: kind, field, type; `*` is every kind.\n")
    sys.stdout.writelines(f"{one.kind} {one.path} {one.type}\n" for one in found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
