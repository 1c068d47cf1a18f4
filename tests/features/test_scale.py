"""Very many objects with default settings: all are served, also by a controller that gets little of a processor.

No limit of time may apply to a start as a whole: a large cluster, or a small
share of a processor, is no fault.
"""

import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.features.harness import Site, request
from tests.support.processes.haproxy import backend
from tests.support.processes.launcher import Program, launcher
from tests.support.processes.ports import free_port

pytestmark = [pytest.mark.haproxy, pytest.mark.soak]

MANY = 20_000
PERIOD = 100_000
"""Microseconds in which a quarter of a processor is used up."""
_CPU = Path("/sys/fs/cgroup/cpu")
_PER_FILE = 500

GATEWAY = """\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {{name: haptic}}
spec: {{controllerName: haptic-trio/gateway-controller}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: web, namespace: default}}
spec: {{gatewayClassName: haptic, listeners: [{{name: http, port: {port}, protocol: HTTP}}]}}
"""
HTTP_ROUTE = """\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: app-{number}
  namespace: default
spec:
  parentRefs:
    - name: web
  hostnames:
    - host-{number}.localhost
  rules:
    - backendRefs:
        - name: app-{number}
          port: 80
"""
INGRESS = """\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: app-{number}
  namespace: default
spec:
  ingressClassName: haptic
  rules:
    - host: host-{number}.localhost
      http:
        paths:
          - path: /
            pathType: Prefix
            backend:
              service:
                name: app-{number}
                port:
                  number: 80
"""
SERVICE = """\
apiVersion: v1
kind: Service
metadata:
  name: app-{number}
  namespace: default
spec:
  ports:
    - port: 80
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: app-{number}-1
  namespace: default
  labels:
    kubernetes.io/service-name: app-{number}
addressType: IPv4
ports:
  - name: ""
    port: {port}
endpoints:
  - addresses:
      - 127.0.0.1
"""


def write_site(site: Site, template: str, count: int, port: int) -> None:
    """Write *count* objects of *template*, each with a Service whose endpoint is *port*."""
    http_port = site.port
    if template is HTTP_ROUTE:
        (site.manifests / "gateway.yaml").write_text(GATEWAY.format(port=site.port))
        # A port of a Gateway is its own.
        http_port = free_port()
    library = "gateway" if template is HTTP_ROUTE else "ingress"
    context = {"httpPort": http_port, "httpsPort": free_port(), "bindAddress": "127.0.0.1"}
    site.write_config(
        reconciler={"debounceInterval": "5s"},
        dataplane={"minDeploymentInterval": "2s"},
        templating={"libraries": ["base", "ssl", library], "extraContext": context},
    )
    site.write_class()
    for start in range(0, count, _PER_FILE):
        numbers = range(start, min(start + _PER_FILE, count))
        documents = [text.format(number=number, port=port) for number in numbers for text in (template, SERVICE)]
        (site.manifests / f"objects-{start:05}.yaml").write_text("---\n".join(documents))


@pytest.fixture
def quarter() -> Iterator[Path]:
    """A control group whose processes get a quarter of a processor."""
    group = _CPU / f"haptic-trio-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "cpu.cfs_period_us").write_text(str(PERIOD))
        (group / "cpu.cfs_quota_us").write_text(str(PERIOD // 4))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no control group for a share of a processor: {error}")
    yield group
    group.rmdir()


@asynccontextmanager
async def serving(site: Site, root: Path, binary: Path, group: Path | None = None) -> AsyncIterator[Program]:
    """Run the controller in a process of its own."""
    async with launcher() as start:
        command = ["serve", "--manifests", str(site.manifests), "--state-dir", str(site.state)]
        command += ["--listen", "127.0.0.1:0", "--haproxy", str(binary), "--on-exit", "stop", "--log-format", "json"]
        controller = Program(start, root, "controller", command)
        await controller.start()
        try:
            if group is not None:
                (group / "cgroup.procs").write_text(str(controller.pid))
            yield controller
        finally:
            with trio.CancelScope(shield=True):
                if group is not None:
                    # Its end is not what is limited.
                    for pid in (group / "cgroup.procs").read_text().split():
                        (_CPU / "cgroup.procs").write_text(pid)
                await controller.end()


async def wait_served(site: Site, controller: Program, number: int) -> None:
    """Wait until the host of object *number* is served."""
    while True:
        assert controller.is_alive, controller.output[-4000:]
        with contextlib.suppress(OSError, trio.BrokenResourceError, IndexError):
            if await request(site.port, f"host-{number}.localhost") == (200, "here"):
                return
        await trio.sleep(0.2)


@pytest.mark.parametrize("template", [INGRESS, HTTP_ROUTE], ids=["ingresses", "http-routes"])
async def test_twenty_thousand_objects_are_served_with_default_settings(
    tmp_path: Path, haproxy_binary: Path, template: str
) -> None:
    site = Site(tmp_path, free_port())
    async with backend("here") as port:
        write_site(site, template, MANY, port)
        async with serving(site, tmp_path, haproxy_binary) as controller:
            with trio.fail_after(600):
                for number in (0, MANY // 2, MANY - 1):
                    await wait_served(site, controller, number)
            assert "omitted" not in controller.output
            assert "quarantined" not in controller.output


async def test_a_controller_with_a_quarter_of_a_processor_serves_all_objects(
    tmp_path: Path, haproxy_binary: Path, quarter: Path
) -> None:
    # Rendering alone takes longer than the former limit of 10 s for it.
    site, count = Site(tmp_path, free_port()), 5_000
    async with backend("here") as port:
        write_site(site, HTTP_ROUTE, count, port)
        async with serving(site, tmp_path, haproxy_binary, quarter) as controller:
            with trio.fail_after(600):
                for number in (0, count - 1):
                    await wait_served(site, controller, number)
            assert "quarantined" not in controller.output
