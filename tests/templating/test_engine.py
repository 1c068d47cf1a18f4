"""Compiling reports everything that is wrong at once; rendering finds templates, snippets and variables."""

import threading
from collections.abc import Sequence
from contextlib import suppress

import pytest

from haptic_trio.errors import Problem
from haptic_trio.templating.engine import Engine, RenderError, TemplateSyntaxProblems
from haptic_trio.templating.values.paths import Paths
from haptic_trio.templating.views import ResourcesView
from tests.templating.rendering import rejected, render


def faults(templates: dict[str, str], **snippets: int) -> list[Problem]:
    """Return what is wrong with *templates*."""
    with pytest.raises(TemplateSyntaxProblems) as caught:
        Engine(templates, snippets=snippets)
    return list(caught.value.problems)


def test_all_problems_of_all_templates_are_reported() -> None:
    found = faults(
        {
            "a": "x\n{% if %}",
            "b": "{{ x | wrod }}\n{{ fial('x') }}{% if x is defind %}{% endif %}\n{% include 'backendz' %}",
            "backends": "{% fragment 'x' %}{% endfragment %}",
        }
    )
    places = [(problem.source, problem.line) for problem in found]
    assert places == [("a", 2), ("backends", 1), ("b", 1), ("b", 2), ("b", 2), ("b", 3)] or sorted(places) == [
        ("a", 2), ("b", 1), ("b", 2), ("b", 2), ("b", 3), ("backends", 1),
    ]  # fmt: skip
    hints = {problem.message: problem.hint for problem in found}
    assert hints["there is no filter 'wrod'"] == "did you mean 'word'?"
    assert hints["there is no function or macro 'fial'"] == "did you mean 'fail'?"
    assert hints["there is no test 'defind'"] == "did you mean 'defined'?"
    assert hints["there is no template 'backendz'"] == "did you mean 'backends'?"
    assert all(">" in problem.excerpt for problem in found)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% import 'x' as m %}", "there is no template 'x'"),
        ("{% from 'x' import m %}", "there is no template 'x'"),
        ("{% extends 'x' %}", "there is no template 'x'"),
        ("{% include ['x', 'y'] %}", "there is no template 'x'"),
        ("{{ [] | map('wrod') }}", "there is no filter 'wrod'"),
        ("{{ [] | select('wrod') }}", "there is no test 'wrod'"),
        ("{{ [] | rejectattr('a', 'wrod') }}", "there is no test 'wrod'"),
        ("{{ x | safe }}", "there is no filter 'safe'"),
        ("{% if false %}{{ x | nothing }}{% endif %}", "there is no filter 'nothing'"),
        ("{% filter nothing %}{% endfilter %}", "there is no filter 'nothing'"),
        ("{% autoescape true %}{{ x }}{% endautoescape %}", "autoescape is not supported"),
        ("{% include 'main' without context %}", "an include without context is not supported"),
        ("a\ufdd0b", "the template contains Unicode noncharacters"),
        ("{% set x | replace('a', v) %}{% endset %}", "the filter of a set block has a variable as an argument"),
        ("{% for a in b %}" * 30 + "{% endfor %}" * 30, "the template nests too deeply"),
        ("{% block a %}{% endblock %}{% block a %}{% endblock %}", "block 'a' defined twice"),
    ],
)
def test_rejected_before_any_render(source: str, message: str) -> None:
    (problem,) = faults({"main": source})
    assert problem.message == message
    assert problem.line == 1


def test_functions_that_other_templates_define_are_known() -> None:
    render("{% macro m() %}1{% endmacro %}{% include 'other' %}", {"other": "{{ m() }}"})


def test_optional_includes_may_be_absent() -> None:
    assert render("{% include 'absent' ignore missing %}{% include ['absent', 'there'] %}", {"there": "x"}) == "x"


def test_a_snippet_needs_its_template() -> None:
    (problem,) = faults({"backends-a": ""}, **{"backends-b": 1})
    assert problem.message == "the snippet 'backends-b' has no template"


def test_snippets_are_included_by_priority_then_name() -> None:
    templates = {
        "main": "{% for s in snippets('b-*') %}{% include s %}{% endfor %} {% include_snippets 'b-*' %}"
        "{% include_snippets 'none-*' %}",
        **{f"b-{name}": name for name in "xyz"},
        "b-hidden": "hidden",
    }
    engine = Engine(templates, snippets={"b-z": 100, "b-y": 500, "b-x": 500})
    assert engine.render("main", {}, engine.start_run()).text == "zxy zxy"


def test_included_snippets_see_the_variables_of_their_place() -> None:
    engine = Engine(
        {"main": "{% for o in [1, 2] %}{% include_snippets 'b-*' %}{% endfor %}", "b-x": "{{ o }}{{ v }} "},
        snippets={"b-x": 1},
    )
    assert engine.render("main", {"v": "w"}, engine.start_run()).text == "1w 2w "


def test_an_unknown_template_is_an_error_with_the_nearest() -> None:
    engine = Engine({"haproxy.cfg": "x"})
    with pytest.raises(RenderError, match=r"did you mean 'haproxy\.cfg'"):
        engine.render("haproxy.cgf", {}, engine.start_run())


def test_an_engine_has_its_own_templates_whatever_was_compiled_before() -> None:
    main = "{% include_snippets 'b-*' %}{{ v }}"
    engines = [Engine({"main": main, "b-x": text}, snippets={"b-x": 1}) for text in ("one ", "two ", "one ")]
    rendered = [engine.render("main", {"v": number}, engine.start_run()).text for number, engine in enumerate(engines)]
    assert rendered == ["one 0", "two 1", "one 2"]


def test_the_last_newline_stays_and_tags_leave_no_lines() -> None:
    assert render("a\n    {% if true %}\nb\n    {% endif %}\n") == "a\nb\n"


def test_items_come_before_methods() -> None:
    spec = {"items": "i", "keys": "k", "values": "v", "get": "g"}
    assert render("{{ s.items }}{{ s.keys }}{{ s.values }}{{ s.get }}", s=spec) == "ikvg"
    assert render("{% for k, v in s.items() %}{{ k }}{{ v }}{% endfor %}{{ s.get('b', 'd') }}", s={"a": 1}) == "a1d"


def test_default_replaces_null_and_absent() -> None:
    source = "{{ s.x | default('d') }}{{ s.y | default('d') }}{{ z | default('d') }}{{ s.e | default('d', true) }}"
    assert render(source, s={"x": None, "e": ""}) == "dddd"
    assert (
        render("{% for t in s.tls | default([]) %}{% endfor %}{{ s.n | default(5) }}", s={"tls": None, "n": 0}) == "0"
    )


def test_imports_see_the_variables_of_each_render() -> None:
    engine = Engine(
        {
            "main": "{% import 'm' as m %}{{ m.show() }}{{ m.x }}",
            "m": "{% macro show() %}{{ v }}{% endmacro %}{% set x = v %}",
        }
    )
    for value in ("a", "b"):
        assert engine.render("main", {"v": value}, engine.start_run()).text == value * 2


def test_one_engine_renders_in_several_threads_at_once() -> None:
    engine = Engine(
        {
            "main": "{% import 'm' as m %}{% for i in range(300) %}{{ m.show() }}{% endfor %}",
            "m": "{% macro show() %}{{ v }}{% endmacro %}",
        }
    )
    results: dict[str, set[str]] = {}

    def work(value: str) -> None:
        results[value] = {engine.render("main", {"v": value}, engine.start_run()).text for _ in range(20)}

    threads = [threading.Thread(target=work, args=(value,)) for value in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {value: {value * 300} for value in "abcd"}


class FakeLookup:
    """A store of three."""

    def list(self) -> Sequence[str]:
        """Return all."""
        return ["a", "b", "c"]

    def get(self, *keys: str) -> Sequence[str]:
        """Return the keys."""
        return [*keys]

    def get_single(self, *keys: str) -> str | None:
        """Return the last key."""
        return keys[-1] if keys else None


def test_resources_are_looked_up_by_name() -> None:
    view = ResourcesView({"services": FakeLookup(), "items": FakeLookup()})
    source = (
        "{{ resources.services.list() | join }} {{ resources.services.get('n', 1) | join('/') }} "
        "{{ resources['services'].get_single('x') }} {{ resources.items.get_single('y') }} "
        "{{ resources.services.get_single() is none }} {{ 'pods' in resources }}"
    )
    assert render(source, resources=view) == "abc n/1 x y true false"


def test_an_unknown_resource_is_an_error_with_the_nearest() -> None:
    problem = rejected("{{ resources.servces.list() }}", resources=ResourcesView({"services": FakeLookup()}))
    assert problem.message == "'resources' has no 'servces'"
    assert problem.hint == "did you mean 'services'?"


@pytest.mark.parametrize(
    "source",
    [
        "{{ x.__class__ }}", "{{ x['__class__'] }}", "{{ x | attr('__class__') }}", "{{ ''.__class__.__mro__ }}",
        "{{ fail.__globals__ }}", "{{ files.map.__func__ }}", "{{ resources._views }}", "{{ m._func }}",
        "{{ self._TemplateReference__context }}", "{{ x.pop('a') }}", "{{ x.update(a=1) }}", "{{ [].append(1) }}",
        "{{ x.clear() }}", "{{ [1].sort() }}", "{{ 'a'.encode() }}", "{{ ''.format }}", "{{ ''.format_map }}",
        "{{ [x] | map(attribute='__class__') | first }}", "{{ dict.mro() }}", "{{ lipsum() }}", "{{ loop }}",
        "{{ range.__init__ }}", "{{ 5 .to_bytes(1) }}", "{{ ''.join.func }}", "{{ x.a.func }}",
    ],
)  # fmt: skip
def test_nothing_beyond_the_data_is_within_reach(source: str) -> None:
    with suppress(TemplateSyntaxProblems):
        rejected("{% macro m() %}{% endmacro %}" + source, x={"a": 1}, resources=ResourcesView({}))


def test_paths_and_files() -> None:
    engine = Engine(
        {
            "main": "{{ paths.map('host.map') }} {{ paths.cert('a.pem') }} {{ paths.crt_list('l') }} "
            "{{ paths.file('e') }} "
            "{{ files.map('m', 'a b\\n') }} {{ files.map('m', 'a b\\n') }} {{ files.file('e.http', v) }}"
        }
    )
    run = engine.start_run(paths=Paths(maps_dir="M", ssl_certs_dir="S", general_dir="G"))
    assert engine.render("main", {"v": "any 'text'\n#"}, run).text == "M/host.map S/a.pem S/l G/e M/m M/m G/e.http"
    assert {path: file.text for path, file in run.files.items()} == {"M/m": "a b\n", "G/e.http": "any 'text'\n#"}


@pytest.mark.parametrize("name", ["", "a/b", "..", ".a", "a b", "a\n", "a" * 201, "é", "-a", None, 5])
def test_a_file_needs_a_safe_name(name: object) -> None:
    for call in ("paths.map(n)", "paths.cert(n)", "files.file(n, 'x')"):
        rejected("{{ " + call + " }}", n=name)


@pytest.mark.parametrize("kind", ["map", "cert", "crt_list"])
def test_files_that_haproxy_reads_take_trusted_text_only(kind: str) -> None:
    assert "is untrusted text" in rejected("{{ files." + kind + "('x', v) }}", v="harmless").message
    assert render("{% set c %}{{ v }}{% endset %}{{ files.KIND('x', c) }}".replace("KIND", kind), v="harmless")


def test_one_name_has_one_content() -> None:
    assert "twice" in rejected("{{ files.map('x', 'a') }}{{ files.map('x', 'b') }}").message
    assert "twice" in rejected("{{ files.cert('x', 'a') }}{{ files.crt_list('x', 'a') }}").message
