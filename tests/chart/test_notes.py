"""The notes that an installation prints."""

from pathlib import Path
from typing import Any

import pytest

from tests.chart.support.rendering import Helm

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("values", "settings", "lines"),
    [
        (
            "default",
            {},
            [
                (
                    "  kubectl --namespace demo get service demo-haptic-trio-haproxy --output jsonpath="
                    "'{.status.loadBalancer.ingress[0].ip}{.status.loadBalancer.ingress[0].hostname}'"
                ),
                "  kubectl create ingress web --class=haptic --rule='web.example.com/*=web:80'",
                (
                    "The console, which shows what a controller does, is off. "
                    "To turn it on, set controller.console.enabled."
                ),
            ],
        ),
        (
            "bare-metal",
            {"controller__extraArgs": ["--console=on"]},
            [
                (
                    "  kubectl --namespace demo get service demo-haptic-trio-haproxy"
                    " --output jsonpath='{.spec.ports[*].nodePort}'"
                ),
                "  kubectl --namespace demo port-forward deployment/demo-haptic-trio-controller 9090",
                (
                    "  kubectl --namespace demo exec deployment/demo-haptic-trio-controller"
                    " -- cat /var/lib/haptic-trio/controller/console.token"
                ),
            ],
        ),
        (
            "default",
            {"haproxy__service__type": "ClusterIP", "haproxy__service__externalIPs": ["192.0.2.1", "192.0.2.2"]},
            [
                "  kubectl --namespace demo port-forward service/demo-haptic-trio-haproxy 8080:80",
                "External addresses: 192.0.2.1, 192.0.2.2",
            ],
        ),
        (
            "sidecars",
            {},
            [
                "  kubectl get events --all-namespaces --field-selector reason=Quarantined",
                (
                    "  kubectl --namespace demo get secret edge-console"
                    """ --output go-template='{{index .data "token" | base64decode}}'"""
                ),
            ],
        ),
        (
            "two-namespaces",
            {},
            [
                (
                    "Ingresses with `ingressClassName: haptic` are served, in the namespaces team-a, team-b only."
                    " For a Service `web` with port 80:"
                ),
                "  kubectl --namespace team-b get events --field-selector reason=Quarantined",
            ],
        ),
        (
            "autoscaled",
            {},
            [
                (
                    "Further Services: demo-haptic-trio-haproxy-cluster (ClusterIP)"
                    " demo-haptic-trio-haproxy-internal (LoadBalancer)"
                )
            ],
        ),
        ("host-network", {}, ["HAProxy listens on each node that has a pod: port 8080 for HTTP, 8443 for HTTPS."]),
        ("host-ports", {}, ["HAProxy listens on each node that has a pod: port 80 for HTTP. Port 443 for HTTPS."]),
    ],
)
def test_notes_show_the_address_an_example_and_how_to_open_the_console(
    helm: Helm, tmp_path: Path, values: str, settings: dict[str, Any], lines: list[str]
) -> None:
    assert set(lines) <= set(helm.notes(tmp_path, values, **settings).splitlines())
