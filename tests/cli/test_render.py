"""`render`: the output, and what is said about the rest."""

import stat
from pathlib import Path

import pytest

from tests.cli.commands import invoke_cli, replace_in

pytestmark = pytest.mark.process

BROKEN_INGRESS = """\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: broken, namespace: default}
spec:
  ingressClassName: haptic
  rules:
    - host: broken.localhost
      http:
        paths:
          - path: "/\\n    http-request deny\\n#"
            pathType: Prefix
            backend: {service: {name: web, port: {name: http}}}
"""


def test_the_configuration_goes_to_standard_output(manifests: Path) -> None:
    result = invoke_cli("render", "--manifests", manifests)

    assert (result.exit_code, result.stderr) == (0, "")
    assert "frontend http" in result.stdout
    assert "bind 127.0.0.1:18880" in result.stdout
    assert "server s1 127.0.0.1:18881" in result.stdout


def test_files_are_shown_on_demand_and_private_keys_by_their_digest(manifests: Path) -> None:
    result = invoke_cli("render", "--manifests", manifests, "--with-files")

    assert "# ---- maps/path-prefix.map ----" in result.stdout
    assert "demo.localhost|/api/" in result.stdout
    assert "digest" in result.stdout
    assert "PRIVATE KEY" not in result.stdout


def test_private_keys_are_shown_only_when_asked_for(manifests: Path) -> None:
    result = invoke_cli("render", "--manifests", manifests, "--with-files", "--show-secrets")

    assert "BEGIN PRIVATE KEY" in result.stdout


def test_files_are_written_below_the_output_directory(manifests: Path, tmp_path: Path) -> None:
    output = tmp_path / "new" / "output"

    result = invoke_cli("render", "--manifests", manifests, "--output-dir", output)

    assert (result.exit_code, result.stdout) == (0, "")
    assert "frontend http" in (output / "haproxy.cfg").read_text()
    assert "demo.localhost|/api/" in (output / "maps" / "path-prefix.map").read_text()
    keys = [path for path in output.rglob("*") if path.is_file() and "PRIVATE KEY" in path.read_text()]
    assert keys
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}
    assert not list(output.rglob(".*"))


def test_what_is_rendered_again_replaces_what_is_there(manifests: Path, tmp_path: Path) -> None:
    invoke_cli("render", "--manifests", manifests, "--output-dir", tmp_path / "out")
    replace_in(manifests / "web.yaml", "port: 18881", "port: 18999")

    invoke_cli("render", "--manifests", manifests, "--output-dir", tmp_path / "out")

    assert "127.0.0.1:18999" in (tmp_path / "out" / "haproxy.cfg").read_text()


def test_an_object_that_cannot_be_served_is_reported_and_left_out(manifests: Path) -> None:
    (manifests / "broken.yaml").write_text(BROKEN_INGRESS)

    result = invoke_cli("render", "--manifests", manifests, "--with-files")

    assert result.exit_code == 1
    assert "object: Ingress default/broken" in result.stderr
    assert result.stderr.startswith(f"{manifests / 'broken.yaml'}:10: error: spec.rules[0].http.paths[0].path: ")
    assert "demo.localhost|/api/" in result.stdout
    assert "broken.localhost" not in result.stdout
    assert "http-request deny\n" not in result.stdout


def test_strict_writes_nothing_when_anything_is_wrong(manifests: Path, tmp_path: Path) -> None:
    (manifests / "broken.yaml").write_text(BROKEN_INGRESS)

    result = invoke_cli("render", "--manifests", manifests, "--strict", "--output-dir", tmp_path / "out")

    assert (result.exit_code, result.stdout) == (1, "")
    assert not (tmp_path / "out").exists()


def test_an_invalid_configuration_renders_nothing(manifests: Path) -> None:
    replace_in(manifests / "config.yaml", "debounceInterval:", "debounceIntervall:")

    result = invoke_cli("render", "--manifests", manifests)

    assert (result.exit_code, result.stdout) == (1, "")
    assert "debounceIntervall" in result.stderr


def test_rendering_needs_no_haproxy(manifests: Path) -> None:
    assert invoke_cli("render", "--manifests", manifests, "--haproxy", "/nowhere/haproxy").exit_code == 0


@pytest.mark.haproxy
def test_check_asks_haproxy(manifests: Path, haproxy_binary: Path) -> None:
    replace_in(manifests / "config.yaml", "{{ greeting | logformat }}", "%[src,map(/no_such_map)]")

    unchecked = invoke_cli("render", "--manifests", manifests)
    checked = invoke_cli("render", "--manifests", manifests, "--check", "--haproxy", haproxy_binary)

    assert unchecked.exit_code == 0
    assert checked.exit_code == 1
    assert "haproxy.cfg:" in checked.stderr


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_binary")
def test_strict_writes_nothing_that_haproxy_rejects(manifests: Path) -> None:
    replace_in(manifests / "config.yaml", "http-response set-header X-Greeting", "use_backend nowhere if TRUE #")

    result = invoke_cli("render", "--manifests", manifests, "--strict")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "unable to find required use_backend: 'nowhere'" in result.stderr
