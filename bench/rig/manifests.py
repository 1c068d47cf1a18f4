"""The directory that stands for the cluster: one file for each app, with its Service, EndpointSlice and Ingress."""

from pathlib import Path

import msgspec

from haptic_trio.cli.files import replace_file

SERVICE = """\
apiVersion: v1
kind: Service
metadata:
  name: {name}
  namespace: default
spec:
  ports:
    - name: http
      port: 80
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {name}-1
  namespace: default
  labels:
    kubernetes.io/service-name: {name}
addressType: IPv4
ports:
  - name: http
    protocol: TCP
    port: {port}
endpoints:
  - addresses: [127.0.0.1]
    conditions: {{ready: true}}
"""

INGRESS = """\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {name}
  namespace: default
spec:
  ingressClassName: haptic
  rules:
    - host: {host}
      http:
        paths:
          - path: /
            pathType: Prefix
            backend:
              service:
                name: {service}
                port:
                  name: http
"""

INGRESS_CLASS = """\
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata:
  name: haptic
spec:
  controller: haptic-trio/ingress-controller
"""

CONFIG = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: haptic-trio
  namespace: default
data:
  config: |
    controller:
      startTimeout: 10m
    reconciler:
      debounceInterval: {debounce}
    dataplane:
      minDeploymentInterval: {min_interval}
      driftPreventionInterval: 24h
      deploymentTimeout: 5m
    templating:
      renderTimeout: 5m
      libraries: [base, ssl, ingress]
      extraContext:
        bindAddress: 127.0.0.1
        httpPort: {port}
        greeting: {greeting}
    templateSnippets:
      frontend-rules-greeting:
        template: |
          http-response set-header X-Greeting {{{{ greeting | logformat }}}}
"""


class Intervals(msgspec.Struct, frozen=True):
    """What holds changes back, as the configuration writes it."""

    debounce: str
    min_deployment: str


def app_name(number: int) -> str:
    """Return the name of an app's Service and Ingress."""
    return f"app-{number:05d}"


def host_of(name: str) -> str:
    """Return the host that the Ingress *name* serves."""
    return f"{name}.example"


class Site:
    """The manifests below *root*, and how to change one of them at a stroke."""

    def __init__(self, root: Path, *, port: int, intervals: Intervals) -> None:
        self.manifests = root / "manifests"
        self.port = port
        self._intervals = intervals
        self.manifests.mkdir()

    def fill(self, apps: int, backend_port: int) -> None:
        """Write *apps* apps, all with the same backend."""
        replace_file(self.manifests / "class.yaml", INGRESS_CLASS)
        self.write_config("v0")
        for number in range(apps):
            self.write_app(app_name(number), backend_port)

    def write_app(self, name: str, backend_port: int) -> None:
        """Write the Service *name* with one endpoint, and an Ingress of its own."""
        ingress = INGRESS.format(name=name, host=host_of(name), service=name)
        self._write(name, f"{SERVICE.format(name=name, port=backend_port)}---\n{ingress}")

    def write_ingress(self, name: str, service: str) -> None:
        """Write an Ingress to a Service that is there already."""
        self._write(name, INGRESS.format(name=name, host=host_of(name), service=service))

    def write_config(self, greeting: str) -> None:
        """Write the ConfigMap; *greeting* becomes a header of each response."""
        text = CONFIG.format(
            debounce=self._intervals.debounce,
            min_interval=self._intervals.min_deployment,
            port=self.port,
            greeting=greeting,
        )
        self._write("config", text)

    def remove(self, name: str) -> None:
        """Delete a file."""
        (self.manifests / f"{name}.yaml").unlink()

    def _write(self, name: str, text: str) -> None:
        replace_file(self.manifests / f"{name}.yaml", text)
