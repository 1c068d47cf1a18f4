"""Data never becomes syntax: every way from a value to the output is tried with every dangerous value."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.templating.engine import Engine, RenderError
from haptic_trio.templating.filters.emit import EmitError, trust
from haptic_trio.templating.values.text import Emitted
from tests.templating.rendering import rejected, render

HOSTILE = {
    "newline": "a\n  http-request deny",
    "carriage return": "a\rb",
    "quote": "a'b",
    "double quote": 'a"b',
    "log format": "%[env(X)]",
    "environment": "${HOME}",
    "dollar": "$HOME",
    "comment": "a#b",
    "NUL": "a\0b",
    "line separator": "a\u2028b",
    "next line": "a\u0085b",
    "space": "a b",
    "no-break space": "a\u00a0b",
    "backslash": "a\\",
    "semicolon": "a;b",
    "braces": "a{b}",
    "parentheses": "a(b)",
    "angle": "a<b",
    "pipe": "a||b",
    "list of addresses": "0.0.0.0:80,0.0.0.0:81",
    "inherited socket": "fd@3",
    "flag": "-f",
    "empty": "",
    "mark": "\ufde0\ufdd0a\ufdd1",
    "surrogate": "a\ud800",
}
HOSTILE_IN_ANY_CASE = {name: value for name, value in HOSTILE.items() if name not in ("flag", "empty")}

WAYS = {
    "plain": "{{ v }}",
    "item": "{{ d.v }}",
    "subscript": "{{ d['v'] }}",
    "macro argument": "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(v) }}",
    "macro keyword": "{% macro m(x='y') %}{{ x }}{% endmacro %}{{ m(x=v) }}",
    "varargs": "{% macro m() %}{{ varargs[0] }}{% endmacro %}{{ m(v) }}",
    "kwargs": "{% macro m() %}{{ kwargs.x }}{% endmacro %}{{ m(x=v) }}",
    "set": "{% set x = v %}{{ x }}",
    "set block": "{% set x %}{{ v }}{% endset %}{{ x }}",
    "set block with filter": "{% set x | indent(2) %}{{ v }}{% endset %}{{ x }}",
    "namespace": "{% set n = namespace(x=v) %}{{ n.x }}",
    "namespace assignment": "{% set n = namespace() %}{% set n.x = v %}{{ n.x }}",
    "with": "{% with x = v %}{{ x }}{% endwith %}",
    "filter block": "{% filter replace('Q', v) %}Q{% endfilter %}",
    "filter block inside": "{% filter indent(2) %}{{ v }}{% endfilter %}",
    "call block": "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ v }}{% endcall %}",
    "call argument": "{% macro m() %}{{ caller(v) }}{% endmacro %}{% call(x) m() %}{{ x }}{% endcall %}",
    "call of other": "{% call box.identity(v) %}{% endcall %}",
    "loop": "{% for x in [v] %}{{ x }}{% endfor %}",
    "loop characters": "{% for x in v %}{{ x }}{% endfor %}a b",
    "recursive loop": "{% for x in [[v]] recursive %}{{ loop(x) if x is not string else x }}{% endfor %}",
    "loop neighbour": "{% for x in [v, 'a'] %}{% if loop.previtem %}{{ loop.previtem }}{% endif %}{% endfor %}{{ v }}",
    "cycle": "{% for x in [1] %}{{ loop.cycle(v) }}{% endfor %}",
    "cycler": "{% set c = cycler(v) %}{{ c.next() }}",
    "joiner": "{% set j = joiner(v) %}{{ j() }}{{ j() }}",
    "include": "{% include 'inner' %}",
    "import": "{% import 'macros' as m %}{{ m.show(v) }}",
    "from import": "{% from 'macros' import show %}{{ show(v) }}",
    "block": "{% extends 'base' %}{% block b %}{{ v }}{% endblock %}",
    "super": "{% extends 'shown' %}{% block b %}{{ super() }}{% endblock %}",
    "self": "{% block b %}{% if v2 is defined %}{{ v }}{% endif %}{% endblock %}{% set v2 = 1 %}{{ v }}{{ self.b() }}",
    "concatenation": "{{ 'x' ~ v }}",
    "concatenation at end": "{{ v ~ 'x' }}",
    "nested concatenation": "{{ 'x' ~ ('y' ~ v) }}",
    "addition": "{{ 'x' + v }}",
    "multiplication": "{{ v * 2 }}",
    "percent": "{{ '%s' % v }}",
    "percent tuple": "{{ '%s%s' % (v, 1) }}",
    "format filter": "{{ '%s' | format(v) }}",
    "format filter named": "{{ '%(x)s' | format(x=v) }}",
    "join": "{{ ['a', v] | join }}",
    "join separator": "{{ ['a', 'b'] | join(v) }}",
    "join attribute": "{{ [d] | join(attribute='v') }}",
    "join method": "{{ ','.join([v]) }}",
    "join by method of value": "{{ v.join(['a', 'b']) }}",
    "replace": "{{ 'aQb' | replace('Q', v) }}",
    "replace method": "{{ 'aQb'.replace('Q', v) }}",
    "replace nothing": "{{ v | replace('not there', '') }}",
    "default": "{{ none | default(v) }}",
    "default kept": "{{ v | default('x') }}",
    "inline if": "{{ v if true }}",
    "or": "{{ none or v }}",
    "and": "{{ 1 and v }}",
    "first": "{{ [v] | first }}",
    "last": "{{ [v] | last }}",
    "min": "{{ [v] | min }}",
    "max": "{{ [v] | max }}",
    "sort": "{{ ([v] | sort)[0] }}",
    "unique": "{{ [v, v] | unique | first }}",
    "list": "{{ ([v] | list)[0] }}",
    "map": "{{ [v] | map('string') | first }}",
    "map attribute": "{{ [d] | map(attribute='v') | first }}",
    "select": "{{ [v] | select | first }}",
    "selectattr": "{{ ([d] | selectattr('v') | first).v }}",
    "batch": "{{ ([v] | batch(1) | list)[0][0] }}",
    "batch fill": "{{ ([1] | batch(2, v) | list)[0][1] }}",
    "slice": "{{ ([v] | slice(1) | list)[0][0] }}",
    "groupby": "{{ ([d] | groupby('v'))[0].grouper }}",
    "group_by": "{{ ([d] | group_by('v'))[0].key }}",
    "sort_by": "{{ ([d] | sort_by(['v']))[0].v }}",
    "dictsort": "{{ (d | dictsort)[0][1] }}",
    "items": "{% for k, x in d.items() %}{{ x }}{% endfor %}",
    "items filter": "{% for k, x in d | items %}{{ x }}{% endfor %}",
    "values": "{{ (d.values() | list)[0] }}",
    "keys": "{% for k in {v: 1} %}{{ k }}{% endfor %}",
    "get": "{{ d.get('v') }}",
    "dig": "{{ d | dig('v') }}",
    "dig default": "{{ d | dig('absent', v) }}",
    "attr": "{{ d | attr('v') }}",
    "string": "{{ v | string }}",
    "trim": "{{ ('x' ~ v ~ 'x') | trim }}",
    "indent": "{{ ('x' ~ v) | indent(2) }}",
    "lower": "{{ ('x' ~ v) | lower }}",
    "upper": "{{ ('x' ~ v) | upper }}",
    "title": "{{ ('x' ~ v) | title }}",
    "capitalize": "{{ ('x' ~ v) | capitalize }}",
    "reverse": "{{ ('x' ~ v ~ 'x') | reverse }}",
    "truncate": "{{ v | truncate(500) }}",
    "strip_prefix": "{{ v | strip_prefix('zz') }}",
    "method": "{{ ('x' ~ v).upper() }}",
    "slicing": "{{ ('x' ~ v)[0:] }}",
    "dict": "{{ dict(x=v).x }}",
    "b64decode": "{{ encoded | b64decode }}",
    "json": "{{ v | tojson }}",
    "trusted dict": "{{ {'a': v}.a }}",
    "tuple": "{% set a, b = 'x', v %}{{ b }}",
    "do": "{% set n = namespace(x='') %}{% do n %}{% set n.x = n.x ~ v %}{{ n.x }}",
}  # fmt: skip
INNER = {
    "inner": "{{ v }}",
    "macros": "{% macro show(x) %}{{ x }}{% endmacro %}",
    "base": "{% block b %}{% endblock %}",
    "shown": "{% block b %}{{ v }}{% endblock %}",
}


@pytest.mark.parametrize("way", WAYS)
def test_no_way_leads_a_hostile_value_into_the_output(way: str) -> None:
    engine = Engine({"main": WAYS[way], **INNER})
    for kind, value in HOSTILE_IN_ANY_CASE.items():
        encoded = base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()
        context = {"v": value, "d": {"v": value}, "encoded": encoded, "box": {"identity": lambda item, **_: item}}
        with pytest.raises(RenderError) as caught:
            engine.render("main", context, engine.start_run())
        (problem,) = caught.value.problems
        assert value not in str(problem), kind
        assert problem.source in ("main", *INNER), kind


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_bare_value_that_could_mean_something_is_rejected(kind: str) -> None:
    assert "`v`" in rejected("server {{ v }}", v=HOSTILE[kind]).message


@given(value=st.text(max_size=20))
def test_whatever_passes_bare_is_one_unquoted_word_of_itself(value: str) -> None:
    try:
        text = render("{{ v }}", v=value)
    except Exception:  # noqa: BLE001  either rejected, or unchanged
        return
    assert text == value
    assert value.isascii()
    assert not set(value) & set(" \t\r\n\0\"'\\#$%{}()<>&|!;,`^?[]")
    assert value
    assert value[0] != "-"


@pytest.mark.parametrize("value", ["web", "10.0.0.1:80", "::1", "a_b-c.d", "/path/to", "a+b=", "*", "30s"])
def test_plain_words_pass(value: str) -> None:
    assert render("{{ v }}", v=value) == value


@pytest.mark.parametrize(
    ("value", "text"), [(1, "1"), (-5, "-5"), (0, "0"), (1.5, "1.5"), (True, "true"), (False, "false")]
)
def test_numbers_and_booleans_are_literals(value: float, text: str) -> None:
    assert render("{{ v }}", v=value) == text


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), [], ["a"], {}, {"a": 1}, b"x", object()])
def test_what_is_not_text_is_rejected(value: object) -> None:
    assert "`v`" in rejected("{{ v }}", v=value).message


def test_text_of_the_template_is_trusted() -> None:
    source = "a 'b' # %[c]\n{{ ' x \"y\" ' }}{% set z = '%[src] ' %}{{ z }}{{ [z, '$'] | join(' ') }}{{ 'a ' ~ z ~ 1 }}"
    assert render(source) == "a 'b' # %[c]\n x \"y\" %[src] %[src]  $a %[src] 1"


def test_trusted_parts_stay_trusted_where_they_are_only_put_together() -> None:
    source = (
        "{% set a = 'x y' %}{% set b %}{{ v | word }} z{% endset %}"
        "{{ a ~ ' ' ~ b }}|{{ [a, b] | join(', ') }}|{{ (' ' ~ a ~ ' ') | trim }}|{{ none | default(a) }}|"
        "{{ b | indent(2, true) }}|{{ a + b }}|{{ a | first if false else a }}"
    )
    assert render(source, v="q r") == "x y 'q r' z|x y, 'q r' z|x y|x y|  'q r' z|x y'q r' z|x y"


@pytest.mark.parametrize(
    "change",
    [
        "upper",
        "lower",
        "title",
        "capitalize",
        "reverse",
        "replace('a', 'b')",
        "truncate(6, true, '...', 0)",
        "strip_prefix('a')",
    ],
)
def test_trusted_text_that_is_changed_is_data_again(change: str) -> None:
    rejected("{{ ('a b c d e' | " + change + ") }}")


def test_parts_of_trusted_text_are_data_again() -> None:
    for source in ("{{ 'a b'[0:] }}", "{{ 'a b'[1] }}", "{{ 'a b'.strip() }}", "{{ 'a #b'.split('a')[1] }}"):
        rejected(source)


def test_folding_does_not_make_an_operation_a_literal() -> None:
    rejected("{{ 'a b' | upper }}")
    rejected("{{ '%s b' % 'a' }}")
    rejected("{% if 'a b' | upper == 'A B' %}{{ ('a b' | upper) }}{% endif %}")


def test_an_inline_if_without_else_gives_nothing() -> None:
    assert render("a{{ ' ssl' if tls }}b{{ 'x' ~ ('y' if tls) }}", tls=False) == "abx"


def test_values_of_the_administrator_are_trusted_in_depth() -> None:
    assert (
        render("{{ x.lines[0] }}{% for k in x %}{{ k }}{% endfor %}", x=trust({"lines": ["a b #c"]})) == "a b #clines"
    )
    assert trust({"n": 1, "none": None}) == {"n": 1, "none": None}


def test_the_administrator_cannot_forge_marks() -> None:
    with pytest.raises(EmitError):
        trust({"x": "a\ufdd0"})


def test_no_message_holds_the_value() -> None:
    secret = "hunter2 with spaces; and \x01 more"
    for source in ("{{ v }}", "{{ v | name }}", "{{ v | port }}", "{{ v | int + v }}", "{{ v.nothing }}"):
        problem = rejected(source, v=secret)
        assert "hunter2" not in str(problem)
        assert "hunter2" not in problem.excerpt


def test_the_message_names_expression_character_and_way_out() -> None:
    problem = rejected("x\ny {{ i.spec['host'].name }}", i={"spec": {"host": {"name": "a\nb#"}}})
    assert problem.message == "`i.spec['host'].name` contains a newline at character 2, '#' at character 4"
    assert (problem.line, problem.source) == (2, "main")
    assert "| word" in problem.hint


def test_results_of_string_methods_are_plain_even_when_nothing_changed() -> None:
    text = Emitted("a")
    for result in (text.strip(), text.replace("z", ""), text + "", "" + text, text[:], str(text)):
        assert type(result) is str
