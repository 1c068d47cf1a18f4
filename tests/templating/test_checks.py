"""Templates that were fine before are not parsed again, and are looked at again where they depend on others."""

from typing import Any

import pytest

from haptic_trio.errors import Problem
from haptic_trio.templating.engine import Engine, TemplateSyntaxProblems
from haptic_trio.templating.sandbox import TemplateEnvironment

CALLING = "{% from 'known-macros' import known_macro %}{{ known_macro(1) }}\n"
MACROS = "{% macro known_macro(x) %}{{ x | integer }}{% endmacro %}\n"
INCLUDING = (
    "{% include 'known-leaf' %}{% include 'known-absent' ignore missing %}{% include ['known-a', 'known-leaf'] %}\n"
)
LEAF = "leaf\n"


def problems_of(**templates: str) -> list[Problem]:
    try:
        Engine({name.replace("_", "-"): source for name, source in templates.items()})
    except TemplateSyntaxProblems as error:
        return list(error.problems)
    return []


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which templates have been parsed."""
    names: list[str] = []
    parse = TemplateEnvironment.parse

    def counting(self: TemplateEnvironment, source: str, name: Any = None, filename: Any = None) -> Any:
        names.append(name)
        return parse(self, source, name, filename)

    monkeypatch.setattr(TemplateEnvironment, "parse", counting)
    return names


def test_what_was_fine_is_not_parsed_again_and_what_is_new_is(parsed: list[str]) -> None:
    assert problems_of(known_calling=CALLING, known_macros=MACROS, known_including=INCLUDING, known_leaf=LEAF) == []
    parsed.clear()
    engine = Engine({"known-calling": CALLING, "known-macros": MACROS, "known-new": "{{ 1 + 41 }}\n"})
    assert parsed == ["known-new"]
    assert engine.render("known-calling", {}, engine.start_run()).text == "1\n"
    assert set(engine.names) == {"known-calling", "known-macros", "known-new"}


@pytest.mark.parametrize(
    ("templates", "message"),
    [
        ({"known_calling": CALLING, "known_macros": "{# nothing #}"}, None),
        ({"known_calling": CALLING}, "there is no template 'known-macros'"),
        ({"known_including": INCLUDING}, "there is no template 'known-leaf'"),
        ({"known_plain": "{{ known_plain_macro() }}\n"}, "there is no function or macro 'known_plain_macro'"),
    ],
)
def test_what_was_fine_is_rejected_where_what_it_needs_is_gone(templates: dict[str, str], message: str | None) -> None:
    needed = "{% macro known_plain_macro() %}{% endmacro %}\n"
    fine = {"known_macros": MACROS, "known_leaf": LEAF, "known_needed": needed}
    assert problems_of(**{**fine, **templates, "known_macros": MACROS}) == []

    found = problems_of(**templates)
    assert [problem.message for problem in found[:1]] == ([] if message is None else [message])
    # As if it had never been checked.
    fresh = problems_of(**{name: f"{source} " for name, source in templates.items()})
    assert [(problem.message, problem.line, problem.hint) for problem in found] == [
        (problem.message, problem.line, problem.hint) for problem in fresh
    ]


@pytest.mark.parametrize("source", [r'{{ "\ud800" }}', r'{% if x is eq "a\udfff" %}{% endif %}'])
def test_text_that_no_file_can_contain_is_a_problem_of_its_line(source: str) -> None:
    (problem,) = problems_of(known_halves=f"global\n{source}\n")

    assert (problem.source, problem.line) == ("known-halves", 2)
    assert problem.message == "a text contains half of a surrogate pair, which no file can contain"
    assert problems_of(known_whole=r'{{ "\U0001F600" }}') == []


def test_faults_are_reported_every_time() -> None:
    for _ in range(2):
        (problem,) = problems_of(known_wrong="{{ 1 | absent_filter }}\n")
        assert problem.message == "there is no filter 'absent_filter'"
