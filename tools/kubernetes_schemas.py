"""Generator of the field lists of Kubernetes kinds that `validate` checks manifests by.

    pip install --target FOLDER --no-deps kubernetes-validate
    go mod download -json sigs.k8s.io/gateway-api@v1.6.3
    python -m tools.kubernetes_schemas \\
        FOLDER/kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict DIR/config/crd/experimental

`DIR` is the directory that `go mod download` prints. The schemas of the package
and the CRDs of the Gateway API (both Apache License 2.0) have types and fields.
Values of fields that Kubernetes describes in prose only are listed here.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from haptic_trio.k8s.manifests.schemas import FILE, Catalogue, Schema

KINDS: Final = (
    "configmap-v1", "endpointslice-discovery-v1", "ingress-networking-v1", "ingressclass-networking-v1",
    "namespace-v1", "secret-v1", "service-v1",
)  # fmt: skip
"""Files of the kinds that libraries watch."""
GATEWAY_API: Final = (
    "BackendTLSPolicy", "GRPCRoute", "Gateway", "GatewayClass", "HTTPRoute", "ListenerSet", "ReferenceGrant",
    "TCPRoute", "TLSRoute", "UDPRoute",
)  # fmt: skip
"""Kinds of the CRDs; other kinds of the experimental channel are not watched."""
_VERSION: Final = "gateway.networking.k8s.io/v1"
VALUES: Final = {
    "io.k8s.api.networking.v1.HTTPIngressPath.pathType": ("Exact", "Prefix", "ImplementationSpecific"),
    "io.k8s.api.core.v1.ServiceSpec.type": ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"),
    "io.k8s.api.core.v1.ServiceSpec.sessionAffinity": ("ClientIP", "None"),
    "io.k8s.api.core.v1.ServiceSpec.externalTrafficPolicy": ("Cluster", "Local"),
    "io.k8s.api.core.v1.ServiceSpec.internalTrafficPolicy": ("Cluster", "Local"),
    "io.k8s.api.core.v1.ServiceSpec.ipFamilyPolicy": ("SingleStack", "PreferDualStack", "RequireDualStack"),
    "io.k8s.api.core.v1.ServicePort.protocol": ("TCP", "UDP", "SCTP"),
    "io.k8s.api.discovery.v1.EndpointPort.protocol": ("TCP", "UDP", "SCTP"),
    "EndpointSlice.addressType": ("IPv4", "IPv6", "FQDN"),
}
"""By definition and field."""
_ANY: Final = ("FieldsV1", "RawExtension", "JSON")


def read_catalogue(folder: Path, crds: Path) -> Catalogue:
    """Return the kinds and the schemas of `KINDS` in *folder*, and those of `GATEWAY_API` in *crds*."""
    definitions = json.loads((folder / "_definitions.json").read_text())["$defs"]
    kinds: dict[str, set[str]] = {kind: {_VERSION} for kind in GATEWAY_API}
    for definition in definitions.values():
        for one in definition.get("x-kubernetes-group-version-kind", ()):
            if not one["kind"].endswith("List"):
                group = f"{one['group']}/" if one["group"] else ""
                kinds.setdefault(one["kind"], set()).add(f"{group}{one['version']}")
    schemas: dict[str, Schema] = {}
    for name in KINDS:
        raw = json.loads((folder / f"{name}.json").read_text())
        (version,), (kind,) = (raw["properties"][field]["enum"] for field in ("apiVersion", "kind"))
        schemas[f"{version} {kind}"] = _schema(raw, definitions, kind)
    metadata = next(iter(schemas.values())).fields.get("metadata", Schema())
    for path in sorted(crds.glob("gateway.networking.k8s.io_*.yaml")):
        spec = next(yaml.safe_load_all(path.read_text()))["spec"]
        if (kind := spec.get("names", {}).get("kind")) in GATEWAY_API:
            raw = next(one for one in spec["versions"] if one["name"] == "v1")["schema"]["openAPIV3Schema"]
            found = _schema(raw, {}, kind)
            # Programs write the status.
            fields = {**found.fields, "metadata": metadata, "status": Schema()}
            schemas[f"{_VERSION} {kind}"] = msgspec.structs.replace(found, fields=fields)
    return Catalogue(kinds={kind: tuple(sorted(versions)) for kind, versions in sorted(kinds.items())}, schemas=schemas)


def _schema(raw: dict[str, Any], definitions: dict[str, Any], owner: str) -> Schema:
    if reference := raw.get("$ref"):
        owner = reference.rpartition("/")[2]
        if owner.endswith(_ANY):
            return Schema()
        raw = definitions[owner]
    given = raw.get("type", "")
    type_ = next((one for one in given if one != "null"), "") if isinstance(given, list) else given
    if "oneOf" in raw or raw.get("format") == "int-or-string" or "x-kubernetes-int-or-string" in raw:
        return Schema()
    properties, values = raw.get("properties", {}), raw.get("additionalProperties")
    return Schema(
        type=type_,
        fields={name: _field(field, definitions, owner, name) for name, field in sorted(properties.items())},
        items=_schema(raw["items"], definitions, owner) if type_ == "array" else None,
        values=_schema(values, definitions, owner) if isinstance(values, dict) else None,
    )


def _field(raw: dict[str, Any], definitions: dict[str, Any], owner: str, name: str) -> Schema:
    schema = _schema(raw, definitions, owner)
    listed = raw.get("enum", ()) if schema.type == "string" else ()
    # Those of built-in kinds are lists of all API versions.
    enum = VALUES.get(f"{owner}.{name}", tuple(listed) if not definitions else ())
    return msgspec.structs.replace(schema, enum=enum)


def main(folder: str, crds: str) -> None:
    """Write the catalogue of the schemas in *folder* and of the CRDs in *crds*."""
    catalogue = read_catalogue(Path(folder), Path(crds))
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(catalogue), indent=1) + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
