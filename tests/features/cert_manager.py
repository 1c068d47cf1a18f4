"""Objects that cert-manager makes for a challenge (HTTP-01), and those of an application beside them."""

from typing import Any

import trustme

from tests.features.server_site import ServerSite
from tests.support.kubernetes import tls_secret
from tests.support.processes.ports import free_port

HOST = "shop.localhost"
TOKEN = "LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0"
PATH = f"/.well-known/acme-challenge/{TOKEN}"
SOLVER_PORT = 8089
LABELS = {
    "acme.cert-manager.io/http-domain": "1234567890",
    "acme.cert-manager.io/http-token": "987654321",
    "acme.cert-manager.io/http01-solver": "true",
}


def solver_metadata(name: str) -> dict[str, Any]:
    """Return the metadata of an object of cert-manager for the challenge."""
    owner = {
        "apiVersion": "acme.cert-manager.io/v1",
        "kind": "Challenge",
        "name": "shop-1-1234-5678",
        "uid": "5a2f7d6e-3d3c-4a52-9a61-1b2c3d4e5f60",
        "blockOwnerDeletion": True,
        "controller": True,
    }
    return {
        "name": name,
        "generateName": "cm-acme-http-solver-",
        "namespace": "default",
        "labels": dict(LABELS),
        "ownerReferences": [owner],
    }


def solver_service(port: int) -> list[dict[str, Any]]:
    """Return the Service of the solver, and its EndpointSlice at *port* of this machine."""
    metadata = solver_metadata("cm-acme-http-solver-k7w2p")
    metadata["annotations"] = {"auth.istio.io/8089": "NONE"}
    ports = [
        {"name": "http", "protocol": "TCP", "port": SOLVER_PORT, "targetPort": SOLVER_PORT, "nodePort": 31234},
    ]
    slice_labels = {**LABELS, "kubernetes.io/service-name": metadata["name"]}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"type": "NodePort", "ports": ports, "selector": dict(LABELS)},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": f"{metadata['name']}-x", "namespace": "default", "labels": slice_labels},
            "addressType": "IPv4",
            "ports": [{"name": "http", "protocol": "TCP", "port": port}],
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
        },
    ]


def solver_ingress() -> dict[str, Any]:
    """Return the Ingress that cert-manager makes for a challenge."""
    metadata = solver_metadata("cm-acme-http-solver-9x5tq")
    metadata["annotations"] = {"nginx.ingress.kubernetes.io/whitelist-source-range": "0.0.0.0/0,::/0"}
    target = {"service": {"name": "cm-acme-http-solver-k7w2p", "port": {"number": SOLVER_PORT}}}
    paths = [{"path": PATH, "pathType": "ImplementationSpecific", "backend": target}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": metadata,
        "spec": {"ingressClassName": "haptic", "rules": [{"host": HOST, "http": {"paths": paths}}]},
    }


def solver_route() -> dict[str, Any]:
    """Return the HTTPRoute that cert-manager makes for a challenge."""
    reference = {
        "group": "",
        "kind": "Service",
        "name": "cm-acme-http-solver-k7w2p",
        "namespace": "default",
        "port": SOLVER_PORT,
        "weight": 1,
    }
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": solver_metadata("cm-acme-http-solver-bd4zr"),
        "spec": {
            "parentRefs": [{"name": "edge", "namespace": "default", "kind": "Gateway"}],
            "hostnames": [HOST],
            "rules": [{"matches": [{"path": {"type": "Exact", "value": PATH}}], "backendRefs": [reference]}],
        },
    }


def certificate(name: str) -> dict[str, Any]:
    """Return the Secret that cert-manager writes."""
    issued = trustme.CA().issue_cert(HOST)
    chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    return tls_secret(name, chain, issued.private_key_pem.bytes())


class Edge:
    """A site with an Ingress and a Gateway for one host: both redirect to HTTPS, and have no certificate yet."""

    def __init__(self, site: ServerSite) -> None:
        self.site = site
        self.https, self.gateway_http, self.gateway_https = free_port(), free_port(), free_port()

    def write(self, web: int, **settings: Any) -> None:
        """Write all objects of the application, whose server listens on *web*; *settings* are those of libraries."""
        context = {"httpPort": self.site.port, "httpsPort": self.https, "bindAddress": "127.0.0.1"}
        more = {"sslRedirect": True, "httpsAlways": True, "strictSni": True}
        libraries = ["base", "ssl", "ingress", "nginx-annotations", "gateway"]
        self.site.write_config(templating={"libraries": libraries, "extraContext": {**context, **more, **settings}})
        self.site.write_class()
        target = {"service": {"name": "web", "port": {"name": "http"}}}
        paths = [{"path": "/", "pathType": "Prefix", "backend": target}]
        metadata = {
            "name": "shop",
            "namespace": "default",
            "annotations": {"cert-manager.io/cluster-issuer": "letsencrypt"},
        }
        spec = {
            "ingressClassName": "haptic",
            "tls": [{"hosts": [HOST], "secretName": "shop-tls"}],
            "rules": [{"host": HOST, "http": {"paths": paths}}],
        }
        self.site.write_service("web", web)
        self.site.write(
            "shop",
            {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec},
        )
        self.site.write("gateway", *self._gateway())

    def _gateway(self) -> list[dict[str, Any]]:
        tls = {"mode": "Terminate", "certificateRefs": [{"name": "gateway-tls"}]}
        listeners = [
            {"name": "http", "port": self.gateway_http, "protocol": "HTTP"},
            {"name": "https", "port": self.gateway_https, "protocol": "HTTPS", "hostname": HOST, "tls": tls},
        ]
        redirect = {"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 301}}
        everything = [{"path": {"type": "PathPrefix", "value": "/"}}]

        def route(name: str, section: str, **rule: Any) -> dict[str, Any]:
            parents = [{"name": "edge", "sectionName": section}]
            rules = [{"matches": everything, **rule}]
            return gateway_object("HTTPRoute", name, {"parentRefs": parents, "hostnames": [HOST], "rules": rules})

        return [
            gateway_object("GatewayClass", "haptic", {"controllerName": "haptic-trio/gateway-controller"}),
            gateway_object("Gateway", "edge", {"gatewayClassName": "haptic", "listeners": listeners}),
            route("shop-http", "http", filters=[redirect]),
            route("shop", "https", backendRefs=[{"name": "web", "port": 80}]),
        ]


def gateway_object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "generation": 1, **({} if kind == "GatewayClass" else {"namespace": "default"})}
    return {"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}
