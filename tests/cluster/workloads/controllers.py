"""Controllers and HAProxy instances as Pods: what the tests of the whole program in a cluster deploy."""

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import trio

from haptic_trio.dataplane.agent.tls import TlsFiles
from haptic_trio.deployment.pods import AGENT_NAME
from haptic_trio.k8s.resource import Resource
from tests.cluster.control_plane.api import Mirror
from tests.cluster.workloads.client import Cluster, until
from tests.cluster.workloads.manifests import PORT, deployment, echo_container, service
from tests.cluster.workloads.traffic import BadAnswerError, Open, Traffic, send_request
from tests.support.components.agents import Authority

_S = TypeVar("_S", bound="Site")
HTTPS_PORT: Final = 8443
LEASE: Final = "leader"
DURATIONS: Final = {"leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms"}
LEASE_DURATION: Final = 4.0
RULES: Final = (
    {"apiGroups": [""], "resources": ["services", "secrets", "configmaps", "pods"], "verbs": ["list", "watch"]},
    {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "ingressclasses"], "verbs": ["list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["create", "get", "list", "update", "watch"],
    },
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "get", "update"]},
    {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses/status"], "verbs": ["patch"]},
)
"""What controllers need."""
_LINGERING: Final = {"preStop": {"exec": {"command": ["sleep", "3"]}}}
"""A terminating Pod serves until it gets no new connections. The endpoints controller repeats an early update after a
second, so one second would not do."""
_PORTS: Final = [
    {"name": "http", "port": 80, "targetPort": "http"},
    {"name": "https", "port": 443, "targetPort": "https"},
]


class Site:
    """One installation in a namespace of its own, which is also the name of its IngressClass."""

    def __init__(self, cluster: Cluster, namespace: str, root: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.authority = Authority(root / "tls")
        self.address = ""
        self.rules: Sequence[Resource] = RULES
        """What the controllers may do; see `grant`."""
        self.controller_environment: dict[str, str] = {}
        """Variables for the controllers, such as another way to the API server."""
        self.controller_volumes: list[dict[str, Any]] = []
        """Further volumes of the controllers; each is mounted at its `mountPath`."""

    # What is installed

    async def install(self, *, instances: int = 1, controllers: int = 2, **fields: Any) -> None:
        """Apply everything and wait until HAProxy serves and every controller is ready."""
        await self.apply_objects(**fields)
        await self.apply(self.haproxy(instances), self.controllers(controllers))
        await self.cluster.wait_pods(self.namespace, "app=controller", controllers)
        await self.cluster.wait_pods(self.namespace, "app=haproxy", instances)
        self.address = await self.published_address()

    async def apply_objects(self, **fields: Any) -> None:
        """Apply all but controllers and instances; *fields* are of the configuration."""
        await self.apply(
            _secret("agent-tls", self.authority.issue(AGENT_NAME)),
            _secret("controller-tls", self.authority.issue("controller")),
            *self._access(),
            self.config_map(**fields),
            self._ingress_class(),
            service("haproxy", type="LoadBalancer", ports=_PORTS),
            backend("echo", 1),
            service("echo"),
            self.ingress("web", "web.test"),
        )

    async def grant(self, rules: Sequence[Resource]) -> None:
        """Allow the controllers *rules*, and nothing else."""
        self.rules = rules
        await self.apply(*self._access())

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
            "ports": [{"name": "http", "containerPort": PORT}, {"name": "https", "containerPort": HTTPS_PORT}],
            "readinessProbe": _probe("/readyz", 8081),
            "volumeMounts": [{"name": "tls", "mountPath": "/tls"}],
            "lifecycle": _LINGERING,
        }
        volumes = [{"name": "tls", "secret": {"secretName": "agent-tls"}}]
        return deployment("haproxy", replicas, container, volumes=volumes, terminationGracePeriodSeconds=10)

    def controllers(self, replicas: int) -> Resource:
        """Return the Deployment of controllers."""
        arguments = [
            *("serve", "--in-cluster", "--pods", "--state-dir", "/tmp/controller", "--listen", "0.0.0.0:9090"),
            *("--agent-cert", "/tls/tls.crt", "--agent-key", "/tls/tls.key", "--agent-ca", "/tls/ca.crt"),
            *("--publish-service", f"{self.namespace}/haproxy", "--log-format", "json", "--log-level", "debug"),
        ]
        volumes = [{"name": "tls", "mountPath": "/tls", "secret": {"secretName": "controller-tls"}}]
        volumes += self.controller_volumes
        container = {
            "name": "controller",
            "image": "registry.test/haptic-trio:1",
            "args": arguments,
            "env": [{"name": name, "value": value} for name, value in self.controller_environment.items()],
            "readinessProbe": _probe("/readyz", 9090),
            "volumeMounts": [{"name": one["name"], "mountPath": one["mountPath"]} for one in volumes],
        }
        sources = [{key: value for key, value in one.items() if key != "mountPath"} for one in volumes]
        return deployment("controller", replicas, container, volumes=sources, terminationGracePeriodSeconds=15)

    def config_map(self, **fields: Any) -> Resource:
        """Return the configuration with *fields* over it."""
        config: dict[str, Any] = {
            "podSelector": {"matchLabels": {"app": "haproxy"}},
            "controller": {"leaderElection": {"leaseName": LEASE, **DURATIONS}},
            "dataplane": {
                "kind": "agent",
                "port": 5555,
                "minDeploymentInterval": "100ms",
                "namespaceReloadInterval": "0s",
            },
            "reconciler": {"debounceInterval": "100ms"},
            "templating": {
                "extraContext": {
                    "httpPort": PORT,
                    "httpsPort": HTTPS_PORT,
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

    def ingress(
        self,
        name: str,
        host: str,
        *,
        ingress_class: str | None = None,
        backend: str = "echo",
        path: str = "/",
        tls_secret: str = "",
    ) -> Resource:
        """Return an Ingress for *host*, by default of the controller's class."""
        paths = [
            {"path": path, "pathType": "Prefix", "backend": {"service": {"name": backend, "port": {"name": "http"}}}}
        ]
        spec: Resource = {
            "ingressClassName": self.namespace if ingress_class is None else ingress_class,
            "rules": [{"host": host, "http": {"paths": paths}}],
        }
        if tls_secret:
            spec["tls"] = [{"hosts": [host], "secretName": tls_secret}]
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
            {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": [*self.rules]},
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

        found = await self.cluster.wait(
            self.path("leases", LEASE), lambda found: _holder(found) and _holder(found) != other_than
        )
        return _holder(found)

    @asynccontextmanager
    async def followed_holders(self) -> AsyncIterator[list[str]]:
        """Follow the lease during the block: yield its holders so far, in order; empty while it has none."""
        holders: list[str] = []

        def note(_before: Resource | None, after: Resource | None) -> None:
            if not holders or holders[-1] != _holder(after):
                holders.append(_holder(after))

        leases = Mirror(self.cluster.api, self.path("leases", "").rstrip("/"), note)
        async with trio.open_nursery() as nursery:
            await nursery.start(leases.follow)
            yield holders
            nursery.cancel_scope.cancel(reason="the block has ended")

    def connect(self, tls: bool) -> Open:
        """Return what connects to the load balancer."""
        return partial(self.cluster.connect, self.address, 443 if tls else 80)

    async def ask(self, host: str) -> int:
        """Send one request on a new connection; return its status, 0 without an answer."""
        try:
            return (await send_request(self.connect(False), host)).status
        except BadAnswerError:
            return 0

    async def ask_instance(self, address: str, host: str) -> int:
        """Do the same with one instance, past the load balancer."""
        try:
            return (await send_request(partial(self.cluster.connect, address, PORT), host)).status
        except BadAnswerError:
            return 0

    def traffic(self, *hosts: str, tls_host: str = "") -> Traffic:
        """Return clients of *hosts*; see `traffic.flowing`."""
        return Traffic(self.connect, *hosts, tls_host=tls_host)

    async def until_served(self, host: str, *, status: int = 200) -> float:
        """Return the clock time at which a request for *host* was answered so."""

        async def is_served() -> bool:
            return await self.ask(host) == status

        await until(is_served)
        return trio.current_time()

    async def pod_of_leader(self) -> str:
        """Return the name of the Pod that holds the lease."""
        return (await self.leader()).partition("_")[0]

    async def pods_of_controllers(self) -> list[str]:
        """Return the names of the controllers' Pods."""
        return [pod["metadata"]["name"] for pod in await self.cluster.pods(self.namespace, "app=controller")]

    async def until_reported(self, pod: str, *words: str) -> None:
        """Wait until the present run of a Pod's container has written a line with all of *words*."""

        async def is_reported() -> bool:
            lines = (await self.cluster.logs(self.namespace, pod)).splitlines()
            return any(all(word in line for word in words) for line in lines)

        await until(is_reported)

    async def until_restarted(self, pod: str) -> None:
        """Wait until the container of a Pod runs for another time than its first."""

        def is_restarted(found: Resource | None) -> bool:
            (state,) = ((found or {}).get("status") or {}).get("containerStatuses") or [{}]
            return state.get("restartCount", 0) > 0 and "running" in (state.get("state") or {})

        await self.cluster.wait(self.path("pods", pod), is_restarted)

    async def logs_of(self, label: str) -> str:
        """Return what all Pods with `app` *label* wrote, for a test that failed."""
        pods = await self.cluster.pods(self.namespace, f"app={label}")
        return "\n".join([await self.cluster.logs(self.namespace, pod["metadata"]["name"]) for pod in pods])

    async def published_address(self) -> str:
        """Return the address that the load balancer has given to HAProxy's Service."""
        found = await self.cluster.wait(
            self.path("services", "haproxy"), lambda found: found and found["status"]["loadBalancer"].get("ingress")
        )
        return str(found["status"]["loadBalancer"]["ingress"][0]["ip"])


@asynccontextmanager
async def installed(cluster: Cluster, namespace: str, root: Path, **how: Any) -> AsyncIterator[Site]:
    """Install a site with two controllers; *how* is that of `installing`."""
    async with installing(Site(cluster, namespace, root), **how) as site:
        yield site


@asynccontextmanager
async def installing(
    site: _S, *, prepare: Callable[[_S], Awaitable[None]] | None = None, limit: float = 120, **how: Any
) -> AsyncIterator[_S]:
    """Install *site* within *limit* seconds, after *prepare* has seen it; what is cluster-wide goes at the end.

    Logs are shown if the test fails.
    """
    try:
        with trio.fail_after(limit):
            if prepare is not None:
                await prepare(site)
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
                await site.cluster.delete(one)


def backend(name: str, replicas: int) -> Resource:
    """Return a Deployment of echo backends that may be scaled under traffic."""
    return deployment(name, replicas, echo_container(lifecycle=_LINGERING), terminationGracePeriodSeconds=6)


def _holder(lease: Resource | None) -> str:
    return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")


def _probe(path: str, port: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": port}, "periodSeconds": 1, "failureThreshold": 1}


def _secret(name: str, files: TlsFiles) -> Resource:
    content = {"tls.crt": files.certificate, "tls.key": files.key, "ca.crt": files.authorities}
    data = {key: base64.b64encode(path.read_bytes()).decode() for key, path in content.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
