"""`validate`: everything that is wrong, with its place, and the verdict."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result

from tests.cli.commands import invoke_cli, replace_in
from tests.cli.test_render import BROKEN_INGRESS

pytestmark = pytest.mark.haproxy


def validate(manifests: Path, haproxy_binary: Path, *more: str) -> Result:
    return invoke_cli("validate", "--manifests", manifests, "--haproxy", haproxy_binary, *more)


def problems_of(manifests: Path, haproxy_binary: Path) -> list[dict[str, Any]]:
    result = validate(manifests, haproxy_binary, "--output", "json")
    assert result.exit_code == 1
    document = msgspec.json.decode(result.stdout)
    assert document["valid"] is False
    problems: list[dict[str, Any]] = document["problems"]
    return problems


def test_good_manifests_are_valid(manifests: Path, haproxy_binary: Path) -> None:
    result = validate(manifests, haproxy_binary)

    assert result.exit_code == 0, result.output
    for area in ("manifests:", "configuration:", "objects:", "output:"):
        (line,) = [line for line in result.stdout.splitlines() if line.startswith(area)]
        assert " ok" in line


def test_machines_get_the_generation_and_the_counts(manifests: Path, haproxy_binary: Path) -> None:
    document = msgspec.json.decode(validate(manifests, haproxy_binary, "--output", "json").stdout)

    assert document["valid"] is True
    assert document["problems"] == []
    assert document["generation"]
    assert document["objects"]["services"] == 2


def test_what_owners_should_know_is_a_warning_and_no_fault(manifests: Path, haproxy_binary: Path) -> None:
    web = manifests / "web.yaml"
    web.write_text(web.read_text().replace("ready: true", "ready: false"))

    result = validate(manifests, haproxy_binary)

    assert result.exit_code == 0, result.output
    assert "warning: NoEndpoints: the Service default/web has no ready endpoint" in result.stdout
    assert "object: Ingress default/demo" in result.stdout


def test_a_line_that_haproxy_rejects_is_traced_to_its_template(tmp_path: Path, haproxy_binary: Path) -> None:
    invoke_cli("new", tmp_path / "site")
    replace_in(tmp_path / "site" / "config.yaml", "http-response set-header", "http-response set-hader")

    (problem,) = [one for one in problems_of(tmp_path / "site", haproxy_binary) if one["area"] == "output"]

    assert (problem["source"], problem["line"]) == (f"{tmp_path}/site/config.yaml", 22)
    assert problem["hint"] == "did you mean 'set-header'?"
    template, place, line = problem["excerpt"].splitlines()
    assert template == "template frontend-rules-served-by:1"
    assert re.fullmatch(r"haproxy\.cfg:\d+:15", place)
    assert line.strip() == "http-response set-hader X-Served-By haptic-trio"


def test_a_missing_backend_is_traced_to_the_line_that_uses_it(tmp_path: Path, haproxy_binary: Path) -> None:
    invoke_cli("new", tmp_path / "site")
    replace_in(
        tmp_path / "site" / "config.yaml", "http-response set-header X-Served-By haptic-trio", "use_backend nowhere"
    )

    (problem,) = [one for one in problems_of(tmp_path / "site", haproxy_binary) if one["area"] == "output"]

    assert (problem["source"], problem["line"]) == (f"{tmp_path}/site/config.yaml", 22)
    assert re.search(r"^haproxy\.cfg:\d+$", problem["excerpt"], re.MULTILINE)
    assert "nowhere" in problem["message"]


def test_an_unknown_field_is_reported_with_line_and_nearest_name(manifests: Path, haproxy_binary: Path) -> None:
    replace_in(manifests / "config.yaml", "debounceInterval:", "debounceIntervall:")

    (problem,) = problems_of(manifests, haproxy_binary)

    assert problem["area"] == "configuration"
    assert problem["source"] == str(manifests / "config.yaml")
    assert "debounceIntervall" in (manifests / "config.yaml").read_text().splitlines()[problem["line"] - 1]
    assert problem["path"] == "reconciler.debounceIntervall"
    assert "debounceInterval" in problem["hint"]
    assert "debounceIntervall: 100ms" in problem["excerpt"]


def test_all_problems_are_reported_at_once(manifests: Path, haproxy_binary: Path) -> None:
    replace_in(manifests / "config.yaml", "debounceInterval: 100ms", "debounceInterval: 100")
    replace_in(manifests / "config.yaml", "minDeploymentInterval:", "minDeploymentInterval: 1s\n      mapDir:")
    (manifests / "half.yaml").write_text("kind: Service\nmetadata: {name: half\n")
    (manifests / "nameless.yaml").write_text("apiVersion: v1\nkind: Service\nmetadata: {namespace: x}\n")

    problems = problems_of(manifests, haproxy_binary)

    assert [problem["area"] for problem in problems].count("configuration") == 2
    sources = {Path(problem["source"]).name for problem in problems if problem["area"] == "manifests"}
    assert sources == {"half.yaml", "nameless.yaml"}
    assert all(problem["line"] for problem in problems)


def test_a_template_that_is_none_is_reported_with_its_line(manifests: Path, haproxy_binary: Path) -> None:
    replace_in(manifests / "config.yaml", "{{ greeting | logformat }}", "{{ greeting | logformatt }}")

    (problem,) = problems_of(manifests, haproxy_binary)

    assert problem["area"] == "configuration"
    assert "frontend-rules-greeting" in problem["path"]
    assert problem["line"]
    assert "logformatt" in problem["message"]
    assert "logformat" in problem["hint"]


def test_an_unknown_snippet_is_reported(manifests: Path, haproxy_binary: Path) -> None:
    replace_in(
        manifests / "config.yaml",
        "          http-response",
        '          {% include "frontend-bodyy" %}\n          http-response',
    )

    problems = problems_of(manifests, haproxy_binary)

    assert any("frontend-bodyy" in problem["message"] for problem in problems)


def test_an_object_that_cannot_be_rendered_is_named(manifests: Path, haproxy_binary: Path) -> None:
    (manifests / "broken.yaml").write_text(BROKEN_INGRESS)

    (problem,) = problems_of(manifests, haproxy_binary)

    assert problem["area"] == "objects"
    assert problem["subject"] == "Ingress default/broken"
    assert problem["line"]


def test_what_haproxy_rejects_is_reported_with_its_line(manifests: Path, haproxy_binary: Path) -> None:
    replace_in(manifests / "config.yaml", "{{ greeting | logformat }}", "%[src,map(/no_such_map)]")

    problems = problems_of(manifests, haproxy_binary)

    assert problems
    assert all(problem["area"] == "output" for problem in problems)
    assert problems[0]["line"]


def test_without_a_config_map_manifests_are_still_checked(manifests: Path, haproxy_binary: Path) -> None:
    (manifests / "config.yaml").unlink()
    (manifests / "half.yaml").write_text("kind: Service\nmetadata: {name: half\n")

    result = validate(manifests, haproxy_binary)

    assert result.exit_code == 1
    assert "ConfigMap default/haptic-trio: error: not found" in result.stdout
    assert "half.yaml" in result.stdout
    assert "not checked" in result.stdout


def test_an_object_on_which_haproxy_crashes_is_named_and_others_are_fine(
    manifests: Path, haproxy_binary: Path, tmp_path: Path
) -> None:
    # Dies of a word that one object brings along.
    wrapper = tmp_path / "haproxy"
    wrapper.write_text(
        '#!/bin/sh\n[ "$1" = -c ] && cat "$(dirname "$3")"/maps/* | grep -q crash.example.com && kill -SEGV $$\n'
        f'exec {haproxy_binary} "$@"\n'
    )
    wrapper.chmod(0o755)
    crash = CRASHING.replace("NAME", "crash")
    (manifests / "more.yaml").write_text(f"{crash}---\n{CRASHING.replace('NAME', 'fine')}")

    [problem] = problems_of(manifests, wrapper)

    assert problem["subject"] == "Ingress default/crash"
    assert problem["message"] == "HAProxy crashes on it (SIGSEGV)"
    result = invoke_cli("render", "--manifests", manifests, "--haproxy", wrapper, "--check")
    assert result.exit_code == 1
    assert "Ingress default/crash" in result.output


CRASHING = """\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: NAME, namespace: default}
spec:
  ingressClassName: haptic
  rules:
    - host: NAME.example.com
      http:
        paths:
          - {path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}
"""


def test_manifests_are_checked_by_the_schema_of_their_kinds(manifests: Path, haproxy_binary: Path) -> None:
    misspelt = BROKEN_INGRESS.replace("ingressClassName:", "ingressClassNam:")
    (manifests / "broken.yaml").write_text(misspelt)
    line = next(number for number, text in enumerate(misspelt.splitlines(), 1) if "ingressClassNam:" in text)

    result = validate(manifests, haproxy_binary)

    assert result.exit_code == 1
    assert (
        f"{manifests / 'broken.yaml'}:{line}: error: spec.ingressClassNam: unknown field\n"
        "    object: Ingress default/broken\n    hint: did you mean `ingressClassName`?"
    ) in result.stdout
    assert "manifests:     1 problem" in result.stdout


def test_snippet_that_nothing_includes_is_a_warning(tmp_path: Path, haproxy_binary: Path) -> None:
    invoke_cli("new", tmp_path / "site")
    config = tmp_path / "site" / "config.yaml"
    text = config.read_text().replace("frontend-rules-served-by", "frontend-rule-served-by")
    config.write_text("".join(line for line in text.splitlines(keepends=True) if "X-Served-By}" not in line))

    result = validate(tmp_path / "site", haproxy_binary)

    assert result.exit_code == 0, result.output
    assert "config.yaml:20:7: warning: templateSnippets.frontend-rule-served-by: no template includes" in result.stdout


def test_config_map_in_an_unreadable_file_is_not_called_missing_alone(manifests: Path, haproxy_binary: Path) -> None:
    config = manifests / "config.yaml"
    config.write_text(f"a: [\n{config.read_text()}")

    output = validate(manifests, haproxy_binary).stdout

    assert f"{config}:" in output
    assert "hint: correct the files first: it may be in one of them" in output
