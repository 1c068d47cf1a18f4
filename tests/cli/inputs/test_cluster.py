"""Naming the cluster on the command line, and reading one behind an API server."""

import os
from functools import partial
from pathlib import Path

import click
import pytest
import trio
import yaml
from click.testing import Result

from haptic_trio.cli.inputs import oneshot
from haptic_trio.cli.inputs.cluster import make_cluster
from haptic_trio.cli.inputs.options import find_kubeconfig, make_input
from haptic_trio.k8s.api.cluster import ApiCluster
from haptic_trio.k8s.manifests.directory import DirectoryCluster
from haptic_trio.k8s.resource import Resource
from tests.cli.commands import invoke_cli
from tests.support.api_server.server import ApiServer, serving

NAMES = (None, "haptic-trio", "haptic-trio", None)


def objects_in(manifests: Path) -> list[Resource]:
    """Return every object of the YAML files below *manifests*."""
    return [each for file in manifests.rglob("*.yaml") for each in yaml.safe_load_all(file.read_text()) if each]


async def invoke_over(server: ApiServer, config: Path, *arguments: str) -> Result:
    """Run a command line over *server*, in a thread: it has a loop of its own."""
    server.write_kubeconfig(config)
    return await trio.to_thread.run_sync(partial(invoke_cli, *arguments, "--kubeconfig", config))


@pytest.mark.parametrize("verb", ["serve", "render", "validate"])
@pytest.mark.parametrize("arguments", [(), ("--manifests", ".", "--in-cluster"), ("--in-cluster", "--context", "x")])
def test_exactly_one_cluster_is_named(verb: str, arguments: tuple[str, ...]) -> None:
    result = invoke_cli(verb, *arguments)

    assert result.exit_code == 2
    assert "--context needs --kubeconfig" in result.output or "give one of --manifests" in result.output


def test_kubeconfig_of_the_environment_and_of_the_home_directory_are_found(tmp_path: Path) -> None:
    usual, given = tmp_path / ".kube" / "config", tmp_path / "given"
    home = {"HOME": str(tmp_path)}
    assert find_kubeconfig(home) is None
    usual.parent.mkdir()
    usual.touch()
    given.touch()

    assert find_kubeconfig(home) == usual
    assert find_kubeconfig({**home, "KUBECONFIG": f"{tmp_path}/gone{os.pathsep}{given}"}) == given
    with pytest.raises(click.UsageError, match="KUBECONFIG names /nowhere, which does not exist"):
        find_kubeconfig({**home, "KUBECONFIG": "/nowhere"})


def test_kubeconfig_is_not_looked_for_if_a_cluster_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.touch()
    monkeypatch.setenv("KUBECONFIG", str(config))

    assert make_input(None, *NAMES).kubeconfig == config
    assert make_input(None, *NAMES, context="dev").context == "dev"
    assert make_input(tmp_path, *NAMES).kubeconfig is None
    assert make_input(None, *NAMES, in_cluster=True).kubeconfig is None


def test_each_way_of_naming_makes_its_cluster(tmp_path: Path) -> None:
    def report(_source: str, _problems: object) -> None:
        pass

    directory = make_cluster(make_input(tmp_path, *NAMES), report)
    server = make_cluster(make_input(None, *NAMES, kubeconfig=tmp_path / "config"), report)
    pod = make_cluster(make_input(None, *NAMES, in_cluster=True), report)

    assert isinstance(directory, DirectoryCluster)
    assert isinstance(server, ApiCluster)
    assert isinstance(pod, ApiCluster)


def test_namespace_defaults_to_default(tmp_path: Path) -> None:
    assert make_input(tmp_path, *NAMES).source.namespace == "default"
    assert make_input(None, *NAMES, in_cluster=True).source.namespace == "default"
    assert make_input(tmp_path, "other", *NAMES[1:]).source.namespace == "other"


@pytest.mark.process
async def test_cluster_renders_as_the_directory_it_was_filled_from(manifests: Path, tmp_path: Path) -> None:
    async with serving(*objects_in(manifests)) as server:
        result = await invoke_over(server, tmp_path / "config", "render")
        checked = await invoke_over(server, tmp_path / "config", "validate", "--output", "json")

    assert (result.exit_code, result.stderr) == (0, "")
    expected = await trio.to_thread.run_sync(invoke_cli, "render", "--manifests", manifests)
    assert result.stdout == expected.stdout
    assert '"valid": true' in checked.stdout


async def test_server_that_rejects_us_is_named(tmp_path: Path) -> None:
    async with serving() as server:
        server.tokens.clear()
        result = await invoke_over(server, tmp_path / "config", "render")

    assert result.exit_code != 0
    assert "401" in repr(result.exception)


async def test_kind_that_cannot_be_read_ends_it_with_the_reason(
    manifests: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oneshot, "READ_LIMIT", 1.0)
    async with serving(*objects_in(manifests)) as server:
        server.faults.forbidden.add("ingresses")
        result = await invoke_over(server, tmp_path / "config", "render")

    assert result.exit_code != 0
    assert "ingresses is forbidden" in repr(result.exception)


@pytest.mark.process
async def test_kind_that_is_not_served_is_a_warning(manifests: Path, tmp_path: Path) -> None:
    async with serving(*objects_in(manifests)) as server:
        server.drop_kind(
            server.state.collection_of({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress"}).info.type
        )
        result = await invoke_over(server, tmp_path / "config", "render")

    assert result.exit_code == 0
    assert "does not serve ingresses.networking.k8s.io/v1" in result.stderr
