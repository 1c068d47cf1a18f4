"""Commands print a digest in place of content from a Secret unless it is requested, and write the content to files."""

import base64
import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.cli.commands import invoke_cli

pytestmark = pytest.mark.process

HASH = "$5$abcdefgh$gruCpC7V3CGcYgBL6a8E6y2wYx6TcGkDDCTfXbBBBB."
OTHER = "$5$abcdefgh$another8E6y2wYx6TcGkDDCTfXbBBBBgruCpC7V3CG."
TOKEN = "planted-token-1"
TEMPLATE = """\
{% each secret in resources.planted as "planted" %}
backend planted
    http-request set-header x-token {{ (secret.data.token | b64decode) | word }}
    http-request set-header x-encoded {{ secret.data.token | word }}
{% endeach %}
"""


def secret(name: str, **data: str) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {"name": name, "namespace": "default"},
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
        }
    )


@pytest.fixture
def guarded(manifests: Path) -> Path:
    """The demo with a password on an Ingress, and a template that writes a token into haproxy.cfg."""
    (manifests / "users.yaml").write_text(secret("users", auth=f"alice:{HASH}"))
    (manifests / "planted.yaml").write_text(secret("planted", token=TOKEN))
    found = next(path for path in manifests.glob("*.yaml") if "kind: Ingress\n" in path.read_text())
    documents = list(yaml.safe_load_all(found.read_text()))
    (manifests / "guarded.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "Ingress",
                "metadata": {
                    "name": "guarded",
                    "namespace": "default",
                    "annotations": {
                        "nginx.ingress.kubernetes.io/auth-type": "basic",
                        "nginx.ingress.kubernetes.io/auth-secret": "users",
                    },
                },
                "spec": next(each for each in documents if each["kind"] == "Ingress")["spec"]
                | {"rules": [{"host": "guarded.localhost", "http": {"paths": [PATH]}}], "tls": []},
            }
        )
    )
    config = manifests / "config.yaml"
    (document,) = yaml.safe_load_all(config.read_text())
    text = yaml.safe_load(document["data"]["config"])
    text["templating"]["libraries"] = ["base", "ssl", "ingress", "nginx-annotations"]
    text.setdefault("watchedResources", {})["planted"] = {
        "apiVersion": "v1",
        "resources": "secrets",
        "fieldSelector": "metadata.name=planted",
        "indexBy": ["metadata.namespace", "metadata.name"],
    }
    text.setdefault("templateSnippets", {})["backends-planted"] = {"template": TEMPLATE}
    document["data"]["config"] = yaml.safe_dump(text)
    config.write_text(yaml.safe_dump(document))
    return manifests


PATH = {
    "path": "/",
    "pathType": "Prefix",
    "backend": {"service": {"name": "web", "port": {"name": "http"}}},
}


def secrets_in(text: str) -> list[str]:
    """Return what of the Secrets is in *text*."""
    return [word for word in (HASH, OTHER, TOKEN, "cGxhbnRlZC10b2tlbi0x") if word in text]


@pytest.mark.parametrize(
    "arguments",
    [
        ("render",),
        ("render", "--with-files"),
        ("render", "--with-files", "--output", "json"),
        ("explain", "backend planted"),
        ("explain", "Ingress default/guarded", "--output", "json"),
        ("validate",),
    ],
)
def test_digest_is_shown_instead(guarded: Path, arguments: tuple[str, ...]) -> None:
    command, *rest = arguments

    result = invoke_cli(command, *rest, "--manifests", guarded)

    assert result.exit_code == 0, result.stderr
    assert secrets_in(result.stdout + result.stderr) == []
    if command == "render":
        assert "# secret, digest " in result.stdout
        assert "server s1 127.0.0.1:18881" in result.stdout


@pytest.mark.parametrize("output", ["text", "json"])
def test_difference_shows_that_something_secret_differs_and_not_what(
    guarded: Path, tmp_path: Path, output: str
) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(guarded, changed)
    (changed / "users.yaml").write_text(secret("users", auth=f"alice:{OTHER}"))

    result = invoke_cli("diff", "--manifests", guarded, "--to", changed, "--output", output)

    assert result.exit_code == 1, result.stderr
    assert secrets_in(result.stdout + result.stderr) == []
    text = result.stdout if output == "text" else "\n".join(json.loads(result.stdout)["files"][0]["diff"])
    lines = text.split("\n")
    assert any(line.startswith("-    # secret, digest ") for line in lines)
    assert any(line.startswith("+    # secret, digest ") for line in lines)


def test_secrets_are_shown_when_that_is_asked_for(guarded: Path) -> None:
    result = invoke_cli("render", "--manifests", guarded, "--show-secrets")

    assert secrets_in(result.stdout) == [HASH, TOKEN, "cGxhbnRlZC10b2tlbi0x"]
    assert "# secret" not in result.stdout


def test_files_are_written_as_haproxy_needs_them(guarded: Path, tmp_path: Path) -> None:
    result = invoke_cli("render", "--manifests", guarded, "--output-dir", tmp_path / "out", "--check")

    assert result.exit_code == 0, result.stderr
    text = (tmp_path / "out" / "haproxy.cfg").read_text()
    assert secrets_in(text) == [HASH, TOKEN, "cGxhbnRlZC10b2tlbi0x"]
    assert "# secret" not in text
    assert secrets_in(result.stdout + result.stderr) == []
