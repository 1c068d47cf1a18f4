"""Problems of a configuration name the file and line that a user can open."""

import json
import os
from pathlib import Path

import pytest
import yaml

from haptic_trio.cli.inputs.options import make_input
from haptic_trio.cli.inputs.source_map import Block, find_block, with_places
from haptic_trio.config.load import load_config
from haptic_trio.config.yaml.errors import ConfigInvalidError
from tests.cli.commands import invoke_cli, replace_in

TWO = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
data:
  config: |
    a: 1
---
apiVersion: v1
kind: ConfigMap
metadata: {name: mine, namespace: default}
data:
  other: |
    b: 1
  config: |

      c: 1
      d: 2
"""


def test_the_block_is_found_behind_other_documents(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("a: [\nkind: ConfigMap\n")
    (tmp_path / "two.yaml").write_text(TWO)

    assert find_block(tmp_path, "default", "mine") == Block("ConfigMap default/mine", tmp_path / "two.yaml", 15, 6)
    assert find_block(tmp_path, "default", "none") is None
    assert find_block(tmp_path, "elsewhere", "mine") is None


def test_a_text_on_one_line_has_no_line_distance(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text('apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {config: "a: 1"}\n')

    assert find_block(tmp_path, "default", "a") is None


@pytest.mark.process
@pytest.mark.parametrize(
    "arguments", [["validate"], ["test"], ["render"], ["explain", "web"], ["diff", "--to", "MANIFESTS"]]
)
def test_every_subcommand_names_file_line_and_column(manifests: Path, arguments: list[str]) -> None:
    config = manifests / "config.yaml"
    replace_in(config, "debounceInterval:", "debounceIntervall:")
    line = next(number for number, text in enumerate(config.read_text().splitlines(), 1) if "debounceIntervall" in text)
    verb, *others = [str(manifests) if word == "MANIFESTS" else word for word in arguments]

    result = invoke_cli(verb, "--manifests", manifests, *others)

    column = config.read_text().splitlines()[line - 1].index("debounceIntervall") + 1
    assert f"{config}:{line}:{column}: error: reconciler.debounceIntervall: unknown field" in result.output
    assert "object: ConfigMap default/haptic-trio" in result.output


def test_json_has_the_file_as_well(manifests: Path) -> None:
    replace_in(manifests / "config.yaml", "debounceInterval:", "debounceIntervall:")

    document = json.loads(invoke_cli("validate", "--manifests", manifests, "--output", "json").stdout)

    assert document["problems"][0]["source"] == str(manifests / "config.yaml")


@pytest.mark.process
def test_a_failed_test_is_reported_with_its_assertion_in_the_file(tmp_path: Path) -> None:
    invoke_cli("new", tmp_path / "site")
    config = tmp_path / "site" / "config.yaml"
    replace_in(config, "pattern: X-Served-By", "pattern: X-Served-Bye")
    line = next(number for number, text in enumerate(config.read_text().splitlines(), 1) if "X-Served-Bye" in text)

    result = invoke_cli("validate", "--manifests", tmp_path / "site")

    assert f"{config}:{line}: error: validationTests.example-is-served.assertions[1]" in result.stdout
    assert f"{config}:{line}\n" in invoke_cli("test", "--manifests", tmp_path / "site").stdout


def test_a_named_pipe_among_the_manifests_does_not_block(manifests: Path) -> None:
    os.mkfifo(manifests / "a-pipe.yaml")
    replace_in(manifests / "config.yaml", "debounceInterval:", "debounceIntervall:")

    result = invoke_cli("validate", "--manifests", manifests)

    assert f"{manifests / 'config.yaml'}:" in result.stdout
    assert f"{manifests / 'a-pipe.yaml'}: error: cannot be read: it is not a regular file" in result.stdout


def test_the_controller_reports_the_file_as_well(manifests: Path) -> None:
    config = manifests / "config.yaml"
    replace_in(config, "debounceInterval:", "debounceIntervall:")
    line = next(at for at, text in enumerate(config.read_text().splitlines(), 1) if "debounceIntervall" in text)
    load = with_places(load_config, make_input(manifests, None, "haptic-trio", "haptic-trio", None))

    with pytest.raises(ConfigInvalidError) as caught:
        load(yaml.safe_load(config.read_text()), None)

    (problem,) = caught.value.problems
    assert (problem.source, problem.line, problem.subject) == (str(config), line, "ConfigMap default/haptic-trio")


@pytest.mark.process
def test_error_in_an_own_template_names_the_file_and_the_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    invoke_cli("new", "site")
    replace_in(Path("site/config.yaml"), "http-response set-header", "http-response set-header {{ nope.x }}")
    lines = Path("site/config.yaml").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "nope" in text)

    result = invoke_cli("render", "--manifests", "site")

    assert f"site/config.yaml:{line}: error: 'nope' is not defined\n    template frontend-rules-served-by:1\n" in (
        result.output
    )


@pytest.mark.process
def test_paths_are_relative_if_the_directory_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    invoke_cli("new", "site")
    for name in ("a", "b"):
        Path(f"site/{name}.yaml").write_text("apiVersion: v1\nkind: Service\nmetadata: {name: twice}\n")
    Path("site/broken.yaml").write_text("a: [\n")

    output = invoke_cli("validate", "--manifests", "site").output

    assert "site/broken.yaml:" in output
    assert "site/b.yaml:1: error: defined already in site/a.yaml:1" in output
    assert str(tmp_path) not in output
