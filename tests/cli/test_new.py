"""`new` and `completion`: what a new user begins with."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import invoke_cli

EXPORT = """\
apiVersion: v1
kind: List
items:
- apiVersion: networking.k8s.io/v1
  kind: IngressClass
  metadata: {name: nginx}
  spec: {controller: k8s.io/ingress-nginx}
- apiVersion: networking.k8s.io/v1
  kind: Ingress
  metadata: {name: plain, namespace: default, annotations: {nginx.ingress.kubernetes.io/proxy-body-size: 8m}}
  spec: {ingressClassName: nginx, rules: [{host: plain.example.com}]}
- apiVersion: networking.k8s.io/v1
  kind: Ingress
  metadata: {name: odd, namespace: default, annotations: {nginx.ingress.kubernetes.io/configuration-snippet: "x"}}
  spec: {ingressClassName: nginx, rules: [{host: odd.example.com}]}
"""
"""What `kubectl get … --output yaml` gives of a cluster with ingress-nginx."""


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


@pytest.mark.haproxy
def test_ingresses_of_another_controller_are_checked_with_what_new_writes(tmp_path: Path, haproxy_binary: Path) -> None:
    export = tmp_path / "export"
    arguments = ["--no-example", "--library", "nginx-annotations", "--ingress-class", "nginx"]
    assert invoke_cli("new", export, *arguments).exit_code == 0
    (export / "cluster.yaml").write_text(EXPORT)

    checked = invoke_cli("validate", "--manifests", export, "--haproxy", haproxy_binary)

    assert "tests:         ok (1 test)" in checked.stdout
    assert "objects:       1 problem" in checked.stdout
    assert "Ingress default/odd" in checked.stdout
    assert "Ingress default/plain" not in checked.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--library", "nginx"], "unknown library 'nginx'"),
        (["--ingress-class", "No such"], "lower-case"),
        (["--name", "a: b"], "lower-case"),
    ],
)
def test_an_invalid_configuration_is_not_written(tmp_path: Path, arguments: list[str], words: str) -> None:
    result = invoke_cli("new", tmp_path / "site", *arguments)

    assert (result.exit_code, words in result.stderr) == (2, True)
    assert not (tmp_path / "site").exists()


@pytest.mark.process
def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "example.yaml").write_text("mine")
    result = subprocess.run(
        [sys.executable, "-m", "haptic_trio", "new", tmp_path], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert "example.yaml" in result.stderr
    assert (tmp_path / "example.yaml").read_text() == "mine"
    assert not (tmp_path / "config.yaml").exists()


@pytest.mark.process
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_asks_the_program(shell: str) -> None:
    result = invoke_cli("completion", shell)
    assert result.exit_code == 0
    assert f"_HAPTIC_TRIO_COMPLETE={shell}_complete" in result.stdout


@pytest.mark.process
def test_the_program_answers_the_shell() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "haptic_trio"],
        env={"_HAPTIC_TRIO_COMPLETE": "bash_complete", "COMP_WORDS": "haptic-trio vali", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout == "plain,validate\n"


def test_a_directory_with_a_blank_can_be_pasted(tmp_path: Path) -> None:
    result = invoke_cli("new", tmp_path / "my site")

    assert f"next: haptic-trio test --manifests '{tmp_path / 'my site'}'" in result.output
    assert f"validate --manifests '{tmp_path / 'my site'}'`" in (tmp_path / "my site" / "config.yaml").read_text()
