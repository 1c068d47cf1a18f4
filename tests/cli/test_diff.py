"""`diff`: lines, runtime commands, and why a reload."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.commands import invoke_cli, replace_in

pytestmark = pytest.mark.haproxy


@pytest.fixture
def changed(manifests: Path, haproxy_binary: Path) -> Path:
    """A copy of the manifests, to be changed."""
    assert haproxy_binary.exists()
    return Path(shutil.copytree(manifests, manifests.parent / "changed"))


def test_equal_directories_change_nothing(manifests: Path, changed: Path) -> None:
    result = invoke_cli("diff", "--manifests", manifests, "--to", changed)

    assert (result.exit_code, result.stdout, result.stderr) == (0, "no changes\n", "")


def test_a_moved_server_is_a_runtime_operation(manifests: Path, changed: Path) -> None:
    replace_in(changed / "web.yaml", "port: 18881", "port: 18999")

    result = invoke_cli("diff", "--manifests", manifests, "--to", changed)

    assert result.exit_code == 1
    assert "-    server s1 127.0.0.1:18881" in result.stdout
    assert "+    server s1 127.0.0.1:18999" in result.stdout
    assert "  set server address default_web_80 s1\n" in result.stdout
    assert result.stdout.endswith("no reload\n")


def test_a_changed_template_reloads_with_the_line_as_reason(manifests: Path, changed: Path) -> None:
    replace_in(changed / "config.yaml", "greeting: hello", "greeting: welcome")

    result = invoke_cli("diff", "--manifests", manifests, "--to", changed, "--output", "json")

    document = json.loads(result.stdout)
    assert (result.exit_code, document["reload"], document["operations"]) == (1, True, [])
    assert any("http-response" in reason for reason in document["reasons"])
    [file] = document["files"]
    assert file["path"] == "haproxy.cfg"
    assert any(line.startswith("+") and "welcome" in line for line in file["diff"])


def test_no_private_key_is_shown(manifests: Path, changed: Path) -> None:
    for path in changed.glob("*.yaml"):
        text = path.read_text()
        if "kubernetes.io/tls" in text:
            path.unlink()

    result = invoke_cli("diff", "--manifests", manifests, "--to", changed)

    assert result.exit_code == 1
    assert "-# secret, digest " in result.stdout
    assert "PRIVATE KEY" not in result.stdout + result.stderr


def test_an_overlay_needs_only_what_changes(manifests: Path, changed: Path, tmp_path: Path) -> None:
    replace_in(changed / "web.yaml", "port: 18881", "port: 18999")
    only = tmp_path / "only"
    only.mkdir()
    shutil.copy(changed / "web.yaml", only)

    whole = invoke_cli("diff", "--manifests", manifests, "--to", changed)
    result = invoke_cli("diff", "--manifests", manifests, "--to", only, "--overlay")

    assert (result.exit_code, result.stdout) == (1, whole.stdout)


def test_only_new_problems_are_reported(manifests: Path, changed: Path) -> None:
    for directory in (manifests, changed):
        (directory / "old.yaml").write_text("kind: [")
    (changed / "new.yaml").write_text("kind: {")

    result = invoke_cli("diff", "--manifests", manifests, "--to", changed)

    assert result.exit_code == 1
    assert "new.yaml" in result.stderr
    assert "old.yaml" not in result.stderr


def test_without_a_valid_configuration_there_is_nothing_to_compare(manifests: Path, changed: Path) -> None:
    replace_in(changed / "config.yaml", "debounceInterval: 100ms", "debounceInterval: soon")

    result = invoke_cli("diff", "--manifests", manifests, "--to", changed)

    assert result.exit_code == 2
    assert "debounceInterval" in result.stderr


def test_a_change_that_haproxy_rejects_has_no_effect(manifests: Path, changed: Path) -> None:
    # Our own parser does not follow names.
    replace_in(changed / "config.yaml", "http-response set-header X-Greeting", "use_backend nowhere if TRUE #")

    checked = invoke_cli("diff", "--manifests", manifests, "--to", changed)
    unchecked = invoke_cli("diff", "--manifests", manifests, "--to", changed, "--no-check")

    assert (checked.exit_code, checked.stdout) == (2, "")
    assert "unable to find required use_backend: 'nowhere'" in checked.stderr
    assert unchecked.exit_code == 1
    assert "would reload" in unchecked.stdout
