"""Site of the Ingress scenarios: HAProxy with a controller, Ingresses, and a Pod for each Service."""

import base64
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import trio

from haptic_trio.k8s.resource import Resource
from tests.cluster.control_plane.state import State
from tests.cluster.workloads.client import Cluster, connect_cluster, until
from tests.cluster.workloads.controllers import Site
from tests.cluster.workloads.manifests import pod, service

TLS_HOST: Final = "foo.bar.test"
ABSENT: Final = "-"
"""Stands for the answer 404."""
INSTALL_LIMIT: Final = 60.0
SETTLE_LIMIT: Final = 20.0

Rules = Mapping[str, Mapping[tuple[str, str], str]]
"""By host: the Service by type and path."""

RULES: Final[Rules] = {
    "*.foo.test": {("Prefix", "/"): "wildcard-host"},
    TLS_HOST: {("Prefix", "/"): "exact-host"},
    "exact.test": {("Exact", "/foo"): "exact-foo"},
    "exact-slash.test": {("Exact", "/foo/"): "exact-slash"},
    "prefix.test": {
        ("Prefix", "/foo"): "prefix-foo",
        ("Prefix", "/aaa"): "prefix-aaa",
        ("Prefix", "/aaa/bbb"): "prefix-aaa-bbb",
    },
    "root.test": {("Prefix", "/"): "root"},
    "slash.test": {("Prefix", "/aaa/bbb/"): "prefix-slash"},
    "mixed.test": {("Prefix", "/foo"): "mixed-prefix", ("Exact", "/foo"): "mixed-exact"},
}


class IngressSite(msgspec.Struct, frozen=True):
    """An installation that serves `RULES`."""

    namespace: str
    address: str
    authority: Path
    """Of the certificate for `TLS_HOST`."""


class Answer(msgspec.Struct, frozen=True):
    """What came back for one request."""

    status: int
    backend: str
    """The name of the Pod that answered; empty if none did."""
    said: Mapping[str, Any]


async def install(state: State, namespace: str, root: Path) -> IngressSite:
    """Install everything in *namespace* and wait until all of `RULES` is served."""
    async with connect_cluster(state) as cluster:
        with trio.fail_after(INSTALL_LIMIT):
            await cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}])
            await cluster.wait(f"/api/v1/namespaces/{namespace}/serviceaccounts/default", bool)
            site = Site(cluster, namespace, root)
            await site.install(controllers=1)
            issued = site.authority.issue(TLS_HOST)
            pair = {"tls.crt": issued.certificate, "tls.key": issued.key}
            names = {name for paths in RULES.values() for name in paths.values()}
            await site.apply(
                *(one for name in sorted(names) for one in (pod(name), service(name))),
                _tls_secret("conformance", {key: path.read_bytes() for key, path in pair.items()}),
                ingress(namespace, "rules", RULES, tls=[{"hosts": [TLS_HOST], "secretName": "conformance"}]),
            )
            installed = IngressSite(namespace, site.address, issued.authorities)
            for host, paths in RULES.items():
                for (kind, path), name in paths.items():
                    # Below a prefix there is nothing exact that would be in its way.
                    below = path if kind == "Exact" else f"{path.rstrip('/')}/below"
                    await until_served(cluster, installed, host.replace("*", "any"), below, name)
    return installed


async def uninstall(state: State, namespace: str) -> None:
    """Remove everything, without waiting for the Pods."""
    async with connect_cluster(state) as cluster:
        for kind, group in (
            *(("clusterroles", "rbac.authorization.k8s.io"), ("clusterrolebindings", "rbac.authorization.k8s.io")),
            ("ingressclasses", "networking.k8s.io"),
        ):
            await cluster.api.delete(f"/apis/{group}/v1/{kind}/{namespace}")
        await cluster.api.delete(f"/api/v1/namespaces/{namespace}")
        for one in await cluster.pods(namespace):
            await cluster.api.delete(f"/api/v1/namespaces/{namespace}/pods/{one['metadata']['name']}", grace=1)


async def ask(
    cluster: Cluster, site: IngressSite, host: str, path: str, *, method: str = "GET", tls: bool = False
) -> Answer:
    """Send a request for *host* to HAProxy; with *tls* its certificate must be one for *host*.

    Raises httpx.TransportError.
    """
    context = ssl.create_default_context(cafile=str(site.authority)) if tls else None
    async with cluster.http(context, timeout=5) as client:
        found = await client.request(
            method,
            f"{'https' if tls else 'http'}://{site.address}{path}",
            headers={"Host": host},
            extensions={"sni_hostname": host},
        )
    said = found.json() if found.status_code == 200 else {}
    return Answer(found.status_code, said.get("pod", ""), said)


async def until_served(cluster: Cluster, site: IngressSite, host: str, path: str, backend: str) -> None:
    """Wait until a request is answered by *backend*, or by `NOBODY`; fails with what came instead."""
    came: object = None

    async def is_served() -> bool:
        nonlocal came
        try:
            came = found = await ask(cluster, site, host, path)
        except httpx.TransportError as exc:
            came = exc
            return False
        return found.status == 404 if backend == ABSENT else found.backend == backend

    with trio.move_on_after(SETTLE_LIMIT) as scope:
        await until(is_served)
    assert not scope.cancelled_caught, f"{host}{path} is not served by {backend}: {came!r}"


async def events_about(cluster: Cluster, namespace: str, kind: str, name: str) -> list[Resource]:
    """Return the Events about an object that the controller has written."""
    found, _ = await cluster.api.list(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    return [
        one
        for one in found
        if (one["regarding"]["kind"], one["regarding"]["name"]) == (kind, name)
        and one.get("reportingController") == "haptic-trio/controller"
    ]


def ingress(ingress_class: str, name: str, rules: Rules, **spec: Any) -> Resource:
    """Return an Ingress; *spec* has more fields of its specification."""
    written = [
        {
            "host": host,
            "http": {
                "paths": [
                    {"path": path, "pathType": kind, "backend": backend(target)}
                    for (kind, path), target in paths.items()
                ]
            },
        }
        for host, paths in rules.items()
    ]
    body = {"ingressClassName": ingress_class, **({"rules": written} if written else {}), **spec}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name}, "spec": body}


def backend(name: str) -> dict[str, Any]:
    """Return the backend of an Ingress that is the Service *name*."""
    return {"service": {"name": name, "port": {"name": "http"}}}


def _tls_secret(name: str, files: Mapping[str, bytes]) -> Resource:
    data = {key: base64.b64encode(content).decode() for key, content in files.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name},
        "data": data,
    }
