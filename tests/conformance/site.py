"""One installation that serves Gateways on a cluster: the API's kinds, a controller, and HAProxy with its addresses."""

import os
import shutil
from pathlib import Path
from typing import Any, Final

import trio
import yaml

from haptic_trio.dataplane.agent.tls import TlsFiles
from haptic_trio.deployment.pods import AGENT_NAME
from haptic_trio.k8s.resource import Resource
from tests.cluster.workloads.client import Cluster
from tests.cluster.workloads.controllers import Site
from tests.cluster.workloads.manifests import secret, service
from tests.conformance.addresses import POOL, STATIC
from tests.conformance.programs import Programs

NAMESPACE: Final = "haptic-conformance"
GATEWAY_CLASS: Final = "haptic"
CONTROLLER_NAME: Final = "haptic-trio/gateway-controller"
LIBRARIES: Final = ("base", "ssl", "ingress", "gateway")
# Gateways have 80, 443, 8080 and 8443 at their addresses.
OWN_PORTS: Final = {"httpPort": 18080, "httpsPort": 18443}
_GROUP: Final = "gateway.networking.k8s.io"
_KINDS: Final = (
    *("backendtlspolicies", "gatewayclasses", "gateways", "grpcroutes", "httproutes", "listenersets"),
    *("referencegrants", "tcproutes", "tlsroutes", "udproutes"),
)
_READ: Final = ("get", "list", "watch")
_RULES: Final = (
    {"apiGroups": ["", "networking.k8s.io", "discovery.k8s.io", _GROUP], "resources": ["*"], "verbs": _READ},
    {"apiGroups": [_GROUP], "resources": [f"{kind}/status" for kind in _KINDS], "verbs": ["get", "patch", "update"]},
    {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses/status"], "verbs": ["patch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["get", "create", "update"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["*"]},
    # What a Gateway gets for itself.
    {"apiGroups": [""], "resources": ["services", "serviceaccounts"], "verbs": ["*"]},
)


class GatewaySite(Site):
    """Serves the GatewayClass `haptic`, with one controller and one HAProxy, which has an address for each Gateway."""

    def __init__(self, cluster: Cluster, root: Path) -> None:
        super().__init__(cluster, NAMESPACE, root)
        self.rules = _RULES

    async def serve_gateways(self, programs: Programs) -> None:
        """Install everything and wait until the controller and HAProxy are ready, and the GatewayClass is accepted."""
        await self._add_images(programs)
        await self._define_kinds(programs)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        await self.cluster.apply([namespace])
        await self.cluster.wait(f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default", bool)
        await self.apply(
            _tls_secret("agent-tls", self.authority.issue(AGENT_NAME)),
            _tls_secret("controller-tls", self.authority.issue("controller")),
            *self._access(),
            self.configuration(),
            service("haproxy", type="LoadBalancer"),
            gateway_class(),
        )
        await self.apply(self._with_addresses(self.haproxy(1)), self.controllers(1))
        await self.cluster.wait_pods(self.namespace, "app=controller", 1)
        await self.cluster.wait_pods(self.namespace, "app=haproxy", 1)
        # The suite looks there for what is declared once, at its start.
        await self.cluster.wait(f"/apis/{_GROUP}/v1/gatewayclasses/{GATEWAY_CLASS}", is_accepted)

    def configuration(self) -> Resource:
        """Return the ConfigMap of the controller."""
        context = {
            **OWN_PORTS,
            "ingressClass": self.namespace,
            "gatewayController": CONTROLLER_NAME,
            "gatewayAddresses": [*POOL, STATIC],
            "gatewayAddressesPerNamespace": len(POOL),
            # At addresses of their own, listeners of the suite may have any port but the agent's.
            "gatewayReservedPorts": [],
            "gatewayServices": True,
        }
        return self.config_map(templating={"libraries": list(LIBRARIES), "extraContext": context})

    async def save_state(self, directory: Path) -> None:
        """Copy all that the containers logged, and what HAProxy was given, to *directory*, which is made."""
        await trio.to_thread.run_sync(_copy_logs, self.cluster.state.logs, directory)
        for pod in await self.cluster.pods(self.namespace, "app=haproxy"):
            name = pod["metadata"]["name"]
            done = await self.cluster.exec_in(self.namespace, name, ["tar", "--create", "--directory", "/tmp", name])
            await trio.run_process(["tar", "--extract", "--directory", os.fspath(directory)], stdin=done.output)

    async def restarts(self) -> int:
        """Return how often containers were started again: each time they had crashed."""
        pods = await self.cluster.pods(self.namespace)
        return sum(one["restartCount"] for pod in pods for one in pod["status"].get("containerStatuses") or ())

    async def _add_images(self, programs: Programs) -> None:
        await self.cluster.add_image("echo-basic", os.fspath(programs.backend))
        # The backend of the tests of UDP, which nothing here forwards; the suite only waits for its Pod.
        await self.cluster.add_image("coredns", "sh", "-c", "exec sleep infinity", "coredns")

    async def _define_kinds(self, programs: Programs) -> None:
        defined = [one for path in programs.definitions for one in yaml.safe_load_all(path.read_text()) if one]
        # Rules about kinds come after the kinds.
        defined.sort(key=lambda one: one["kind"] != "CustomResourceDefinition")
        for one in await self.cluster.apply(defined):
            if one["kind"] == "CustomResourceDefinition":
                path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{one['metadata']['name']}"
                await self.cluster.wait(path, is_established)

    def _with_addresses(self, haproxy: Resource) -> Resource:
        container = {
            "name": "addresses",
            "image": "registry.test/haptic-trio:1",
            "command": ["python", "-m", "tests.conformance.addresses", *POOL, STATIC],
        }
        haproxy["spec"]["template"]["spec"]["initContainers"] = [container]
        return haproxy


def gateway_class() -> Resource:
    """Return the class of the Gateways that are managed."""
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "GatewayClass",
        "metadata": {"name": GATEWAY_CLASS},
        "spec": {"controllerName": CONTROLLER_NAME},
    }


def is_established(definition: Resource | None) -> bool:
    """Return whether the API server serves the kind that *definition* defines."""
    return _has_condition(definition, "Established")


def is_accepted(found: Resource | None) -> bool:
    """Return whether a controller has taken the GatewayClass."""
    return _has_condition(found, "Accepted")


def _has_condition(resource: Resource | None, kind: str) -> bool:
    status: dict[str, Any] = (resource or {}).get("status") or {}
    return any(one["type"] == kind and one["status"] == "True" for one in status.get("conditions") or ())


def _copy_logs(logs: Path, directory: Path) -> None:
    """Copy the logs of our Pods, which are in folders by Pod, as `<Pod>-<container>-<run>.log`."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in logs.glob(f"{NAMESPACE}_*/*.log"):
        pod = path.parent.name.split("_")[1]
        shutil.copyfile(path, directory / f"{pod}-{path.name}")


def _tls_secret(name: str, files: TlsFiles) -> Resource:
    content = {"tls.crt": files.certificate, "tls.key": files.key, "ca.crt": files.authorities}
    return secret(name, **{key: path.read_text() for key, path in content.items()})
