"""Options of `serve` about pods and addresses, and which configurations go with them."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from haptic_trio.cli.serving.endpoints import PodMode, make_pod_mode
from haptic_trio.cli.serving.loading import load_for_agents, load_for_api_pods, load_for_local_instances, load_for_pods
from haptic_trio.cli.serving.publishing import Publishing, make_publishing, publish_options
from haptic_trio.config.load import LoadedConfig
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.dataplane.agent.client import AgentAddress
from tests.support.components.controller import credentials, raw_config_map


def read(*arguments: str, pods: bool = True) -> Any:
    """Return what the options are read as, or the message of their rejection."""
    found: list[Publishing] = []

    @click.command()
    @publish_options
    def command(
        publish_service: tuple[str, str] | None, publish_addresses: tuple[str, ...], publish_nodes: str | None
    ) -> None:
        found.append(make_publishing(publish_service, publish_addresses, publish_nodes, pods=pods))

    result = CliRunner().invoke(command, arguments)
    return found[0] if found else result.output


def test_service_nodes_or_addresses_are_published() -> None:
    assert read() == Publishing()
    assert read("--publish-service", "edge/haproxy") == Publishing(service=("edge", "haproxy"))
    assert read("--publish-address", "192.0.2.7", "--publish-address", "lb.test") == Publishing(
        addresses=("192.0.2.7", "lb.test")
    )
    assert read("--publish-nodes", "internal") == Publishing(nodes="internal")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--publish-service", "haproxy"], "not NAMESPACE/NAME"),
        (["--publish-address", "under_score"], "neither an IP address"),
        (["--publish-service", "a/b", "--publish-address", "192.0.2.7"], "exclude each other"),
        (["--publish-nodes", "external", "--publish-address", "192.0.2.7"], "exclude each other"),
        (["--publish-nodes", "public"], "'public' is not one of 'external', 'internal'"),
    ],
)
def test_an_invalid_address_is_rejected(arguments: list[str], words: str) -> None:
    assert words in read(*arguments)


def test_addresses_of_nodes_need_pods() -> None:
    assert "--publish-nodes needs --pods" in read("--publish-nodes", "external", pods=False)


def test_pods_need_all_certificates_or_none(tmp_path: Path) -> None:
    assert make_pod_mode(False, (), None, None, None, "name") is None
    assert make_pod_mode(True, (), None, None, None, "name") == PodMode()
    mode = make_pod_mode(True, (), tmp_path, tmp_path, tmp_path, "name")
    assert mode is not None
    assert mode.access is not None
    assert mode.access.server_name == "name"
    with pytest.raises(click.UsageError, match="needs --agent-ca, --agent-cert and"):
        make_pod_mode(True, (), tmp_path, None, None, "name")
    with pytest.raises(click.UsageError, match="exclude"):
        make_pod_mode(True, (AgentAddress(name="a", url="https://a"),), None, None, None, "name")


def config(kind: str, **labels: str) -> Any:
    return raw_config_map(json.dumps({"dataplane": {"kind": kind}, "podSelector": {"matchLabels": labels}}))


@pytest.mark.parametrize(
    ("load", "kind"),
    [
        (load_for_local_instances, "local"),
        (load_for_agents, "local"),
        (load_for_agents, "agent"),
        (load_for_pods, "local"),
        (load_for_pods, "agent"),
        (load_for_pods, "dataplaneapi"),
        (load_for_api_pods, "dataplaneapi"),
    ],
)
def test_configuration_goes_with_how_instances_are_reached(load: Any, kind: str) -> None:
    assert isinstance(load(config(kind, app="haproxy"), credentials("x")), LoadedConfig)


@pytest.mark.parametrize(
    ("load", "kind", "hint"),
    [
        (load_for_local_instances, "agent", "--pods"),
        (load_for_agents, "dataplaneapi", "--pods"),
        (load_for_api_pods, "agent", "--agent-ca"),
    ],
)
def test_configuration_that_does_not_go_with_it_is_rejected(load: Any, kind: str, hint: str) -> None:
    with pytest.raises(ConfigInvalidError) as caught:
        load(config(kind, app="haproxy"), credentials("x"))

    assert hint in str(caught.value)


def test_pods_need_labels() -> None:
    with pytest.raises(ConfigInvalidError, match="no labels"):
        load_for_pods(config("agent"), credentials("x"))
