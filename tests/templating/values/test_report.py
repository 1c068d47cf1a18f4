"""Errors name their place, their object and the way out, and never a value."""

from contextlib import suppress

import pytest

from haptic_trio.templating.values.report import excerpt
from tests.templating.rendering import rejected, render_run, resource

SECRET = "correct horse battery staple"


@pytest.mark.parametrize(
    ("source", "message", "hint"),
    [
        ("{{ i.spec.tlss }}", "'i.spec' has no 'tlss'", "did you mean 'tls'?"),
        ("{{ i.spec['tlss'] }}", "'i.spec' has no 'tlss'", "did you mean 'tls'?"),
        ("{% set key = 'tlss' %}{{ i.spec[key] }}", "'i.spec' has no 'tlss'", "did you mean 'tls'?"),
        ("{{ i.spec['tl' ~ 'ss'] }}", "'i.spec' has no '…'", ""),
        ("{{ i.spec.tls.x }}", "'i.spec.tls' (a list) has no 'x'", ""),
        ("{{ i.none.x }}", "'i.none' is null and has no 'x'", ""),
        ("{{ i.spec.a.b }}", "'i.spec' has no 'a'", ""),
        ("{{ ii }}", "'ii' is not defined", "did you mean 'i'?"),
        ("{% for x in i.absent %}{% endfor %}", "'i' has no 'absent'", ""),
        ("{{ fail('no ' ~ 1) }}", "no 1", ""),
        ("{{ 1 // 0 }}", "division by zero", ""),
        ("{{ i | dig('spec.absent') }}", "there is nothing at 'spec.absent'", ""),
        ("{% macro m(a) %}{{ a }}{% endmacro %}{{ m() }}", "parameter 'a' was not provided", ""),
        ("{{ i | dig('spec[') }}", "JSONPath 'spec[', column 5: '[' is not closed (add the missing ])", ""),
        ("{% set f = 'wrod' %}{{ [i] | map(f) | list }}", "No filter named 'wrod'.", ""),
        ("{{ 'a' | word(x=1) }}", "a value has the wrong type: word() got an unexpected keyword argument 'x'", ""),
        (
            "{{ [1, 'a'] | sort }}",
            "a value has the wrong type: '<' not supported between instances of 'str' and 'int'",
            "",
        ),
        ("{% include 'mian' ~ '' %}", "there is no template 'mian'", "did you mean 'main'?"),
    ],
)
def test_message_and_hint(source: str, message: str, hint: str) -> None:
    problem = rejected(source, i={"spec": {"tls": []}, "none": None})
    assert problem.message == message
    assert problem.hint == hint


def test_the_innermost_template_is_named_with_three_lines() -> None:
    templates = {"m": "one\n{% macro show(x) %}\n  two\n  {{ x.absent }}\n  three\n{% endmacro %}\n"}
    problem = rejected("\n\n{% import 'm' as m %}\n{{ m.show({}) }}", templates)
    assert (problem.source, problem.line) == ("m", 4)
    assert problem.excerpt == "  3 |   two\n> 4 |   {{ x.absent }}\n  5 |   three"


def test_an_excerpt_ends_where_its_text_does() -> None:
    assert excerpt("a\nb\n", 2) == "  1 | a\n> 2 | b"
    assert excerpt("a", 1) == "> 1 | a"
    assert excerpt("a", 7) == excerpt("", 0) == ""


@pytest.mark.parametrize(
    "expression",
    [
        "s | b64decode", "s | pem", "s + 1", "s.absent", "s['absent']", "s | hostname", "s | map_key", "s | duration",
        "s | address", "s | url_path", "s | header_name", "s | to_int", "s | batch(0)", "[s][0]()", "s | float + s",
        "'%d' % s", "s | sum", "s | abs", "-s", "s | round", "files.cert('a', s)", "paths.map(s)", "[s] | sum",
        "{}[s * 9]", "s | tojson", "s | ident", "[1, s] | sort", "s < 1", "s | size", "s | glob_match(5)",
        "{}[s]", "{s: 1}[s ~ 'x'].a", "[1][s].a", "{} | attr(s)", "[{}] | map(attribute=s) | first",
        "s | address_list", "'10.0.0.7/0 ' | address_list", "1 | dig(s)", "1 | dig(s) | word", "[1] | group_by(s)",
        "[1] | sort_by(s)", "[1] | sort_by('a:' ~ s)", "[1] | map(s) | list", "[1] | select(s) | list",
        "'a' | ident(kind=s)", "'a' | hostname(**{s: 1})", "'%d' | format(**{s: 1})", "files.has_entries(s)",
        "('%(' ~ s ~ ')s') % {}", "[1].index(s)",
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [SECRET, "correct' horse\" battery' staple", "'correct\nhorse", "[correct]:{horse"])
def test_no_message_echoes_a_value(expression: str, value: str) -> None:
    problem = None
    with suppress(AssertionError):  # some of them do render
        problem = rejected("{{ (" + expression + ") }}", s=value)
    for word in SECRET.split():
        assert word not in str(problem)


@pytest.mark.parametrize(
    "source",
    [
        "{% include s %}",
        "{% include [s, s] %}",
        "{% import s as m %}",
        "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(**{s: 1}) }}",
    ],
)
def test_no_name_that_is_data_is_shown(source: str) -> None:
    for word in SECRET.split():
        assert word not in str(rejected(source, s=SECRET))


def test_the_object_in_hand_is_named() -> None:
    _, run = render_run("{% fragment 'f' for o %}{{ o.x }}{% endfragment %}", o=resource("web", "shop"))
    assert run.rejections[0].problem.subject == "Ingress shop/web"
