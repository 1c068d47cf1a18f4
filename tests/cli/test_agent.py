"""The command line of `agent`, and of `serve` with agents: what is wrong is said before anything runs."""

from pathlib import Path

import pytest

from haptic_trio.cli.serving.endpoints import make_agent_list
from tests.cli.commands import invoke_cli
from tests.support.components.agents import Authority


def test_help_teaches_how_to_run_it() -> None:
    result = invoke_cli("agent", "--help")
    assert result.exit_code == 0
    for word in ("--tls-cert", "--client-ca", "--allow-client", "--attach", "--health-listen", "Exit codes"):
        assert word in result.stdout


def test_missing_certificates_are_named() -> None:
    result = invoke_cli("agent")
    assert result.exit_code == 2
    assert "--tls-cert" in result.stderr


@pytest.mark.parametrize("value", ["nowhere", "127.0.0.1:99999", "127.0.0.1"])
def test_an_address_that_is_none_is_rejected(tmp_path: Path, value: str) -> None:
    files = Authority(tmp_path).issue("127.0.0.1")
    assert files.authorities is not None
    arguments = ("--tls-cert", files.certificate, "--tls-key", files.key, "--client-ca", files.authorities)
    for option in ("--listen", "--health-listen"):
        result = invoke_cli("agent", *arguments, option, value)
        assert result.exit_code == 2
        assert option in result.stderr


@pytest.mark.parametrize(
    "value",
    ["edge-1", "edge-1=http://127.0.0.1:5555", "=https://x", "a b=https://x", "x=https://y/z", "x=https://y:70000"],
)
def test_serve_rejects_an_invalid_agent(tmp_path: Path, value: str) -> None:
    result = invoke_cli("serve", "--manifests", tmp_path, "--agent", value)
    assert result.exit_code == 2
    assert "is not NAME=URL" in result.stderr


def test_serve_rejects_a_name_that_is_given_twice(tmp_path: Path) -> None:
    agents = ("--agent", "a=https://x:1", "--agent", "a=https://y:1")
    result = invoke_cli("serve", "--manifests", tmp_path, *agents)
    assert result.exit_code == 2
    assert "same name" in result.stderr


def test_serve_asks_for_the_certificates_that_agents_need(tmp_path: Path) -> None:
    result = invoke_cli("serve", "--manifests", tmp_path, "--agent", "a=https://x:1")
    assert result.exit_code == 2
    assert "--agent-ca" in result.stderr


def test_without_agents_there_are_local_instances() -> None:
    assert make_agent_list((), None, None, None) is None
