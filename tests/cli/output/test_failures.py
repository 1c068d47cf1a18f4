"""With `--output json`, every command prints its failure or result as one JSON document."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from haptic_trio.cli.exits import wants_json
from haptic_trio.cli.inputs.files import replace_file
from haptic_trio.cli.main import main
from haptic_trio.cli.output.failures import failures_of, words_of
from haptic_trio.errors import HapticError, Problem, ProblemsError
from haptic_trio.k8s.errors import ForbiddenError
from tests.cli.commands import invoke_cli, replace_in


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["haptic-trio", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_info:
        main()
    return int(exit_info.value.code or 0)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("", False),
        ("render", False),
        ("render --output", False),
        ("render --output text", False),
        ("render --output json", True),
        ("--output=json", True),
        ("new json --output text", False),
    ],
)
def test_a_command_line_asks_for_json(line: str, *, wanted: bool) -> None:
    assert wants_json(line.split()) is wanted


def test_every_error_of_a_group_is_reported_with_all_its_fields() -> None:
    problem = Problem(message="no such field", source="ConfigMap default/edge", line=3, hint="remove it")
    group = ExceptionGroup("", [ProblemsError([problem, problem]), HapticError("no HAProxy"), OSError()])

    found = failures_of(ExceptionGroup("", [group, click.UsageError("no such option")]))

    assert found[0] == {
        "message": "no such field",
        "source": "ConfigMap default/edge",
        "line": 3,
        "hint": "remove it",
    }
    assert [entry["message"] for entry in found] == [
        "no such field",
        "no such field",
        "no HAProxy",
        "OSError",
        "no such option",
    ]


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["render", "--output", "json"], "give one of --manifests"),
        (["rendr", "--output", "json"], "rendr"),
        (["fleet", "list", "--state-dir", "/nowhere", "--output", "json"], "--state-dir"),
        (["debug", "--output=json", "tasks", "--state-dir", "/nowhere"], "--state-dir"),
        (["version", "--haproxy", "/nowhere/haproxy", "--output", "json"], "/nowhere/haproxy"),
        (["test", "--library", "bse", "--output", "json"], "bse"),
    ],
)
def test_a_failure_is_one_document_on_standard_error(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_main(monkeypatch, *arguments)

    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    assert words in json.loads(printed.err)["errors"][0]["message"]


@pytest.mark.process
def test_every_subcommand_reports_an_invalid_configuration_as_json(
    manifests: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_in(manifests / "config.yaml", "templating:", "templatin:")
    found: dict[str, Any] = {}
    for verb, *others in (["explain", "web"], ["diff", "--to", str(manifests)], ["test"]):
        run_main(monkeypatch, verb, "--manifests", manifests, *others, "--output", "json")
        printed = capsys.readouterr()
        assert printed.out == ""
        found[verb] = json.loads(printed.err)["errors"]

    for problems in found.values():
        assert problems[0]["path"] == "templatin"
        assert problems[0]["line"] > 0


@pytest.mark.process
def test_options_before_a_command_of_debug_hold_for_it(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "haptic_trio", "debug", "--state-dir", tmp_path / "mine", "tasks"],
        env={"HAPTIC_STATE_DIR": str(tmp_path / "other")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 2
    assert str(tmp_path / "mine") in run.stderr


@pytest.mark.process
def test_what_was_rendered_is_one_document(manifests: Path) -> None:
    result = invoke_cli("render", "--manifests", manifests, "--output", "json", "--with-files")

    document = json.loads(result.stdout)
    assert document["valid"] is True
    assert "frontend http" in document["config"]
    files = {file["path"]: file for file in document["files"]}
    assert "demo.localhost|/api/" in files["maps/path-prefix.map"]["content"]
    secrets = [file for file in files.values() if file["secret"]]
    assert secrets
    assert "PRIVATE KEY" not in result.stdout


@pytest.mark.process
def test_an_object_that_is_left_out_is_in_the_document(manifests: Path) -> None:
    replace_in(manifests / "ingress.yaml", "path: /api", 'path: "/a b"')

    result = invoke_cli("render", "--manifests", manifests, "--output", "json")

    document = json.loads(result.stdout)
    assert (result.exit_code, result.stderr, document["valid"]) == (1, "", False)
    assert "Ingress default/demo" in {problem["subject"] for problem in document["problems"]}
    assert all("content" not in file for file in document["files"])


@pytest.mark.process
def test_versions_and_new_files_are_available_as_json(tmp_path: Path) -> None:
    versions = json.loads(invoke_cli("version", "--output", "json").stdout)
    made = json.loads(invoke_cli("new", tmp_path / "site", "--output", "json").stdout)

    assert set(versions) == {"haptic-trio", "python", "haproxy"}
    assert [Path(path).name for path in made["files"]] == ["config.yaml", "example.yaml"]
    assert made["next"] == f"haptic-trio test --manifests {tmp_path / 'site'}"


def test_a_file_that_cannot_be_written_is_named_and_nothing_of_it_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.xml"
    target.mkdir()

    with pytest.raises(OSError, match="directory") as caught:
        replace_file(target, "text")
    (tmp_path / "file").touch()
    code = run_main(monkeypatch, "new", tmp_path / "file" / "site")

    assert caught.value.filename == str(target)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert code == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'file' / 'site'}: Not a directory\n"


@pytest.mark.process
def test_a_terminal_that_does_not_know_a_character_gets_its_escape(tmp_path: Path) -> None:
    invoke_cli("new", tmp_path / "site")
    command = [sys.executable, "-m", "haptic_trio", "test", "--manifests", str(tmp_path / "site")]
    run = subprocess.run(
        command, env={**os.environ, "PYTHONIOENCODING": "latin-1"}, capture_output=True, text=True, check=False
    )

    assert (run.returncode, run.stderr) == (0, "")
    assert "\\u2713 example-is-served" in run.stdout


def test_error_of_an_api_server_has_address_and_fix() -> None:
    error = ForbiddenError("list services.v1", 'User "dev" cannot list resource "services"', status=403)
    error.where = "API server https://10.0.0.1:6443 (context dev of /home/me/.kube/config)"

    assert words_of(error) == (
        "API server https://10.0.0.1:6443 (context dev of /home/me/.kube/config): list services.v1:"
        ' User "dev" cannot list resource "services"'
        " (grant it in a Role or ClusterRole of this user, or use other credentials)"
    )
