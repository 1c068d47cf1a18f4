"""Mistakes in the directory that `haptic-trio new` makes, and commands that report them."""

from pathlib import Path

from tests.cli.commands import invoke_cli, replace_in

INGRESS = """\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {name}
  namespace: default
  annotations:
    example.com/team: abc
    {annotation}: {value}
spec:
  ingressClassName: haptic
  rules:
    - host: {name}.localhost
      http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: example, port: {{number: 80}}}}}}}}]}}
"""

GATEWAY = """\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: haptic}
spec: {controllerName: haptic-trio/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: default}
spec: {gatewayClassName: haptic, listeners: [{name: http, port: 8085, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: default}
spec:
  parentRefs: [{name: gw}]
  hostnames: [shop.localhost]
  rules: [{backendRefs: [{name: example, port: 80}]}]
"""


def make_site(directory: Path) -> Path:
    """Return a directory as `haptic-trio new` makes it."""
    assert invoke_cli("new", directory / "site").exit_code == 0
    return directory / "site"


def load_libraries(site: Path, *names: str) -> None:
    """Load the libraries *names* as well."""
    replace_in(site / "config.yaml", "[base, ssl, ingress]", f"[base, ssl, ingress, {', '.join(names)}]")


def validate(site: Path, haproxy_binary: Path) -> str:
    """Return the output of `validate`."""
    return invoke_cli("validate", "--manifests", site, "--haproxy", haproxy_binary).stdout


def explain(site: Path, target: str) -> str:
    """Return the output of `explain` in one line."""
    return " ".join(invoke_cli("explain", "--manifests", site, target).stdout.split())
