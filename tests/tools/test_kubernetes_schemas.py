"""The generated field lists are those of the schemas, with the values that the tool adds."""

import json
from pathlib import Path
from typing import Any

import msgspec

from haptic_trio.k8s.manifests.schemas import FILE, Catalogue, Schema
from tools.kubernetes_schemas import GATEWAY_API, KINDS, read_catalogue

PATH = "io.k8s.api.networking.v1.HTTPIngressPath"


def write_schemas(folder: Path) -> None:
    """Write the schemas of kinds with one field each, and their definitions."""
    definitions: dict[str, Any] = {
        PATH: {"type": "object", "properties": {"pathType": {"type": ["string", "null"]}, "any": {"oneOf": []}}},
        "Widget": {
            "x-kubernetes-group-version-kind": [{"group": "apps", "kind": "Widget", "version": "v1"}],
            "type": "object",
        },
    }
    (folder / "_definitions.json").write_text(json.dumps({"$defs": definitions}))
    for name in KINDS:
        kind, _, group = name.partition("-")
        properties = {
            "apiVersion": {"type": "string", "enum": [group]},
            "kind": {"type": "string", "enum": [kind]},
            "paths": {"type": "array", "items": {"$ref": f"/api/_definitions.json#/$defs/{PATH}"}},
            "labels": {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
        }
        (folder / f"{name}.json").write_text(json.dumps({"type": "object", "properties": properties}))


def test_catalogue_has_kinds_fields_and_values(tmp_path: Path) -> None:
    write_schemas(tmp_path)

    path = {"type": "object", "properties": {"type": {"type": "string", "enum": ["Exact"]}}}
    version = {"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": path}}}}
    crd = {"spec": {"names": {"kind": "HTTPRoute"}, "versions": [{"name": "v1beta1"}, version]}}
    (tmp_path / "gateway.networking.k8s.io_httproutes.yaml").write_text(json.dumps(crd))

    catalogue = read_catalogue(tmp_path, tmp_path)

    assert catalogue.kinds["Widget"] == ("apps/v1",)
    assert set(GATEWAY_API) < set(catalogue.kinds)
    route = catalogue.schemas["gateway.networking.k8s.io/v1 HTTPRoute"].fields
    assert route["spec"].fields == {"type": Schema(type="string", enum=("Exact",))}
    assert route["status"] == Schema()
    fields = catalogue.schemas["networking-v1 ingress"].fields
    assert fields["labels"].values == Schema(type="string")
    assert fields["paths"].items is not None
    assert fields["paths"].items.fields == {
        "any": Schema(),
        "pathType": Schema(type="string", enum=("Exact", "Prefix", "ImplementationSpecific")),
    }


def test_shipped_catalogue_has_every_kind() -> None:
    shipped = msgspec.json.decode(FILE.read_bytes(), type=Catalogue)

    assert len(shipped.schemas) == len(KINDS) + len(GATEWAY_API)
    assert {"Deployment", "Ingress", "HTTPRoute"} < set(shipped.kinds)
