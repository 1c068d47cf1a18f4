"""The objects of the cluster that is measured, as plain data."""

import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import yaml

from haptic_trio.config.encode import encode_value
from haptic_trio.config.libraries import load_library
from haptic_trio.k8s.resource import Resource
from haptic_trio.validation_tests.live.certificates import issue_certificate

LIBRARIES = ("base", "ssl", "ingress")
CONFIG_NAME = "haptic-trio"
STRUCTURE = "structure"
"""The Service whose annotation becomes a line of every frontend: to change it is to change the structure."""

# The header of a change that reloads every HAProxy, whatever its version.
_STRUCTURE_RULES = """\
{% set structure = resources.services.get_single(benchNamespace, "structure") %}
{% if structure %}
http-response set-header X-Structure {{ structure.metadata.annotations.structure | logformat }}
{% endif %}
"""


class Intervals(msgspec.Struct, frozen=True, kw_only=True):
    """What holds changes back, as the configuration writes it; None leaves the default."""

    mode: str | None = None
    debounce: str | None = None
    runtime: str | None = None
    min_deployment: str | None = None


AT_ONCE = Intervals(debounce="0ms", runtime="0ms", min_deployment="0ms")
DEFAULTS = Intervals()
CLASSIC = Intervals(mode="classic")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where objects are, and what they lead to."""

    namespace: str = "default"
    is_shared: bool = False
    """Others use the cluster, too: only this namespace is watched."""
    ingress_class: str = "haptic"
    address: str = "127.0.0.1"
    """Of the backends, as EndpointSlices name it."""
    http_port: int = 0
    https_port: int = 0


def app_name(number: int) -> str:
    """Return the name of an app: its Service, its EndpointSlice and its Ingress."""
    return f"app-{number:05d}"


def host_of(name: str) -> str:
    """Return the host that the Ingress *name* serves."""
    return f"{name}.bench.example"


def make_service(place: Place, name: str) -> Resource:
    """Return a Service with one port, and endpoints that are written by hand."""
    spec = {"clusterIP": "None", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(place, name), "spec": spec}


def make_slice(place: Place, name: str, port: int) -> Resource:
    """Return the EndpointSlice of the Service *name* with one endpoint at *port*."""
    metadata = _metadata(place, f"{name}-1") | {"labels": {"kubernetes.io/service-name": name}}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": "IPv4",
        "ports": [{"name": "http", "protocol": "TCP", "port": port}],
        "endpoints": [{"addresses": [place.address], "conditions": {"ready": True}}],
    }


def make_ingress(place: Place, name: str, service: str, *, path: str = "/", secret: str = "") -> Resource:
    """Return an Ingress with a host of its own that leads *path* to *service*; with TLS if *secret* is named."""
    backend = {"service": {"name": service, "port": {"name": "http"}}}
    spec: dict[str, Any] = {
        "ingressClassName": place.ingress_class,
        "rules": [
            {"host": host_of(name), "http": {"paths": [{"path": path, "pathType": "Prefix", "backend": backend}]}}
        ],
    }
    if secret:
        spec["tls"] = [{"hosts": [host_of(name)], "secretName": secret}]
    metadata = _metadata(place, name)
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec}


def make_app(place: Place, name: str, port: int) -> list[Resource]:
    """Return a Service, its EndpointSlice and an Ingress to it."""
    return [make_service(place, name), make_slice(place, name, port), make_ingress(place, name, name)]


def make_structure(place: Place, value: str) -> Resource:
    """Return the Service that is part of the structure, with *value*."""
    service = make_service(place, STRUCTURE)
    return service | {"metadata": service["metadata"] | {"annotations": {"structure": value}}}


def make_secret(place: Place, name: str, host: str) -> tuple[Resource, bytes]:
    """Return a Secret with a fresh certificate for *host*, and that certificate as DER."""
    issued = issue_certificate((host,))
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(place, name),
        "type": "kubernetes.io/tls",
        # Bytes become base64 in JSON, and here alike.
        "data": msgspec.to_builtins({"tls.crt": issued.chain.encode(), "tls.key": issued.key.encode()}),
    }
    return secret, ssl.PEM_cert_to_DER_cert(issued.chain)


def make_config(place: Place, intervals: Intervals, greeting: str) -> Resource:
    """Return the ConfigMap; *greeting*, in one of its snippets, becomes a header of each response."""
    rules = f'http-response set-header X-Greeting {{{{ "{greeting}" | logformat }}}}\n{_STRUCTURE_RULES}'
    config: dict[str, Any] = {
        "controller": {"startTimeout": "10m"},
        "reconciler": _given(
            mode=intervals.mode, debounceInterval=intervals.debounce, runtimeInterval=intervals.runtime
        ),
        "dataplane": _given(
            minDeploymentInterval=intervals.min_deployment, driftPreventionInterval="24h", deploymentTimeout="5m"
        ),
        "templating": {
            "libraries": list(LIBRARIES),
            "extraContext": {
                "bindAddress": "127.0.0.1",
                "httpPort": place.http_port,
                "httpsPort": place.https_port,
                "ingressClass": place.ingress_class,
                "benchNamespace": place.namespace,
            },
        },
        "templateSnippets": {"frontend-rules-bench": {"template": rules}},
    }
    if place.is_shared:
        config["watchedResources"] = _watched_in(place.namespace)
    text = yaml.safe_dump(config, sort_keys=False)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(place, CONFIG_NAME),
        "data": {"config": text},
    }


def _watched_in(namespace: str) -> Mapping[str, Any]:
    """Return what the libraries watch, of *namespace* alone."""
    watched: dict[str, Any] = {}
    for library in LIBRARIES:
        for name, resource in load_library(library).watched_resources.items():
            watched[name] = encode_value(resource)
            if resource.resources != "ingressclasses":
                watched[name] |= {"namespaces": [namespace]}
    return watched


def _metadata(place: Place, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": place.namespace}


def _given(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def split_docs(objects: Sequence[Resource]) -> str:
    """Return *objects* as one text of YAML documents."""
    return yaml.dump_all(objects, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)
