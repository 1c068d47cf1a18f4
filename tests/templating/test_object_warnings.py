"""A warning to the owner of an object is part of its fragment's output, and ends when it is no longer made."""

import pytest

from haptic_trio.errors import Problem
from haptic_trio.templating.incremental.outputs import Recall
from haptic_trio.templating.incremental.recorder import MOST_WARNINGS
from tests.templating.incremental.test_each import Site
from tests.templating.rendering import rejected, render_run, resource

SAYING = """
{% each s in resources.services as "s" %}
{% if s.spec.say is defined %}{% do warn(s, "Said", s.spec.say) %}{% endif %}
{% if s.spec.fail is defined %}{{ fail("no") }}{% endif %}
{% endeach %}
"""


def said(site: Site) -> list[str]:
    site.render()
    return [f"{one.subject.name}: {one.reason}: {one.message}" for one in site.run.warnings]


def test_a_warning_is_made_as_long_as_its_fragment_makes_it_and_gives_no_text() -> None:
    site = Site(SAYING)
    site.put("b", say="one")
    site.put("a", say="two")
    assert said(site) == ["a: Said: two", "b: Said: one"]
    assert site.render().strip() == ""
    kept = site.run.warnings
    site.put("c")
    site.render()
    assert site.run.warnings is kept

    site.put("a", say="three")
    assert said(site) == ["a: Said: three", "b: Said: one"]
    site.put("a")
    site.remove("b")
    assert said(site) == []


def test_of_a_fragment_that_fails_nothing_else_is_said() -> None:
    site = Site(SAYING)
    site.put("a", say="one", fail=True)

    assert said(site) == []
    assert len(site.run.rejections) == 1


NEEDED = """
{% each s in resources.services as "s" %}
{% do warn(x, "Rejected", "what " ~ s.metadata.name ~ " gives cannot be used", if_rejected="there is nothing") %}
{{ fail("no " ~ s.metadata.name) if s.spec.fail is defined else s.spec.text | default("fine") }}
{% endeach %}
"""
OTHER = "what a gives cannot be used"


def test_a_conditional_warning_is_sent_when_its_fragment_fails_with_the_consequence() -> None:
    site = Site(NEEDED, x=resource("other"))
    site.put("a")
    site.put("b")
    assert said(site) == []
    good = dict(site.run.produced.snapshot())

    site.put("a", fail=True)
    assert said(site) == [f"other: Rejected: {OTHER}: no a; there is nothing"]
    site.run.restart(Recall(good))
    assert said(site) == [f"other: Rejected: {OTHER}: no a; its last good version is served"]
    site.put("a")
    assert said(site) == []


def test_a_conditional_warning_is_sent_when_haproxy_rejects_the_fragment() -> None:
    site = Site(NEEDED, x=resource("other"))
    site.put("a", text="bad")
    site.render()
    [(key, output)] = site.run.produced.snapshot().items()

    site.run.restart(Recall(blocked={key: {output.digest(): Problem(message="unknown keyword")}}))

    assert said(site) == [f"other: Rejected: {OTHER}: unknown keyword; there is nothing"]


def test_a_conditional_warning_ignores_enclosing_and_sibling_fragments() -> None:
    source = (
        '{% fragment "outer" for x %}{% fragment "inner" for y %}'
        '{% do warn(x, "Rejected", "a", if_rejected="b") %}{% endfragment %}{{ fail("no") }}{% endfragment %}'
    )
    _, run = render_run(source, x=resource("x"), y=resource("y"))

    assert (len(run.rejections), run.warnings) == (1, ())


def test_a_warning_of_a_fragment_that_is_put_in_again_stays() -> None:
    site = Site(
        '{% for s in resources.services.list() %}{% fragment "f" for s %}{% do warn(s, "Said", s.spec.say) %}'
        "{% endfragment %}{% endfor %}"
    )
    site.put("a", say="one")
    site.render()
    before = site.run.rendered
    site.put("b", say="two")

    assert said(site) == ["a: Said: one", "b: Said: two"]
    assert site.run.rendered == before + 1


def test_the_same_from_several_places_is_said_once_and_outside_of_fragments_as_well() -> None:
    source = '{% do warn(x, "Said", "a") %}{% for i in range(3) %}{% do warn(x, "Said", "a") %}{% endfor %}'
    _, run = render_run(source, x=resource("web", version="7"))

    assert [str(one) for one in run.warnings] == ["Ingress default/web: Said: a"]
    assert run.warnings[0].subject.resource_version == ""


def test_number_and_length_of_warnings_are_limited() -> None:
    source = '{% for i in range(100) %}{% do warn(x, "Said", "a" ~ i) %}{% endfor %}'
    _, run = render_run(source, x=resource())
    assert len(run.warnings) == MOST_WARNINGS

    _, run = render_run('{% do warn(x, "A", text) %}', x=resource(), text="\n" + "x" * 5_000)
    assert len(run.warnings[0].message) < 500
    assert "\n" not in run.warnings[0].message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('warn("x", "A", "b")', "not an object"),
        ('warn(x, "not one word", "b")', "upper camel case"),
        ('warn(x, "A", 1)', "is not text"),
        ('warn(x, "A", "")', "is not text"),
        ('warn(x, "A", "b", if_rejected=true)', "if_rejected is not text"),
    ],
)
def test_what_is_not_a_warning_is_rejected(call: str, message: str) -> None:
    assert message in rejected("{% do " + call + " %}", x=resource()).message


def test_an_imported_template_cannot_warning_while_it_is_imported() -> None:
    templates = {"lib": '{% do warn(x, "A", "b") %}{% macro m() %}{% endmacro %}'}

    assert "imported" in rejected('{% from "lib" import m %}{{ m() }}', templates, x=resource()).message


def test_whether_there_is_an_object_is_asked_without_looking_at_it() -> None:
    site = Site(
        '{% fragment "f" for x %}{{ "yes" if resources.services.has("default", "a") else "no" }}{% endfragment %}',
        x=resource(),
    )
    assert site.render() == "no"
    site.put("b")
    assert site.count() == 0
    site.put("a")
    assert site.render() == "yes"
    site.remove("a")
    assert site.render() == "no"
