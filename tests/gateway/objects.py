"""Gateway API objects, and stores of them as templates and status sources have them."""

from collections.abc import Iterable
from typing import Any

from haptic_trio.config.libraries import load_library
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Store, Stores

CONTROLLER = "haptic-trio/gateway-controller"
GROUP = "gateway.networking.k8s.io/v1"
PLURALS: dict[str, str] = {
    "GatewayClass": "gatewayclasses",
    "BackendTLSPolicy": "backendtlspolicies",
    "EndpointSlice": "endpointslices",
    "Ingress": "ingresses",
}


def made(kind: str, name: str, *, namespace: str = "web", version: str = GROUP, **fields: Any) -> Resource:
    """Return an object; *fields* beside its metadata."""
    metadata = {"name": name, "generation": 1, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def gateway_class(controller: str = CONTROLLER) -> Resource:
    """Return the class `haptic`."""
    return made("GatewayClass", "haptic", namespace="", spec={"controllerName": controller})


def gateway(name: str = "gw", *listeners: dict[str, Any], **fields: Any) -> Resource:
    """Return a Gateway with *listeners*, by default one for HTTP on port 80."""
    found = list(listeners) or [{"name": "http", "port": 80, "protocol": "HTTP"}]
    return made("Gateway", name, spec={"gatewayClassName": "haptic", "listeners": found, **fields})


def route(name: str, *rules: dict[str, Any], hostnames: Iterable[str] = (), **fields: Any) -> Resource:
    """Return an HTTPRoute to the Gateway `gw`."""
    parents = fields.pop("parents", [{"name": "gw"}])
    created = fields.pop("created", "")
    spec = {"parentRefs": parents, "rules": list(rules), **({"hostnames": list(hostnames)} if hostnames else {})}
    found = made(fields.pop("kind", "HTTPRoute"), name, spec=spec, **fields)
    if created:
        found["metadata"]["creationTimestamp"] = created
    return found


def rule(*paths: str, to: str = "app", **fields: Any) -> dict[str, Any]:
    """Return a rule for path prefixes, with the Service *to* for its backend."""
    found: dict[str, Any] = {"backendRefs": [{"name": to, "port": 80}], **fields}
    if paths:
        found["matches"] = [{"path": {"type": "PathPrefix", "value": path}} for path in paths]
    return found


def service(name: str = "app", namespace: str = "web", **port: Any) -> Resource:
    """Return a Service with port 80."""
    return made("Service", name, namespace=namespace, version="v1", spec={"ports": [{"port": 80, **port}]})


def grant(
    namespace: str, *, origin: str = "web", kind: str = "HTTPRoute", to: str = "Service", **name: str
) -> Resource:
    """Return a ReferenceGrant in *namespace* for objects of *kind* in *origin*."""
    spec = {
        "from": [{"group": "gateway.networking.k8s.io", "kind": kind, "namespace": origin}],
        "to": [{"group": "", "kind": to, **name}],
    }
    return made("ReferenceGrant", "grant", namespace=namespace, spec=spec)


def tls_listeners(count: int) -> list[dict[str, Any]]:
    """Return HTTPS listeners for `h0.test` and so on, the first with the Secret `other/tls`, and others with `own`."""
    return [
        {
            "name": f"tls-{number}",
            "port": 7443,
            "protocol": "HTTPS",
            "hostname": f"h{number}.test",
            "tls": {"certificateRefs": [{"name": "own"} if number else {"name": "tls", "namespace": "other"}]},
        }
        for number in range(count)
    ]


def stores_of(*objects: Resource) -> Stores:
    """Return the stores of the library with *objects* in them."""
    watched = {**load_library("ssl").watched_resources, **load_library("gateway").watched_resources}
    stores = Stores(Store(name, one.index_by, one.ignore_fields) for name, one in watched.items())
    for name, one in watched.items():
        stores[name].replace(
            found for found in objects if (found["apiVersion"], plural_of(found)) == (one.api_version, one.resources)
        )
    return stores


def plural_of(resource: Resource) -> str:
    """Return the lower-case plural of the kind of *resource*."""
    kind = str(resource["kind"])
    return PLURALS.get(kind, kind.lower() + "s")
