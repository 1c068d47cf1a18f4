"""A loop that the engine owns: one fragment for each object, in order, and none rendered without need."""

from typing import Any

import pytest

from haptic_trio.k8s.resource import ref_of
from haptic_trio.k8s.store import Store
from haptic_trio.templating.engine import Engine, RenderError, TemplateSyntaxProblems
from haptic_trio.templating.incremental.refresh import Touched, take_changes
from haptic_trio.templating.incremental.settling.decisions import settle_files
from haptic_trio.templating.values.subjects import RenderedText
from haptic_trio.templating.views import ResourcesView
from tests.k8s.objects import service


class Site:
    """One template over one store, rendered again and again."""

    def __init__(self, source: str, /, templates: dict[str, str] | None = None, **variables: Any) -> None:
        self.engine = Engine({"main": source, **(templates or {})})
        self.store = Store("services", ["metadata.namespace", "metadata.name"])
        self.tracker = self.store.track()
        self.run = self.engine.start_run()
        self.context = {"resources": ResourcesView({"services": self.store}), **variables}

    def put(self, name: str, **spec: Any) -> None:
        self.store.upsert(service(name, spec=spec))

    def remove(self, name: str) -> None:
        self.store.delete(ref_of(service(name)))

    def render(self) -> str:
        return self.rendered().text

    def rendered(self) -> RenderedText:
        touched = self.tracker.take()
        objects = {(ref.namespace, ref.name, ref.kind): self.store.by_ref(ref) for ref in touched}
        if touched:
            take_changes(self.run, {"services": Touched(set().union(*touched.values()), objects)})
        text = self.engine.render("main", self.context, self.run)
        return self.engine.render("main", self.context, self.run) if settle_files(self.run) else text

    def count(self) -> int:
        """Return how many fragments a render renders."""
        before = self.run.rendered
        self.render()
        return self.run.rendered - before


def problem(source: str) -> tuple[str, str]:
    """Return message and hint of the one thing that is wrong with *source*, when compiled or when rendered."""
    try:
        site = Site(source)
        site.put("a", n=1)
        site.render()
    except (TemplateSyntaxProblems, RenderError) as error:
        (found,) = error.problems
        assert found.line == 1
        return found.message, found.hint
    raise AssertionError("it is fine")


def test_objects_are_in_the_order_of_the_store_without_another_one() -> None:
    site = Site("{% each s in resources.services %}{{ s.metadata.name }}{{ s.spec.n }} {% endeach %}")
    for name, number in (("b", 2), ("a", 3), ("c", 1)):
        site.put(name, n=number)
    assert site.render() == "a3 b2 c1 "
    site.put("aa", n=0)
    site.remove("b")
    assert site.render() == "a3 aa0 c1 "


def test_clauses_name_sort_and_choose() -> None:
    site = Site(
        "{% each s in resources.services as 'chosen' by ['spec.n:desc', 'spec.absent'] if s.spec.n != 3 %}\n"
        "{{ s.metadata.name }}{{ s.spec.n }}\n{% endeach %}"
    )
    for name, number in (("a", 1), ("b", 2), ("c", 3), ("d", 2)):
        site.put(name, n=number)
    assert site.render().split() == ["b2", "d2", "a1"]
    origin = site.rendered().origin_of(1)
    assert origin is not None
    assert (origin.fragment, origin.subject.name, origin.template, origin.line) == ("chosen", "b", "main", 1)

    site.put("a", n=9)
    assert site.count() == 1
    site.put("b", n=3)
    assert site.render().split() == ["a9", "d2"]


def test_only_objects_that_changed_are_rendered_and_the_template_around_is_not() -> None:
    site = Site(
        "{{ fail('again') if once.x else '' }}{% each s in resources.services %}{{ s.spec.n }} {% endeach %}",
        once={"x": 0},
    )
    for name in "abcde":
        site.put(name, n=1)
    assert site.count() == 5
    site.put("c", n=2)
    # No dependency changed, so nothing renders again.
    site.context["once"]["x"] = 1
    assert site.render() == "1 1 2 1 1 "


def test_fragment_that_fails_is_tried_again_only_when_something_changed() -> None:
    site = Site(
        "{% each s in resources.services as 'f' %}{{ s.spec.n }}"
        "{{ resources.services.get('default', s.spec.of)[0].spec.n }} {% endeach %}"
    )
    site.put("a", n=1, of="b")
    assert site.render() == ""
    assert [str(rejection.subject) for rejection in site.run.rejections] == ["Service default/a"]
    assert site.count() == 0
    site.put("b", n=2, of="b")
    assert site.count() == 2
    assert site.render() == "12 22 "
    assert site.run.rejections == ()


def test_names_are_those_of_the_place_where_the_loop_stands() -> None:
    site = Site(
        "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}"
        "{% each s in resources.services %}{{ x }}{{ m() }}{{ s.spec.n }} {% endeach %}{% set x = 2 %}{{ x }}"
    )
    site.put("a", n=1)
    assert site.render() == "111 2"
    site.put("b", n=1)
    assert site.render() == "111 111 2"


def test_each_within_a_loop_sees_its_turn() -> None:
    site = Site(
        "{% for i in [1, 2] %}{% each s in resources.services %}{{ i }}{{ s.spec.n }} {% endeach %}{% endfor %}"
    )
    site.put("a", n=1)
    assert site.render() == "11 21 "
    site.put("a", n=2)
    assert site.render() == "12 22 "


def test_parts_stay_when_the_template_around_runs_and_they_see_the_same() -> None:
    site = Site(
        "{% set few = resources.services.list() | length < 3 %}{{ resources.services.list() | length }}: "
        "{% each s in resources.services %}{{ few }}{{ s.spec.n }} {% endeach %}"
    )
    site.put("a", n=1)
    site.render()
    site.put("b", n=1)
    assert site.count() == 1
    site.put("c", n=1)
    # What they see is another one now.
    assert site.count() == 3
    assert site.render() == "3: false1 false1 false1 "


def test_imported_macros_are_the_same_as_long_as_what_they_see_is() -> None:
    site = Site(
        "{% from 'm' import show with context %}{{ resources.services.list() | length }} "
        "{% each s in resources.services %}{{ show(s) }} {% endeach %}",
        {"m": "{% macro show(s) %}{{ v }}{{ s.spec.n }}{% endmacro %}"},
        v="x",
    )
    site.put("a", n=1)
    site.render()
    site.put("b", n=2)
    assert site.count() == 1
    assert site.render() == "2 x1 x2 "


def test_text_that_is_taken_hold_of_is_there_and_its_fragments_are_kept() -> None:
    source = (
        "{% set t %}{% each s in resources.services as 'f' %}{{ s.spec.n }}\n{% endeach %}{% endset %}"
        "{{ t | length }} {{ t }}"
    )
    for site in (Site(source), Site(source.replace("{% each", "{% include 'x' %}{% each"), {"x": ""})):
        site.put("a", n=1)
        site.put("b", n=2)
        site.render()
        site.put("b", n=3)
        assert site.count() == 1
        assert site.render().split()[1:] == ["1", "3"]


def test_include_whose_text_is_taken_hold_of_is_found_out() -> None:
    site = Site(
        "{% set t %}{% include 'x' %}{% endset %}{{ t | trim }}|{% include 'x' %}",
        {"x": "{% each s in resources.services as 'f' %}{{ s.spec.n }} {% endeach %}"},
    )
    site.put("a", n=1)
    assert site.render() == "1|1 "
    site.put("a", n=2)
    assert site.render() == "2|2 "


def test_nested_each_belongs_to_the_object_around_it() -> None:
    site = Site(
        "{% each s in resources.services as 'outer' %}{{ s.metadata.name }}:{% each o in resources.services as 'inner' "
        "if o.spec.n > s.spec.n %}{{ o.metadata.name }}{% endeach %} {% endeach %}"
    )
    site.put("a", n=1)
    site.put("b", n=2)
    assert site.render() == "a:b b: "
    site.put("c", n=3)
    assert site.render() == "a:bc b:c c: "


@pytest.mark.parametrize(
    ("source", "message", "hint"),
    [
        ("{% each %}{% endeach %}", "expected token 'name'", ""),
        ("{% each s resources.services %}{% endeach %}", "expected token 'in'", ""),
        ("{% each s in resources.services by 'a' by 'b' %}{% endeach %}", "'by' is given twice", ""),
        ("{% each s in resources.services %}", "Unexpected end of template", "{% each x in resources.NAME"),
        (
            "{% each s in resources.services.list() %}{% endeach %}",
            "each loops over all objects of a kind",
            "{% each x",
        ),
        ("{% each s in [1] %}{% endeach %}", "each loops over all objects of a kind", "{% each x"),
        ("{% each s in resources.services by 5 %}{% endeach %}", "each sorts by JSONPaths", "{% each x"),
        ("{% each s in resources.services by 'a:up' %}{% endeach %}", "unknown modifier ':up'", "use :desc"),
        ("{% each s in resources.services as 5 %}{% endeach %}", "the name of an each is not text", "{% each x"),
        (
            "{% each s in resources.services %}{{ loop.index }}{% endeach %}",
            "`loop` is not available in each",
            "number",
        ),
        ("{% each s in resources.services %}{% break %}{% endeach %}", "`loop` is not available in each", "number"),
        ("{% each s in resources.services if loop.first %}{% endeach %}", "`loop` is not available in each", "number"),
    ],
)
def test_mistakes_are_reported_with_line_and_hint(source: str, message: str, hint: str) -> None:
    found, found_hint = problem(source)
    assert message in found
    assert found_hint.startswith(hint)


def test_loops_within_have_their_own_loop() -> None:
    site = Site(
        "{% each s in resources.services %}{% for i in [1, 2] %}{{ loop.index }}{% break %}{% endfor %}{% endeach %}"
    )
    site.put("a")
    assert site.render() == "1"


@pytest.mark.parametrize(
    "state",
    [
        "{% set x = namespace(n=0) %}USE{{ x.n }}END",
        "{% set x = namespace(n=0) %}USE{% set x.n = 1 %}END",
        "{% set x = namespace(n=0) %}{% macro m() %}{% set x.n = x.n + 1 %}{{ x.n }}{% endmacro %}USE{{ m() }}END",
        "{% set x = cycler('a', 'b') %}USE{{ x.next() }}END",
        "{% set x = joiner(',') %}USE{{ x() }}END",
    ],
)
def test_state_that_objects_would_share_is_rejected(state: str) -> None:
    site = Site(state.replace("USE", "{% each s in resources.services %}").replace("END", "{% endeach %}"))
    site.put("a")
    site.render()
    (rejection,) = site.run.rejections
    assert "from outside of {% each %}" in rejection.problem.message
    assert "assign what you need to a variable" in rejection.problem.hint


def test_state_of_ones_own_is_fine() -> None:
    site = Site(
        "{% each s in resources.services %}{% set x = namespace(n=0) %}{% for i in [1, 2] %}{% set x.n = x.n + i %}"
        "{% endfor %}{{ x.n }}{% endeach %}"
    )
    site.put("a")
    assert site.render() == "3"


def test_imported_templates_have_no_parts_of_their_own() -> None:
    for inside in ("{% each s in resources.services %}{% endeach %}", "{{ files.file('a', 'b') }}"):
        site = Site("\n{% import 'm' as m %}{{ m.x }}", {"m": inside + "{% set x = 1 %}"})
        with pytest.raises(RenderError, match="import"):
            site.render()


def test_what_was_wrong_outside_may_be_right_the_next_time() -> None:
    site = Site(
        "{% if resources.services.get('default', 'bad') %}{{ fail('no') }}{% endif %}"
        "{% each s in resources.services %}{{ s.spec.n }} {% endeach %}"
    )
    site.put("a", n=1)
    assert site.render() == "1 "
    site.put("bad", n=2)
    for _ in range(2):
        with pytest.raises(RenderError, match="no"):
            site.render()
    site.put("c", n=3)
    site.remove("bad")
    assert site.render() == "1 3 "


def test_two_objects_with_one_file_are_as_if_rendered_in_order() -> None:
    site = Site("{% each s in resources.services %}{{ files.file('f', s.spec.text) }} {% endeach %}")
    site.put("b", text="b")
    site.put("c", text="b")
    assert site.render() == "general/f general/f "
    site.put("a", text="a")
    assert site.render() == "general/f "
    assert [str(rejection.subject) for rejection in site.run.rejections] == ["Service default/b", "Service default/c"]
    assert site.run.files["general/f"].text == "a"
    site.remove("a")
    assert site.render() == "general/f general/f "
    assert site.run.files["general/f"].text == "b"


def test_records_are_forgotten_with_their_objects() -> None:
    site = Site(
        "{% each s in resources.services %}{{ resources.services.get('default', s.spec.of) | length }}"
        "{{ files.file(s.metadata.name, 'x') }}{% fragment 'in' for s %}x{% endfragment %}{% endeach %}"
        "{% for s in resources.services.list() %}{% fragment 'plain' for s %}"
        "{{ resources.services.get(s.metadata.name) | length }}{% endfragment %}{% endfor %}"
    )
    site.render()
    sizes = [len(site.run.index), len(site.run.origins), len(site.run.produced), len(list(site.run.claims))]
    for number in range(50):
        site.put(f"s{number}", of=f"o{number}")
    site.render()
    assert len(site.run.index) > 100
    for number in range(50):
        site.put(f"s{number}", of=f"p{number}")
    site.render()
    for number in range(50):
        site.remove(f"s{number}")
    site.render()
    assert [len(site.run.index), len(site.run.origins), len(site.run.produced), len(list(site.run.claims))] == sizes
