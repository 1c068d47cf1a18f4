"""`serve --dataplane`: addresses, credentials, and the configurations that go with them."""

import base64
from pathlib import Path

import click
import pytest

from haptic_trio.cli.serving.endpoints import PASSWORD, USERNAME, ApiList, make_api_list, read_apis
from haptic_trio.cli.serving.loading import choose_load, load_for_api_pods, load_for_apis, load_for_pods
from haptic_trio.config.load import Load
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.dataplane.agent.client import AgentAddress
from haptic_trio.dataplane.dataplaneapi.client import Credentials
from haptic_trio.dataplane.dataplaneapi.endpoints import ApiAddress
from haptic_trio.k8s.resource import Resource
from tests.cli.commands import invoke_cli, replace_in

APIS = (ApiAddress(name="edge-1", url="https://10.0.0.7:5555"),)


def config(text: str = "{dataplane: {kind: dataplaneapi}}") -> Resource:
    return {"metadata": {"name": "haptic-trio", "namespace": "edge", "resourceVersion": "7"}, "data": {"config": text}}


def secret(password: str) -> Resource:
    values = {"dataplane_username": "admin", "dataplane_password": password}
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {"metadata": {"name": "haptic-trio", "namespace": "edge", "resourceVersion": "8"}, "data": data}


@pytest.mark.parametrize(
    "value",
    [
        "edge-1=https://admin:hidden@10.0.0.7:5555",
        "https://admin:hidden@10.0.0.7",
        "edge-1=ftp://10.0.0.7/hidden",
        "https://10.0.0.7:99999/hidden",
        "https://10.0.0.7:5555/v3?hidden",
        "hidden",
        "",
    ],
)
def test_what_is_not_an_address_is_rejected_without_showing_it(value: str, tmp_path: Path) -> None:
    result = invoke_cli("serve", "--manifests", tmp_path, "--dataplane", value)

    assert result.exit_code == 2
    assert "such as edge-1=https://10.0.0.7:5555" in " ".join(result.output.split())
    assert "hidden" not in result.output


def test_two_of_one_name_are_rejected(tmp_path: Path) -> None:
    same = ("--dataplane", "https://10.0.0.7:5555") * 2

    result = invoke_cli("serve", "--manifests", tmp_path, *same)

    assert result.exit_code == 2
    assert "two endpoints have the same name" in result.output


@pytest.mark.parametrize(
    ("value", "name", "url"),
    [
        ("edge-1=https://10.0.0.7:5555/", "edge-1", "https://10.0.0.7:5555"),
        ("https://haproxy.example.com", "haproxy.example.com:https", "https://haproxy.example.com"),
        ("http://[::1]:5555", "::1:5555", "http://[::1]:5555"),
    ],
)
def test_address_gives_its_name_unless_it_has_one(value: str, name: str, url: str) -> None:
    assert read_apis([value]) == (ApiAddress(name=name, url=url),)


def test_credentials_of_the_environment_are_taken_and_not_shown() -> None:
    apis = make_api_list(APIS, None, {USERNAME: "admin", PASSWORD: "hidden"}, agents=(), pods=False)

    assert apis == ApiList(addresses=APIS, credentials=Credentials(username="admin", password="hidden"))
    assert "hidden" not in repr(apis)
    assert make_api_list((), None, {PASSWORD: "hidden"}, agents=(), pods=False) is None
    assert make_api_list(APIS, None, {}, agents=(), pods=False) == ApiList(addresses=APIS)


def test_options_that_do_not_go_together_are_rejected(tmp_path: Path) -> None:
    agent = AgentAddress(name="a", url="https://10.0.0.1")
    with pytest.raises(click.UsageError, match="excludes"):
        make_api_list(APIS, None, {}, agents=(agent,), pods=False)
    with pytest.raises(click.UsageError, match="excludes"):
        make_api_list(APIS, None, {}, agents=(), pods=True)
    with pytest.raises(click.UsageError, match="set together"):
        make_api_list(APIS, None, {USERNAME: "admin"}, agents=(), pods=False)
    with pytest.raises(click.UsageError, match="--dataplane-ca needs --dataplane"):
        make_api_list((), tmp_path, {}, agents=(), pods=False)


@pytest.mark.parametrize("text", ["{dataplane: {kind: dataplaneapi}}", "{}"])
def test_credentials_are_those_of_the_secret_unless_the_environment_has_some(text: str) -> None:
    load = choose_load(None, ApiList(addresses=APIS), None)
    loaded = load(config(text), secret("of-the-secret"))
    assert loaded.credentials is not None
    assert loaded.credentials.dataplane_password == "of-the-secret"

    given = Credentials(username="other", password="of-the-environment")
    load = choose_load(None, ApiList(addresses=APIS, credentials=given), None)
    for known, version in ((secret("of-the-secret"), "7/8"), (None, "7/")):
        loaded = load(config(text), known)
        assert loaded.credentials is not None
        assert loaded.credentials.dataplane_username == "other"
        assert loaded.credentials.dataplane_password == "of-the-environment"
        assert loaded.version == version


@pytest.mark.parametrize(
    ("load", "text"),
    [
        (load_for_apis, "{dataplane: {kind: dataplaneapi}}"),
        (load_for_apis, "{}"),
        (load_for_pods, "{dataplane: {kind: dataplaneapi}}"),
        (load_for_api_pods, "{dataplane: {kind: dataplaneapi}}"),
    ],
)
def test_controller_without_credentials_loads_nothing(load: Load, text: str) -> None:
    with pytest.raises(ConfigInvalidError) as caught:
        load(config(text), None)

    assert "needs credentials" in str(caught.value)


@pytest.mark.process
@pytest.mark.parametrize("command", ["render", "validate", "diff"])
def test_commands_that_reach_no_api_need_no_credentials(manifests: Path, command: str) -> None:
    replace_in(manifests / "config.yaml", "dataplane:\n", "dataplane:\n      kind: dataplaneapi\n")
    options = ("--to", manifests) if command == "diff" else ()

    result = invoke_cli(command, "--manifests", manifests, *options)

    assert result.exit_code == 0, result.output
    assert "credentials" not in result.output


def test_other_kinds_and_absolute_directories_are_rejected() -> None:
    with pytest.raises(ConfigInvalidError, match="kind `agent` cannot be reached"):
        load_for_apis(config("{dataplane: {kind: agent}}"), secret("x"))

    absolute = "{dataplane: {kind: dataplaneapi, mapsDir: /etc/haproxy/maps}}"
    with pytest.raises(ConfigInvalidError) as caught:
        load_for_apis(config(absolute), secret("x"))
    [problem] = caught.value.problems
    assert (problem.path, problem.message) == ("dataplane.mapsDir", "'/etc/haproxy/maps' is absolute")
