"""Commands print each problem with its severity and place, in a form that suits terminals, pipes and machines."""

import io

from haptic_trio.cli.output.findings import (
    Area,
    Finding,
    count_errors,
    describe,
    find,
    findings_to_json,
    make_console,
    print_findings,
    visible,
)
from haptic_trio.errors import Problem

PROBLEM = Problem(
    message="unknown field",
    source="ConfigMap default/haptic-trio",
    line=3,
    column=5,
    path="reconciler.debounce",
    hint="did you mean `debounceInterval`?",
    excerpt="    debounce: 5s",
)


def test_description_begins_with_place_and_severity() -> None:
    first, *more = str(describe(Finding(area=Area.CONFIGURATION, problem=PROBLEM))).splitlines()

    assert first == "ConfigMap default/haptic-trio:3:5: error: reconciler.debounce: unknown field"
    assert any("debounce: 5s" in line for line in more)
    assert any("did you mean" in line for line in more)


def test_warnings_are_not_errors() -> None:
    findings = [*find(Area.OUTPUT, [PROBLEM], is_warning=True), *find(Area.MANIFESTS, [PROBLEM, PROBLEM])]

    assert count_errors(findings) == 2
    assert "warning: " in str(describe(findings[0]))


def test_nothing_in_a_manifest_steers_the_terminal() -> None:
    hostile = Problem(
        message="\x1b]0;owned\x07 \u202egnp", source="a\x1b[2Jb", subject="\x9b31m", hint="\r", excerpt="\x00"
    )

    text = str(describe(Finding(area=Area.OBJECT, problem=hostile)))

    assert visible(text) == text
    assert "\\x1b]0;owned\\x07 \\u202egnp" in text


def test_ordinary_text_is_shown_as_it_is() -> None:
    assert visible("größe\n\ttab [bold] 日本") == "größe\n\ttab [bold] 日本"


def test_a_pipe_gets_plain_lines_however_long_they_are() -> None:
    stream = io.StringIO()
    long = Problem(message="[red]x[/red] " + "y" * 500, source="f.yaml", line=1)

    print_findings(make_console(stream), find(Area.MANIFESTS, [long]))

    assert stream.getvalue() == f"f.yaml:1: error: {long.message}\n"


def test_machines_get_fields_that_hold_something() -> None:
    (plain,) = findings_to_json(
        find(Area.OUTPUT, [Problem(message="m", source="haproxy.cfg", line=7)], is_warning=True)
    )

    assert plain == {"area": "output", "severity": "warning", "message": "m", "source": "haproxy.cfg", "line": 7}
