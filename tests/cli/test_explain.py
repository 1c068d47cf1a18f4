"""`explain` as a person and as a machine use it."""

import io
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from haptic_trio.cli.output.answer_rows import one_line
from haptic_trio.cli.output.explain import print_answer
from haptic_trio.cli.output.findings import make_console
from haptic_trio.explain.answers import Answer, Line, LineAnswer, MadeBy, ObjectAnswer
from tests.cli.commands import invoke_cli, replace_in

pytestmark = pytest.mark.process

BROKEN = """\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: broken, namespace: default}
spec:
  ingressClassName: haptic
  rules:
    - host: broken.localhost
      http:
        paths:
          - path: "/a b"
            pathType: Prefix
            backend: {service: {name: web, port: {number: 80}}}
"""


def ask(manifests: Path, *target: str) -> str:
    """Return the answer as text."""
    result = invoke_cli("explain", "--manifests", manifests, *target)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def ask_json(manifests: Path, *target: str) -> dict[str, Any]:
    """Return the answer as data."""
    answer: dict[str, Any] = json.loads(ask(manifests, *target, "--output", "json"))
    return answer


def test_a_line_is_explained(manifests: Path) -> None:
    lines = invoke_cli("render", "--manifests", manifests).stdout.split("\n")
    number = lines.index("    server s1 127.0.0.1:18881") + 1

    reported = ask(manifests, f"haproxy.cfg:{number}")

    assert "in            backend default_web_80\n" in reported
    assert "made by       fragment ingress-backends, backends-ingress:" in reported
    assert "for           Service default/web, resourceVersion " in reported
    assert "resources.endpointSlices.get('default', 'web'): EndpointSlice default/web-1\n" in reported


def test_a_target_may_be_several_words(manifests: Path) -> None:
    assert ask(manifests, "backend", "default_web_80") == ask(manifests, "backend default_web_80")


def test_a_request_is_explained(manifests: Path) -> None:
    reported = ask(manifests, "demo.localhost/api/x")

    assert "routed to     backend default_api_80\n" in reported
    assert "matched by    maps/path-prefix.map:2  demo.localhost|/api/ default_api_80  (prefix)" in reported
    assert "next match    maps/path-prefix.map:1  demo.localhost|/ default_web_80  (prefix)" in reported


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("haproxy.cfg:1", "line"),
        ("backend no-route", "section"),
        ("maps/path-prefix.map", "file"),
        ("demo.localhost/api", "route"),
        ("demo.localhost", "host"),
        ("certificate demo.localhost", "certificate"),
        ("Ingress default/demo", "object"),
        ("Secret default/demo-tls", "object"),
        ("EndpointSlice default/web-1", "object"),
    ],
)
def test_each_kind_of_target_is_explained_as_json_and_text(manifests: Path, target: str, kind: str) -> None:
    assert ask_json(manifests, target)["answer"] == kind
    reported = ask(manifests, target)
    assert "\x1b" not in reported
    assert "PRIVATE KEY" not in reported


def test_an_object_names_what_it_made(manifests: Path) -> None:
    answer = ask_json(manifests, "Service", "default/web")

    assert [product["sections"] for product in answer["products"]] == [["backend default_web_80"]]
    assert [use["fragment"] for use in answer["used_by"]] == ["ingress-prefix-paths"]


def test_an_object_that_failed_is_explained_and_others_are_not_disturbed(manifests: Path) -> None:
    (manifests / "broken.yaml").write_text(BROKEN)

    reported = ask(manifests, "Ingress default/broken")

    assert "problem       Ingress default/broken, fragment ingress-prefix-paths: " in reported
    assert "it has no fallback" in reported
    assert "problem" not in ask(manifests, "Ingress default/demo")


@pytest.mark.parametrize(
    ("target", "code", "messages"),
    [
        ("demo.localhos", 1, ["nothing is named 'demo.localhos'", "did you mean  demo.localhost\n"]),
        ("haproxy.cfg:99999", 1, ["haproxy.cfg has", "did you mean  haproxy.cfg:"]),
        ("backend default_wb_80", 1, ["no section 'backend default_wb_80'", "did you mean  backend default_web_80\n"]),
        ("Service default/wbe", 1, ["no object 'Service default/wbe'", "did you mean  Service default/web\n"]),
        ("haproxy.cfg:0", 2, ["line numbers start at 1"]),
        ("", 2, ["the target is empty"]),
    ],
)
def test_what_cannot_be_explained_is_an_error(manifests: Path, target: str, code: int, messages: list[str]) -> None:
    result = invoke_cli("explain", "--manifests", manifests, target)

    assert (result.exit_code, result.stdout) == (code, "")
    assert all(message in result.stderr for message in messages), result.stderr


def test_search_lists_lines_of_all_files_with_their_objects(manifests: Path) -> None:
    lines = ask(manifests, "--search", "DEMO.localhost").splitlines()

    assert lines[0] == "search        DEMO.localhost"
    assert any("maps/path-prefix.map:" in line and "[Ingress default/demo]" in line for line in lines)
    assert "found         nothing" in ask(manifests, "--search", "no such text")
    assert ask_json(manifests, "--search", "demo.localhost")["answer"] == "search"


def test_target_and_search_exclude_each_other(manifests: Path) -> None:
    for arguments in ((), ("demo.localhost", "--search", "demo")):
        result = invoke_cli("explain", "--manifests", manifests, *arguments)
        assert (result.exit_code, "give TARGET or --search TEXT" in result.stderr) == (2, True)


def test_wrong_usage_is_another_exit_code(manifests: Path) -> None:
    assert invoke_cli("explain", "--manifests", manifests).exit_code == 2
    assert invoke_cli("explain", "haproxy.cfg:1").exit_code == 2


def test_an_invalid_configuration_explains_nothing(manifests: Path) -> None:
    replace_in(manifests / "config.yaml", "debounceInterval:", "debounceIntervall:")

    result = invoke_cli("explain", "--manifests", manifests, "haproxy.cfg:1")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "debounceIntervall" in result.stderr


def test_the_line_that_our_parser_rejects_can_be_explained(manifests: Path) -> None:
    replace_in(manifests / "config.yaml", "http-response set-header", "http-response sett-header")

    place = re.search(r"haproxy\.cfg:\d+", invoke_cli("explain", "--manifests", manifests, "global").stderr)
    assert place is not None
    result = invoke_cli("explain", "--manifests", manifests, place[0])
    of_section = invoke_cli("explain", "--manifests", manifests, "frontend http")

    assert result.exit_code == 0
    assert f"{place[0]}:" in result.stderr
    assert "sett-header" in result.stdout
    assert "similar to    frontend-rules-greeting:1\n" in result.stdout
    assert of_section.exit_code == 1
    assert "haproxy.cfg cannot be parsed" in of_section.stderr


def test_a_terminal_gets_colours_and_a_pipe_does_not() -> None:
    made_by = MadeBy(output="haproxy.cfg", fragment="f", template="t", line=1, object=None)
    line = Line(path="haproxy.cfg", line=1, text="global", is_secret=False)
    answer = LineAnswer(line=line, section="", made_by=made_by, sources=(), depends_on=(), problems=())
    terminal, pipe = io.StringIO(), io.StringIO()

    print_answer(Console(file=terminal, force_terminal=True), answer)
    print_answer(Console(file=pipe), answer)

    assert "\x1b[" in terminal.getvalue()
    assert pipe.getvalue() == (
        "line          haproxy.cfg:1\n                  global\nmade by       template haproxy.cfg, for no object\n"
    )


@pytest.mark.haproxy
def test_check_reports_what_haproxy_rejects(manifests: Path, haproxy_binary: Path) -> None:
    replace_in(manifests / "config.yaml", "{{ greeting | logformat }}", "%[src,map(/no_such_map)]")

    result = invoke_cli("explain", "--manifests", manifests, "--check", "--haproxy", haproxy_binary, "frontend http")

    assert result.exit_code == 0
    assert "no_such_map" in result.stderr
    assert "section       frontend http\n" in result.stdout


def test_a_template_that_fails_for_every_object_explains_nothing(manifests: Path) -> None:
    replace_in(manifests / "config.yaml", "{{ greeting | logformat }}", "{{ nothing.at.all }}")

    result = invoke_cli("explain", "--manifests", manifests, "haproxy.cfg:1")

    assert (result.exit_code, result.stdout) == (1, "")


def test_names_that_would_steer_a_terminal_or_forge_a_row_are_escaped(manifests: Path) -> None:
    evil = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "x", "namespace": "default"},
        "spec": {
            "ingressClassName": "haptic",
            "rules": [
                {
                    "host": "evil.localhost",
                    "http": {
                        "paths": [
                            {
                                "path": "/",
                                "pathType": "Prefix",
                                "backend": {
                                    "service": {"name": "\x1b[2J\nfor           [red]Ingress", "port": {"name": "\x07"}}
                                },
                            }
                        ]
                    },
                }
            ],
        },
    }
    (manifests / "evil.yaml").write_text(yaml.safe_dump(evil))

    results = [
        invoke_cli("explain", "--manifests", manifests, target)
        for target in ("Ingress default/x", "evil.localhost", "evil.localhost/", "a\x1b[2J", "Ingress \x1b[2J/\x07")
    ]

    for result in results:
        assert not set("\x1b\x07") & set(result.output)
        assert "\nfor           [red]" not in result.output
    assert any("\\x1b[2J\\nfor           [red]Ingress" in result.output for result in results)


@given(st.text())
def test_any_text_becomes_one_line(text: str) -> None:
    shown = one_line(text)

    assert len(Text(shown).plain.splitlines()) <= 1 or "\t" in shown
    assert not any(ord(char) < 32 and char != "\t" for char in shown)


WEIGHTED = """\
      backends-weighted:
        template: |
          {% each service in resources.services as "weighted" if service.metadata.labels %}
          backend weighted from profile-http
              server s 127.0.0.1:1 weight {{ service.metadata.labels.weight | integer }}
          {% endeach %}
"""
HEAVY = '  name: api\n  namespace: default\n  labels: {weight: "300"}\nspec:'


@pytest.mark.haproxy
def test_an_object_that_haproxy_rejects_is_explained_with_check(manifests: Path, haproxy_binary: Path) -> None:
    replace_in(manifests / "config.yaml", "    templateSnippets:\n", f"    templateSnippets:\n{WEIGHTED}")
    # A server may have a weight of 256 at most.
    replace_in(manifests / "api.yaml", "  name: api\n  namespace: default\nspec:", HEAVY)

    unchecked = ask_json(manifests, "Service default/api")
    checked = ask_json(manifests, "Service default/api", "--check", "--haproxy", str(haproxy_binary))

    made = [product["made_by"]["fragment"] for product in unchecked["products"]]
    assert ("weighted" in made, unchecked["problems"]) == (True, [])
    assert "weighted" not in [product["made_by"]["fragment"] for product in checked["products"]]
    assert [problem["fragment"] for problem in checked["problems"]] == ["weighted"]


@pytest.mark.parametrize("width", [80, 120])
def test_on_a_terminal_each_text_stays_in_its_column(manifests: Path, width: int) -> None:
    answer = msgspec.convert(ask_json(manifests, "service", "web"), ObjectAnswer)
    terminal = Console(file=io.StringIO(), width=width, force_terminal=True, no_color=True, soft_wrap=True)
    print_answer(terminal, answer)

    assert isinstance(terminal.file, io.StringIO)
    lines = Text.from_ansi(terminal.file.getvalue()).plain.splitlines()
    assert max(len(line) for line in lines) <= width
    assert all(line[13] == " " for line in lines)
    # Nothing is lost, and nothing stands anywhere else but for the breaks.
    unwrapped = ask(manifests, "service", "web").split()
    assert [word for line in lines for word in line.split()] == unwrapped


@pytest.mark.parametrize(
    "target",
    [
        "haproxy.cfg:20",
        "backend default_web_80",
        "maps/path-prefix.map",
        "demo.localhost",
        "demo.localhost/api/users",
        "certificate demo.localhost",
        "Ingress default/demo",
    ],
)
def test_an_answer_that_has_travelled_as_json_is_the_same_text(manifests: Path, target: str) -> None:
    stream = io.StringIO()
    print_answer(make_console(stream), msgspec.convert(ask_json(manifests, target), Answer))

    assert stream.getvalue() == ask(manifests, target)
