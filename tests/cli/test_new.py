"""`new` and `completion`: what a new user begins with."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import invoke_cli


@pytest.mark.haproxy
def test_the_starting_configuration_is_valid_and_its_test_passes(tmp_path: Path, haproxy_binary: Path) -> None:
    site = tmp_path / "site"
    made = invoke_cli("new", site, "--http-port", "18880", "--https-port", "18881")
    assert made.exit_code == 0
    assert made.stderr.endswith(f"next: haptic-trio test --manifests {site}\n")

    valid = invoke_cli("validate", "--manifests", site, "--haproxy", haproxy_binary)
    assert valid.exit_code == 0, valid.stdout + valid.stderr
    tested = invoke_cli("test", "--manifests", site, "--haproxy", haproxy_binary)
    assert tested.exit_code == 0, tested.stdout + tested.stderr
    rendered = invoke_cli("render", "--manifests", site)
    assert "bind 127.0.0.1:18880" in rendered.stdout
    assert "backend default_example_80" in rendered.stdout


@pytest.mark.haproxy
def test_another_name_is_taken_up_by_the_hint(tmp_path: Path, haproxy_binary: Path) -> None:
    site = tmp_path / "site"
    made = invoke_cli("new", site, "--name", "edge", "--namespace", "infra", "--no-example")
    options = ["--namespace", "infra", "--config-map", "edge"]
    assert " ".join(options) in made.stderr
    assert [path.name for path in site.iterdir()] == ["config.yaml"]
    assert invoke_cli("test", "--manifests", site, *options, "--haproxy", haproxy_binary).exit_code == 0


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "example.yaml").write_text("mine")
    result = subprocess.run(
        [sys.executable, "-m", "haptic_trio", "new", tmp_path], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert "example.yaml" in result.stderr
    assert (tmp_path / "example.yaml").read_text() == "mine"
    assert not (tmp_path / "config.yaml").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_asks_the_program(shell: str) -> None:
    result = invoke_cli("completion", shell)
    assert result.exit_code == 0
    assert f"_HAPTIC_TRIO_COMPLETE={shell}_complete" in result.stdout


def test_the_program_answers_the_shell() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "haptic_trio"],
        env={"_HAPTIC_TRIO_COMPLETE": "bash_complete", "COMP_WORDS": "haptic-trio vali", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout == "plain,validate\n"
