"""A render that begins with the records of another configuration equals a render that begins with nothing."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from haptic_trio.config.model import Config
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.render import Renderer
from tests.pipeline.test_incremental import MAPS, PARTS, SNIPPETS, WATCHED, IncrementalMachine
from tests.support.components.pipeline import config_of

# Each stands for a way in which output can depend on settings and on other templates.
MORE_PARTS = (
    "{{ shade }} {{ size }}\n",
    "{% each s in resources.services as 'shade' %}{{ s.metadata.name }} {{ shade }}\n{% endeach %}",
    "{% set own = shade ~ size %}{% each s in resources.services as 'own' %}{{ own }} {{ s.spec.n }}\n{% endeach %}",
    "{% each s in resources.services as 'inside' %}{% include 'painted' %}\n{% endeach %}",
    "{% each s in resources.services as 'every' %}{% include_snippets 'painted*' %};\n{% endeach %}",
    "{% each s in resources.services as 'computed' %}{% include_snippets size ~ '*' %};\n{% endeach %}",
    (
        "{% macro paint(s) %}{{ s.spec.n }} {{ shade }}{% endmacro %}"
        "{% each s in resources.services as 'macro' %}{{ paint(s) }}\n{% endeach %}"
    ),
    (
        "{% import 'brush' as brush %}{% each s in resources.services as 'brush' %}{{ brush.stroke(s) }}\n{% endeach %}"
        "{% for s in resources.services.list() %}{% fragment 'stroke' for s %}{{ brush.stroke(s) }}{% endfragment %}"
        "{% endfor %}\n"
    ),
    "{% each s in resources.services as 'late' %}{% from 'brush' import stroke %}{{ stroke(s) }}\n{% endeach %}",
    (
        "{% for s in resources.services.list() %}{% fragment 'tone' for s %}{{ shade }} {{ s.spec.n }}\n"
        "{% endfragment %}{% fragment 'held' for s %}{% include 'painted' %}{% endfragment %}{% endfor %}"
    ),
    "{% include 'page' %}\n",
    "{% include ['optional', 'painted'] %}\n{% include 'optional' ignore missing %}\n",
    (
        "{% each s in resources.services as 'choice' %}{% include ['optional', 'painted'] %}"
        "{% include 'optional' ignore missing %}\n{% endeach %}"
    ),
)
FRAME = (
    "{% each s in resources.services as 'framed' %}{% block title %}frame{% endblock %} {{ s.spec.n }}\n{% endeach %}"
)
PAGES = (
    "{% extends 'frame' %}{% block title %}{{ s.metadata.name }}{% endblock %}",
    "{% extends 'frame' %}{% block title %}page{% endblock %}",
    "{% extends 'frame' %}",
)
PAINTED = ("plain", "{{ shade }}", "{{ size }}{{ s.spec.n if s is defined }}", "{% include 'leaf' ignore missing %}")
BRUSHES = (
    "{% set known = size %}{% macro stroke(s) %}{{ s.spec.n }} {{ known }}{% endmacro %}",
    "{% macro tip() %}{{ shade }}{% endmacro %}{% macro stroke(s) %}{{ s.spec.n }} {{ tip() }}{% endmacro %}",
    "{% macro stroke(s) %}{% include 'painted' %}{% endmacro %}",
    "{% macro stroke(s) %}{% include_snippets 'painted*' %}{% endmacro %}",
)
LEAVES = (SNIPPETS["leaf"]["template"], "{{ s.spec.ref }} {{ shade }}")


CHOICES: dict[str, tuple[Any, ...]] = {
    "leaf": LEAVES,
    "page": PAGES,
    "painted": PAINTED,
    "brush": BRUSHES,
    "painted-more": (None, "more", "{{ shade }}"),
    "optional": (None, "optional", "{{ size }}"),
    "shade": ("red", "blue"),
    "size": ("snip", "painted"),
    "priority": (1, 1000),
    "ignored": ([], ["spec.unused"]),
}
"""Texts of snippets, None for none, and settings."""
ALL_FIELDS = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in CHOICES.items()})
ONE_FIELD = st.sampled_from(sorted(CHOICES)).flatmap(
    lambda name: st.tuples(st.just(name), st.sampled_from(CHOICES[name]))
)
PART = st.one_of(st.sampled_from(MORE_PARTS), st.sampled_from(MORE_PARTS), st.sampled_from(PARTS))
MAINS = st.lists(PART, min_size=1, max_size=5)
MAP_TEXTS = st.lists(st.sampled_from(MAPS), min_size=2, max_size=2)


def fields_of(chosen: dict[str, Any]) -> dict[str, Any]:
    """Return the templates and settings of a configuration, without its outputs."""
    snippets: dict[str, Any] = {**SNIPPETS, "frame": {"template": FRAME}}
    for name in ("leaf", "page", "painted", "brush", "painted-more", "optional"):
        if chosen[name] is not None:
            snippets[name] = {"template": chosen[name]}
    snippets["painted"]["priority"] = chosen["priority"]
    watched: dict[str, Any] = dict(WATCHED)
    watched["byRef"] = {**watched["byRef"], "ignoreFields": chosen["ignored"]}
    context = {"shade": chosen["shade"], "size": chosen["size"]}
    return {"templateSnippets": snippets, "watchedResources": watched, "templating": {"extraContext": context}}


def first_objects() -> Iterator[Resource]:
    """Yield objects that look each other up."""
    for number, name in enumerate("abc"):
        metadata = {"namespace": "x", "name": name, "resourceVersion": "1"}
        for kind in ("Service", "ConfigMap"):
            yield {
                "kind": kind,
                "metadata": metadata,
                "spec": {"n": number, "text": "t", "ref": "b", "file": None},
            }


class TakeoverMachine(IncrementalMachine):
    """The same, with changes of the configuration."""

    @initialize(main=MAINS, maps=MAP_TEXTS, chosen=ALL_FIELDS)
    def compile(self, main: list[str], maps: list[str], chosen: dict[str, Any]) -> None:
        super().compile(["text\n"], maps)
        self.main, self.maps, self.chosen = main, maps, chosen
        self.write(list(first_objects()))
        self.configure()

    def configure(self) -> None:
        config = self.config = config_of(
            "".join(self.main),
            maps={f"{name}.map": {"template": text} for name, text in zip("ab", self.maps, strict=True)},
            **fields_of(self.chosen),
        )
        self.renderer, self.other = Renderer(config), Renderer(config)
        self.stores = _begin(config, self.stores)
        self.quarantine = self.quarantine.successor()
        self.rendered = None

    def change(self) -> None:
        """Begin another configuration as a candidate does, while the former one goes on."""
        former, stores, before = self.renderer, self.stores, self.config
        self.configure()
        same = {
            name for name, watched in self.config.watched_resources.items() if watched == before.watched_resources[name]
        }
        self.stores = Stores(
            Store(name, watched.index_by, watched.ignore_fields)
            for name, watched in self.config.watched_resources.items()
        )
        for name in same:
            self.stores[name].take_over(stores[name])
        complete = self.renderer.take_over(former, self.stores, frozenset(self.stores.keys() - same))
        held = {name: store.list() for name, store in stores.items()}
        # What the former configuration renders from now on does not count.
        for store in stores.values():
            store.replace(())
        with suppress(RejectedError):
            former.render_here(stores)
        complete()
        # The watches bring what the others hold.
        for name, store in self.stores.items():
            store.replace(held[name])

    @rule(fields=st.lists(ONE_FIELD, min_size=1, max_size=2))
    def change_fields(self, fields: list[tuple[str, Any]]) -> None:
        self.chosen = {**self.chosen, **dict(fields)}
        self.change()

    @rule(shade=st.sampled_from(CHOICES["shade"]))
    def change_shade(self, shade: str) -> None:
        self.chosen = {**self.chosen, "shade": shade}
        self.change()

    @rule(main=MAINS)
    def change_main(self, main: list[str]) -> None:
        self.main = main
        self.change()

    @rule(number=st.integers(0, 20), part=PART)
    def change_part(self, number: int, part: str) -> None:
        self.main = list(self.main)
        self.main[number % len(self.main)] = part
        self.change()

    @rule(maps=MAP_TEXTS)
    def change_maps(self, maps: list[str]) -> None:
        self.maps = maps
        self.change()

    @rule()
    def change_nothing(self) -> None:
        self.change()


EACH = "{% each s in resources.services %}{{ s.metadata.name }} BODY\n{% endeach %}"
LOOP = (
    "{% for s in resources.services.list() %}{% fragment 'f' for s %}{{ s.spec.n }} BODY\n{% endfragment %}{% endfor %}"
)
BASE: dict[str, Any] = {name: values[0] for name, values in CHOICES.items()}


def change(main: str, before: dict[str, Any], after: dict[str, Any], then: str = "") -> tuple[int, int]:
    """Return how many fragments there are, and how many a change of *main* to *then* and of the fields renders."""
    machine = TakeoverMachine()
    machine.compile([main], ["", ""], {**BASE, **before})
    machine.is_that_of_a_full_render()
    machine.main, machine.chosen = [then or main], {**BASE, **after}
    machine.change()
    machine.is_that_of_a_full_render()
    assert machine.rendered is not None
    return len(machine.rendered.produced), machine.rendered.fragments_rendered


@pytest.mark.parametrize("main", [EACH, LOOP])
@pytest.mark.parametrize(
    ("body", "before", "after", "is_kept"),
    [
        ("plain", {}, {}, True),
        ("plain", {}, {"shade": "blue"}, True),
        ("{{ shade }}", {}, {"shade": "blue"}, False),
        ("{{ size }}", {}, {"shade": "blue"}, True),
        ("plain", {}, {"painted": "other"}, True),
        ("plain", {}, {"ignored": ["spec.unused"]}, True),
        ("{{ resources.byRef.get('b') | length }}", {}, {"ignored": ["spec.unused"]}, False),
        ("{{ resources.byRef.has('b') }}", {}, {"ignored": ["spec.unused"]}, False),
    ],
)
def test_only_fragments_that_depend_on_the_difference_are_rendered(
    main: str, body: str, before: dict[str, Any], after: dict[str, Any], *, is_kept: bool
) -> None:
    count, rendered = change(main.replace("BODY", body), before, after)
    assert (count, rendered) == (3, 0 if is_kept else 3)


@pytest.mark.parametrize(
    ("body", "before", "after", "is_kept"),
    [
        ("{% include 'painted' %}", {}, {"shade": "blue"}, True),
        ("{% include 'painted' %}", {}, {"painted": "other"}, False),
        ("{% include 'painted' %}", {"painted": "{{ shade }}"}, {"painted": "{{ shade }}", "shade": "blue"}, False),
        ("{% include_snippets 'painted*' %}", {}, {"shade": "blue"}, True),
        ("{% include_snippets 'painted*' %}", {}, {"painted-more": "more"}, False),
        ("{% include_snippets 'painted*' %}", {}, {"optional": "optional"}, True),
        ("{% include_snippets 'paint' ~ 'ed*' %}", {}, {"optional": "optional"}, False),
        (
            "{% include_snippets 'painted*' %}",
            {"painted-more": "more"},
            {"painted-more": "more", "priority": 1000},
            False,
        ),
        ("{% include 'optional' ignore missing %}", {}, {"optional": "optional"}, False),
        ("{% include 'optional' ignore missing %}", {}, {"painted": "other"}, True),
        ("{% from 'brush' import stroke %}{{ stroke(s) }}", {}, {"brush": BRUSHES[1]}, False),
        ("{% from 'brush' import stroke %}{{ stroke(s) }}", {}, {"size": "painted"}, False),
        ("{% from 'brush' import stroke %}{{ stroke(s) }}", {}, {"shade": "blue"}, True),
    ],
)
def test_a_turn_depends_on_the_templates_that_it_loads(
    body: str, before: dict[str, Any], after: dict[str, Any], *, is_kept: bool
) -> None:
    count, rendered = change(EACH.replace("BODY", body), before, after)
    assert (count, rendered) == (3, 0 if is_kept else 3)


@pytest.mark.parametrize(
    ("page", "after", "is_kept"),
    [
        (PAGES[0], {"page": PAGES[1]}, False),
        (PAGES[1], {"shade": "blue"}, True),
        (PAGES[1], {"page": PAGES[2]}, False),
    ],
)
def test_a_turn_depends_on_the_blocks_that_another_template_puts_around_it(
    page: str, after: dict[str, Any], *, is_kept: bool
) -> None:
    count, rendered = change("{% include 'page' %}", {"page": page}, {"page": page, **after})
    assert (count, rendered) == (3, 0 if is_kept else 3)


@pytest.mark.parametrize("main", [EACH, LOOP])
def test_a_template_with_another_text_renders_its_fragments(main: str) -> None:
    assert change(main.replace("BODY", "one"), {}, {}, main.replace("BODY", "two")) == (3, 3)


def test_macros_around_a_fragment_are_compared() -> None:
    main = "{% import 'brush' as brush %}" + EACH.replace("BODY", "{{ brush.stroke(s) }}")
    assert change(main, {}, {"shade": "blue"}) == (3, 0)
    assert change(main, {}, {"size": "painted"}) == (3, 3)
    assert change(main, {"brush": BRUSHES[1]}, {"brush": BRUSHES[1], "shade": "blue"}) == (3, 3)
    assert change(main, {"brush": BRUSHES[2]}, {"brush": BRUSHES[2], "painted": "other"}) == (3, 3)


def test_changes_that_were_not_rendered_yet_are_rendered() -> None:
    machine = TakeoverMachine()
    machine.compile([EACH.replace("BODY", "{{ resources.byRef.get('b') | length }}")], ["", ""], BASE)
    machine.is_that_of_a_full_render()
    (first, *_) = first_objects()
    machine.write([{**first, "metadata": {**first["metadata"], "name": "d"}}])
    machine.change()
    machine.is_that_of_a_full_render()
    assert machine.rendered is not None
    assert machine.rendered.text == "a 4\nb 4\nc 4\nd 4\n"


def _begin(config: Config, before: Stores) -> Stores:
    stores = Stores(
        Store(name, watched.index_by, watched.ignore_fields) for name, watched in config.watched_resources.items()
    )
    for name, store in stores.items():
        store.replace(before[name].list())
    return stores


TakeoverMachine.TestCase.settings = settings(
    max_examples=100, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
TestTakeoverMachine = pytest.mark.slow(TakeoverMachine.TestCase)


def test_rejected_objects_have_one_order_whatever_was_rendered_before() -> None:
    machine = TakeoverMachine()
    main = (
        "{% each s in resources.services as 'file' if s.spec.file %}{{ files.file(s.spec.file, 't') }}\n{% endeach %}"
    )
    clash = (
        "{% each s in resources.services as 'map' if s.spec.file %}{{ files.file(s.spec.file, 'u') }} x\n{% endeach %}"
    )
    machine.compile([main], ["", clash], BASE)
    machine.is_that_of_a_full_render()
    # One after another: the take-over knows the first of them as quarantined, the complete render finds all at once.
    for number in range(6):
        name = f"s{number}"
        fields = {"n": 1, "text": "t", "ref": "a", "file": name}
        metadata = {"namespace": "x", "name": name, "resourceVersion": "1"}
        machine.write([{"kind": "Service", "metadata": metadata, "spec": fields}])
        machine.change_nothing()
        machine.is_that_of_a_full_render()
    assert machine.rendered is not None
    # Each object contradicts itself, in both of its fragments.
    assert [rejection.subject.name for rejection in machine.rendered.rejections] == [
        f"s{number}" for _fragment in range(2) for number in range(6)
    ]


def test_a_deleted_object_is_not_served_if_it_was_rejected_with_a_fallback() -> None:
    machine = TakeoverMachine()
    loop = "{% for s in resources.services.list() %}{% fragment 'f' for s %}BODY\n{% endfragment %}{% endfor %}"
    machine.compile(["text\n"], ["", MAPS[1]], BASE)
    machine.is_that_of_a_full_render()
    machine.accept()
    machine.is_that_of_a_full_render()
    # Fails for the accepted versions of the objects as well.
    machine.change_part(0, loop.replace("BODY", "{{ unknown }}"))
    machine.is_that_of_a_full_render()
    machine.delete(0, "Service")
    machine.is_that_of_a_full_render()
    assert machine.rendered is not None
    assert [rejection.subject.name for rejection in machine.rendered.rejections] == ["b", "c"]


def test_files_that_a_failed_render_changed_are_those_of_the_present_objects() -> None:
    machine = TakeoverMachine()
    fails = "{% if resources.others.get('d') %}{{ fail('d is there') }}{% endif %}\n"
    files = "{% each s in resources.services as 'file' %}{{ files.file('f', s.spec.text) }}\n{% endeach %}"
    machine.compile([fails], [files, ""], BASE)
    for _other in "bc":
        machine.delete(1, "Service")
    machine.is_that_of_a_full_render()
    (first, other, *_) = first_objects()
    machine.write([
        {**first, "spec": {**first["spec"], "text": "newer"}},
        {**other, "metadata": {**other["metadata"], "name": "d"}},
    ])  # fmt: skip
    machine.is_that_of_a_full_render()

    machine.change_part(0, "text\n")
    machine.is_that_of_a_full_render()

    assert machine.rendered is not None
    assert machine.rendered.texts["general/f"].text == "newer"
