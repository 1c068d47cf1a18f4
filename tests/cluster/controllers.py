"""Controllers and HAProxy instances as Pods: what the tests of the whole program in a cluster deploy."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import trio

from haptic_trio.dataplane.agent_tls import TlsFiles
from haptic_trio.deployment.pods import AGENT_NAME
from haptic_trio.k8s.resource import Resource
from tests.cluster.client import Cluster, until
from tests.cluster.manifests import PORT, deployment, service
from tests.support.agents import Authority

LEASE: Final = "leader"
DURATIONS: Final = {"leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms"}
LEASE_DURATION: Final = 4.0
_RULES: Final = [
    {"apiGroups": ["", "networking.k8s.io", "discovery.k8s.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["get", "create", "update"]},
    {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses/status"], "verbs": ["patch"]},
]


class Site:
    """One installation in a namespace of its own, which is also the name of its IngressClass."""

    def __init__(self, cluster: Cluster, namespace: str, root: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.authority = Authority(root / "tls")
        self.address = ""

    # What is installed

    async def install(self, *, instances: int = 1, controllers: int = 2, **fields: Any) -> None:
        """Apply everything and wait until HAProxy serves and every controller is ready."""
        await self.apply(
            _secret("agent-tls", self.authority.issue(AGENT_NAME)),
            _secret("controller-tls", self.authority.issue("controller")),
            *self._access(),
            self.config_map(**fields),
            self._ingress_class(),
            service("haproxy", type="LoadBalancer"),
            deployment("echo", 1),
            service("echo"),
            self.ingress("web", "web.test"),
        )
        await self.apply(self.haproxy(instances), self.controllers(controllers))
        await self.cluster.wait_pods(self.namespace, "app=controller", controllers)
        await self.cluster.wait_pods(self.namespace, "app=haproxy", instances)
        self.address = await self._published_address()

    async def apply(self, *objects: Resource) -> None:
        """Apply objects of this namespace."""
        await self.cluster.apply(objects, self.namespace)

    def haproxy(self, replicas: int) -> Resource:
        """Return the Deployment of instances."""
        arguments = [
            # Pods share a process namespace here, and an agent takes the HAProxy of its directory for its own.
            *(
                "agent",
                "--state-dir",
                "/tmp/$(POD_NAME)",
                "--listen",
                "0.0.0.0:5555",
                "--health-listen",
                "0.0.0.0:8081",
            ),
            *("--tls-cert", "/tls/tls.crt", "--tls-key", "/tls/tls.key", "--client-ca", "/tls/ca.crt"),
            *("--allow-client", "controller", "--on-exit", "stop", "--log-format", "json"),
        ]
        container = {
            "name": "haproxy",
            "image": "registry.test/haptic-trio:1",
            "args": arguments,
            "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "ports": [{"name": "http", "containerPort": PORT}],
            "readinessProbe": _probe("/readyz", 8081),
            "volumeMounts": [{"name": "tls", "mountPath": "/tls"}],
            # It goes on serving until nobody sends it anything new.
            "lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}},
        }
        volumes = [{"name": "tls", "secret": {"secretName": "agent-tls"}}]
        return deployment("haproxy", replicas, container, volumes=volumes, terminationGracePeriodSeconds=8)

    def controllers(self, replicas: int) -> Resource:
        """Return the Deployment of controllers."""
        arguments = [
            *("serve", "--in-cluster", "--pods", "--state-dir", "/tmp/controller", "--listen", "0.0.0.0:9090"),
            *("--agent-cert", "/tls/tls.crt", "--agent-key", "/tls/tls.key", "--agent-ca", "/tls/ca.crt"),
            *("--publish-service", f"{self.namespace}/haproxy", "--log-format", "json"),
        ]
        container = {
            "name": "controller",
            "image": "registry.test/haptic-trio:1",
            "args": arguments,
            "readinessProbe": _probe("/readyz", 9090),
            "volumeMounts": [{"name": "tls", "mountPath": "/tls"}],
        }
        volumes = [{"name": "tls", "secret": {"secretName": "controller-tls"}}]
        return deployment("controller", replicas, container, volumes=volumes, terminationGracePeriodSeconds=15)

    def config_map(self, **fields: Any) -> Resource:
        """Return the configuration with *fields* over it."""
        config: dict[str, Any] = {
            "podSelector": {"matchLabels": {"app": "haproxy"}},
            "controller": {"leaderElection": {"leaseName": LEASE, **DURATIONS}},
            "dataplane": {"kind": "agent", "port": 5555, "minDeploymentInterval": "100ms"},
            "reconciler": {"debounceInterval": "100ms"},
            "templating": {
                "extraContext": {
                    "httpPort": PORT,
                    "ingressClass": self.namespace,
                    "ingressController": f"test/{self.namespace}",
                }
            },
            **fields,
        }
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "haptic-trio"},
            "data": {"config": json.dumps(config)},
        }

    def ingress(self, name: str, host: str, *, ingress_class: str | None = None, backend: str = "echo") -> Resource:
        """Return an Ingress for *host*, of ours unless told otherwise."""
        path = {
            "path": "/",
            "pathType": "Prefix",
            "backend": {"service": {"name": backend, "port": {"name": "http"}}},
        }
        spec = {
            "ingressClassName": self.namespace if ingress_class is None else ingress_class,
            "rules": [{"host": host, "http": {"paths": [path]}}],
        }
        return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name}, "spec": spec}

    def _ingress_class(self) -> Resource:
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "IngressClass",
            "metadata": {"name": self.namespace},
            "spec": {"controller": f"test/{self.namespace}"},
        }

    def _access(self) -> list[Resource]:
        group = "rbac.authorization.k8s.io"
        role = {"apiGroup": group, "kind": "ClusterRole", "name": self.namespace}
        account = {"kind": "ServiceAccount", "name": "default", "namespace": self.namespace}
        metadata = {"name": self.namespace}
        return [
            {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": _RULES},
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": metadata,
                "roleRef": role,
                "subjects": [account],
            },
        ]

    # What is observed

    def path(self, kind: str, name: str) -> str:
        """Return the path of an object of this namespace; *kind* is `ingresses`, `leases` or a core plural."""
        groups = {"ingresses": "apis/networking.k8s.io/v1", "leases": "apis/coordination.k8s.io/v1"}
        return f"/{groups.get(kind, 'api/v1')}/namespaces/{self.namespace}/{kind}/{name}"

    async def leader(self, *, other_than: str = "") -> str:
        """Return the name of the Pod that holds the lease, and is another one than that process."""

        def holder(found: Resource | None) -> str:
            return str(((found or {}).get("spec") or {}).get("holderIdentity") or "")

        found = await self.cluster.wait(
            self.path("leases", LEASE), lambda found: holder(found) and holder(found) != other_than
        )
        return holder(found)

    async def ask(self, host: str) -> int:
        """Send one request on a new connection; return its status, 0 without an answer."""
        async with self.cluster.http(timeout=5) as client:
            try:
                answer = await client.get(f"http://{self.address}/", headers={"Host": host, "Connection": "close"})
            except httpx.TransportError:
                return 0
        return answer.status_code

    async def until_served(self, host: str, *, status: int = 200) -> float:
        """Return the clock time at which a request for *host* was answered so."""

        async def is_served() -> bool:
            return await self.ask(host) == status

        await until(is_served)
        return trio.current_time()

    async def logs_of(self, label: str) -> str:
        """Return what all Pods with `app` *label* wrote, for a test that failed."""
        pods = await self.cluster.pods(self.namespace, f"app={label}")
        return "\n".join([await self.cluster.logs(self.namespace, pod["metadata"]["name"]) for pod in pods])

    async def _published_address(self) -> str:
        found = await self.cluster.wait(
            self.path("services", "haproxy"), lambda found: found and found["status"]["loadBalancer"].get("ingress")
        )
        return str(found["status"]["loadBalancer"]["ingress"][0]["ip"])


class Traffic:
    """One request after another, each on a new connection; every answer but 200 is a failure."""

    def __init__(self, site: Site, host: str) -> None:
        self._site = site
        self._host = host
        self.answered = 0
        self.failures: list[tuple[float, int]] = []

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            status = await self._site.ask(self._host)
            if status == 200:
                self.answered += 1
            else:
                self.failures.append((trio.current_time(), status))
            await trio.sleep(0.005)


@asynccontextmanager
async def installed(cluster: Cluster, namespace: str, root: Path, **how: Any) -> AsyncIterator[Site]:
    """Install a site; what is cluster-wide goes at the end, and logs are shown if the test fails."""
    site = Site(cluster, namespace, root)
    try:
        with trio.fail_after(60):
            await site.install(**how)
            await site.until_served("web.test")
        yield site
    except BaseException:
        with trio.move_on_after(5, shield=True):
            for label in ("controller", "haproxy"):
                print(f"--- {label}\n{await site.logs_of(label)}")  # noqa: T201
        raise
    finally:
        with trio.move_on_after(5, shield=True):
            for one in [*site._access(), site._ingress_class()]:
                await cluster.delete(one)


def _probe(path: str, port: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": port}, "periodSeconds": 1, "failureThreshold": 1}


def _secret(name: str, files: TlsFiles) -> Resource:
    content = {"tls.crt": files.certificate, "tls.key": files.key, "ca.crt": files.authorities}
    data = {key: base64.b64encode(path.read_bytes()).decode() for key, path in content.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
