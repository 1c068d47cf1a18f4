"""Filters on data."""

import pytest

from tests.templating.rendering import rejected, render

ITEMS = [
    {"n": "b", "w": 2, "l": [1], "h": {"v": "x"}},
    {"n": "a", "w": 10, "l": [1, 2, 3]},
    {"n": "c", "w": 2, "l": [], "h": {"v": "y"}},
    {"n": "d"},
]


@pytest.mark.parametrize(
    ("criteria", "order"),
    [
        ("['n']", "abcd"),
        ("['n:desc']", "dcba"),
        ("'w'", "bcad"),
        ("['w:desc']", "abcd"),
        ("['w', 'n:desc']", "cbad"),
        ("['h:exists', 'n']", "bcad"),
        ("['h:exists:desc', 'n']", "bcad"),
        ("['l | length:desc', 'n']", "abcd"),
        ("['l | length', 'n:desc']", "dcba"),
        ("[]", "bacd"),
        ("['h.v:desc', 'n']", "cbad"),
    ],
)
def test_sort_by(criteria: str, order: str) -> None:
    assert render("{% for i in x | sort_by(" + criteria + ") %}{{ i.n }}{% endfor %}", x=ITEMS) == order


@pytest.mark.parametrize("criteria", ["n:up", "[", ""])
def test_sort_by_rejects_what_it_does_not_know(criteria: str) -> None:
    rejected("{{ x | sort_by(c) }}", x=ITEMS, c=criteria)


def test_group_by_keeps_the_order_of_appearance() -> None:
    source = (
        "{% for key, members in x | group_by('w') %}{{ key | default('-') }}"
        "{% for m in members %}{{ m.n }}{% endfor %} {% endfor %}"
    )
    assert render(source, x=ITEMS) == "2bc 10a -d "


def test_dig() -> None:
    spec = {"tls": [{"name": "s"}, {"name": None}], "a": {"b.c/d": 1}}
    source = (
        "{{ s | dig('tls[0].name') }}{{ s | dig('tls[1].name', 'd') }}{{ s | dig('x.y', 'd') }}"
        "{{ s | dig(\"a['b.c/d']\") }}"
    )
    assert render(source, s=spec) == "sdd1"
    assert render("{{ none | dig('x', 'd') }}{{ y | dig('x', 'd') }}{{ {} | dig('x', none) is none }}") == "ddtrue"
    assert render("{{ s | dig('x') | default('d') }}", s=spec) == "d"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("'backend-a' | glob_match('backend-*')", "true"),
        ("'Backend-a' | glob_match('backend-*')", "false"),
        ("['a-1', 'b-1', 'a-2'] | glob_match('a-*') | join(',')", "a-1,a-2"),
        ("'a=1,b=2' | split(',') | length", "2"),
        ("'sha256:x' | strip_prefix('sha256:')", "x"),
        ("'a.pem' | strip_suffix('.pem')", "a"),
        ("' 42 ' | to_int + 1", "43"),
        ("'x' | to_int(7)", "7"),
        ("'Ab' | lower", "ab"),
        ("'aB' | upper", "AB"),
        ("[3, 1, 2] | sort | join('-')", "1-2-3"),
        ("[{'a': 1}, {'a': 2}] | sum(attribute='a')", "3"),
        ("[{'a': {'b': 'x'}}] | join(attribute='a.b')", "x"),
        ("[1.26 | round(1), 1.2 | round(0, 'ceil')] | join(':')", "1.3:2.0"),
        ("[{'n': 'a', 'e': true}, {'n': 'b'}] | selectattr('e', 'defined') | map(attribute='n') | join", "a"),
        ("'x' | hash(8)", "2d711642"),
        ("'a b' | urlencode | replace('%', '')", "a20b"),
        ("'%s-%d' | format('a', 5)", "a-5"),
        ("5 | string ~ 1", "51"),
        ("['b', 'a', 'b'] | unique | join", "ba"),
        ("{'b': 1, 'a': 2} | dictsort | map('first') | join", "ab"),
    ],
)
def test_filter(source: str, text: str) -> None:
    assert render("{{ " + source + " }}") == text


@pytest.mark.parametrize(
    "name", ["lower", "upper", "string", "trim", "split", "replace('a', 'b')", "b64encode", "title"]
)
def test_null_never_becomes_the_word_none(name: str) -> None:
    rejected("{{ (none | " + name + ") ~ '' }}")
    rejected("{{ 'a' ~ none }}")
    rejected("{{ [none] | join }}")


def test_indent_leaves_blank_lines_alone() -> None:
    assert render("{{ 'a\\n\\nb\\n' | indent(2) }}|{{ 'a\\nb' | indent('\\t', first=true) }}") == "a\n\n  b\n|\ta\n\tb"


def test_debug_shows_data_as_comments() -> None:
    assert render("{{ v | debug('v') }}", v={"a": "x\ny"}) == '# "v"\n# {\n#   "a": "x\\ny"\n# }\n'
