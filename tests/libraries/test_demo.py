"""The demo's manifests are what the demo says they are."""

from pathlib import Path

import pytest
import yaml

from haptic_trio.config.credentials import decode_credentials
from haptic_trio.config.decode import decode_text
from haptic_trio.config.model import Config
from haptic_trio.k8s.resource import Resource
from tests.libraries.conftest import Cluster
from tests.support.traffic import ask

DEMO = Path(__file__).parents[2] / "examples" / "demo"


def manifests() -> list[Resource]:
    return [item for file in sorted(DEMO.glob("*.yaml")) for item in yaml.safe_load_all(file.read_text()) if item]


def test_the_configuration_and_the_credentials_can_be_read() -> None:
    by_kind = {item["kind"]: item for item in manifests() if item["metadata"]["name"] == "haptic-trio"}

    config = decode_text(by_kind["ConfigMap"]["data"]["config"], Config, source="demo")
    credentials = decode_credentials(by_kind["Secret"])

    assert config.value.reconciler.debounce_interval == 0.1
    assert config.value.dataplane.min_deployment_interval == 0.1
    assert credentials.dataplane_username


@pytest.mark.haproxy
def test_the_demo_is_served(cluster: Cluster) -> None:
    rendered = cluster.serve(*(item for item in manifests() if item["kind"] not in {"ConfigMap", "Secret"}))

    assert rendered.refusals == ()
    assert "server s1 127.0.0.1:18081" in rendered.text
    assert "server s1 127.0.0.1:18082" in rendered.text
    assert ask(cluster.http_port, "elsewhere.localhost").status == 404
