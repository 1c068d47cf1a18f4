"""A generation that is assembled from unchanged parts equals a full render after any changes."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.render import Rendered, Renderer
from tests.support.components.pipeline import config_of

# Each stands for a way in which a template can depend on something.
PARTS = (
    "text\n",
    "{% each s in resources.services %}\n{{ s.metadata.name }} {{ s.spec.n }}\n{% endeach %}\n",
    (
        "{% each s in resources.services as 'sorted' by ['spec.n:desc', 'spec.text | length'] if s.spec.n %}\n"
        "{{ s.metadata.name }}\n{% endeach %}\n"
    ),
    # A look-up of others, hits and misses, by all keys and by some.
    (
        "{% each s in resources.services as 'lookup' %}\n{% set o = resources.others.get_single(s.spec.ref) %}"
        "\n{{ s.metadata.name }} {{ o.spec.n if o else 'none' }} "
        "{{ resources.byRef.get(s.metadata.name) | length }}\n{% endeach %}\n"
    ),
    # Look-ups of which the answer counts.
    (
        "{% each s in resources.services as 'pick' %}\n"
        "{% set found = resources.byRef.pick('spec.text', s.metadata.name) %}\n"
        "{{ s.metadata.name }} {{ found | length }} {{ found | select | join('.') | length }} "
        "{{ resources.others.pick('spec.n', s.spec.ref) | join('.') }}\n{% endeach %}\n"
    ),
    (
        "{% each s in resources.services as 'has' if not resources.others.has(s.spec.ref) %}\n"
        "{{ s.metadata.name }} {{ 'y' if resources.byRef.has(s.metadata.name) else 'n' }}\n{% endeach %}\n"
        "{% if resources.others.has() %}{{ resources.others.pick('spec.n') | length }}{% endif %}\n"
    ),
    # Names from around, some of which change later on.
    (
        "{% set total = resources.others.list() | length %}\n{% macro show(x) %}{{ x }}/{{ total }}"
        "{% endmacro %}\n{% each s in resources.services as 'scope' %}\n{{ show(s.spec.n) }} {{ total }}\n"
        "{% endeach %}\n{% set total = total + 100 %}{{ total }}\n"
    ),
    # Fragments in ordinary loops, nested ones, and one object several times.
    (
        "{% for s in resources.services.list() %}{% fragment 'plain' for s %}\n{{ s.spec.text }} "
        "{{ s.spec.n }}\n{% fragment 'inner' for s %}in {{ 10 // s.spec.n }}\n{% endfragment %}"
        "{% endfragment %}{% endfor %}\n"
    ),
    (
        "{% set sum = namespace(n=0) %}{% for s in resources.services.list() %}{% fragment 'counted' for s %}"
        "\n{% set sum.n = sum.n + s.spec.n %}{{ s.metadata.name }} {{ sum.n }}\n{% endfragment %}{% endfor %}"
        "{{ sum.n }}\n"
    ),
    (
        "{% for s in resources.services.list() %}{% fragment 'loop' for s %}{{ loop.index }} {{ s.spec.n }}\n"
        "{% endfragment %}{% endfor %}"
    ),
    (
        "{% each s in resources.services as 'nest' %}{% fragment 'deep' for s %}{{ s.spec.text }}\n"
        "{% endfragment %}{% each o in resources.others as 'deeper' if o.spec.n == s.spec.n %}"
        "{{ o.spec.text }}.{% endeach %};\n{% endeach %}"
    ),
    (
        "{% set total = resources.others.list() | length %}{% macro seen() %}{{ total }}{% endmacro %}"
        "{% for s in resources.services.list() %}{% fragment 'seen' for s %}{{ s.metadata.name }} {{ total }}"
        " {{ seen() }}\n{% endfragment %}{% endfor %}{% set total = 0 %}{{ total }}\n"
    ),
    # Files: of objects, of several objects at once, of what is around.
    (
        "{% each s in resources.services as 'file' if s.spec.file %}\n"
        "{{ files.file(s.spec.file, s.spec.text) }}\n{% endeach %}\n"
    ),
    (
        "{% for o in resources.others.list() if o.spec.file %}{% fragment 'plain-file' for o %}\n"
        "{{ files.file(o.spec.file, o.spec.text) }}\n{% endfragment %}{% endfor %}\n"
    ),
    ("{% set own = resources.others.list() %}{% if own | length > 3 %}{{ files.file('f2', 'own') }}{% endif %}\n"),
    # Text that is taken hold of.
    (
        "{% set all %}{% each s in resources.services as 'caught' %}\n{{ s.metadata.name }} {{ s.spec.n }}\n"
        "{% endeach %}{% endset %}{{ files.map('caught.map', all) }} {{ all | hash }}\n"
    ),
    "{% set all %}{% include 'snippet' %}{% endset %}{{ all | hash }}\n{% include 'snippet' %}",
    "{% include_snippets 'snip*' %}",
    (
        "{% set t %}{% for o in resources.others.list() %}{% fragment 'kept' for o %}{{ o.spec.n }} "
        "{% endfragment %}{% endfor %}{% endset %}{% each s in resources.services as 'with' %}"
        "{{ s.metadata.name }} {{ t }}\n{% endeach %}"
    ),
    # Imports.
    (
        "{% import 'module' as m %}{% each s in resources.services as 'import' %}{{ m.known }} "
        "{{ m.look(s) }}\n{% endeach %}"
    ),
    (
        "{% from 'module' import look with context %}{% for s in resources.services.list() %}"
        "{% fragment 'macro' for s %}\n{{ look(s) }}\n{% endfragment %}{% endfor %}"
    ),
    # What fails outside of all objects.
    "{% if resources.others.get('d') %}{{ fail('d is there') }}{% endif %}\n",
    "{% if files.has_entries('maps/a.map') %}entries{% else %}none{% endif %}\n",
)
MAPS = (
    (
        "# nothing\n{% each o in resources.others as 'map' if o.spec.n %}{{ o.metadata.name }} {{ o.spec.n }}\n"
        "{% endeach %}"
    ),
    (
        "{% for s in resources.services.list() %}{% fragment 'map' for s %}{{ s.spec.text }} 1\n"
        "{% endfragment %}{% endfor %}"
    ),
    (
        "{% each s in resources.services as 'map-file' if s.spec.file %}"
        "{{ files.file(s.spec.file, 'of map') }} x\n{% endeach %}"
    ),
)
SNIPPETS = {
    "snippet": {
        "template": (
            "{% set own = resources.others.get('a') | length %}{% each s in resources.services as 'snippet' %}\n"
            "{{ s.metadata.name }} {{ own }} {% include 'leaf' %}\n{% endeach %}\n"
        )
    },
    "leaf": {"template": "{{ s.spec.n }}{{ own }}"},
    "module": {
        "template": (
            "{% set known = resources.others.list() | length %}{% macro look(s) %}{{ s.spec.n }} {{ known }} "
            "{{ resources.byRef.get(s.metadata.name) | length }}{% endmacro %}"
        )
    },
}
WATCHED = {
    "services": {"apiVersion": "v1", "resources": "services"},
    "others": {"apiVersion": "v1", "resources": "configmaps", "indexBy": ["metadata.name"]},
    "byRef": {"apiVersion": "v1", "resources": "services", "indexBy": ["spec.ref"]},
}
NAMES = st.sampled_from("abcd")


@st.composite
def objects(draw: st.DrawFn, kind: str) -> Resource:
    spec = {
        "n": draw(st.sampled_from([0, 1, 2, 3])),
        # The one with a blank cannot be emitted.
        "text": draw(st.sampled_from(["t", "longer", "not good"])),
        "ref": draw(NAMES),
        "file": draw(st.sampled_from([None, None, "f1", "f2"])),
    }
    metadata = {
        "namespace": draw(st.sampled_from("xy")),
        "name": draw(NAMES),
        "resourceVersion": str(draw(st.integers())),
        # Mostly the same object.
        "uid": draw(st.sampled_from(["u", "u", "another"])),
    }
    return {"kind": kind, "metadata": metadata, "spec": spec}


def everything(rendered: Rendered) -> dict[str, Any]:
    """Return all that a render gives, to be compared."""
    return {
        "texts": {path: (text.text, text.origins) for path, text in sorted(rendered.texts.items())},
        "lines": {
            path: [text.origin_of(line) for line in range(text.text.count("\n") + 2)]
            for path, text in sorted(rendered.texts.items())
        },
        "files": [(file.path, file.kind, file.content, file.secret) for file in rendered.files.values()],
        "rejections": rendered.rejections,
        "produced": {
            key: (output.text, [(file.path, file.text) for file in output.files], output.version)
            for key, output in rendered.produced.items()
        },
    }


def attempt(renderer: Renderer, stores: Stores, quarantine: Quarantine) -> Rendered | tuple[Problem, ...]:
    try:
        return renderer.render_here(stores, quarantine.recall())
    except RejectedError as error:
        return error.problems


class IncrementalMachine(RuleBasedStateMachine):
    """An incremental renderer, compared with a new one for each step."""

    @initialize(
        main=st.lists(st.sampled_from(PARTS), min_size=1, max_size=5),
        maps=st.lists(st.sampled_from(MAPS), min_size=1, max_size=2),
    )
    def compile(self, main: list[str], maps: list[str]) -> None:
        config = config_of(
            "".join(main),
            watchedResources=WATCHED,
            templateSnippets=SNIPPETS,
            maps={f"{name}.map": {"template": text} for name, text in zip("ab", maps, strict=False)},
        )
        self.stores = Stores(Store(name, watched.index_by) for name, watched in config.watched_resources.items())
        self.renderer, self.other = Renderer(config), Renderer(config)
        self.quarantine = Quarantine()
        self.rendered: Rendered | None = None
        self.former: list[tuple[Rendered, dict[str, Any]]] = []

    def kinds(self, kind: str) -> Iterator[Store]:
        yield from (store for name, store in self.stores.items() if (name == "others") == (kind == "ConfigMap"))

    @rule(resources=st.lists(st.sampled_from(["Service", "ConfigMap"]).flatmap(objects), min_size=1, max_size=3))
    def write(self, resources: list[Resource]) -> None:
        for resource in resources:
            for store in self.kinds(resource["kind"]):
                store.upsert(resource)

    @rule(number=st.integers(0, 20), kind=st.sampled_from(["Service", "ConfigMap"]))
    def delete(self, number: int, kind: str) -> None:
        for store in self.kinds(kind):
            known = store.list()
            if known:
                store.delete(ref_of(known[number % len(known)]))

    @rule(resources=st.lists(objects("Service"), max_size=4))
    def list_again(self, resources: list[Resource]) -> None:
        for store in self.kinds("Service"):
            store.replace(resources)

    @rule()
    def accept(self) -> None:
        if self.rendered is not None:
            self.quarantine.accept(self.rendered.serial, self.rendered.rejections)

    @rule(number=st.integers(0, 20))
    def reject(self, number: int) -> None:
        if self.rendered is not None and self.rendered.produced:
            key = sorted(self.rendered.produced, key=repr)[number % len(self.rendered.produced)]
            self.quarantine.reject({key: Problem(message="HAProxy says no")}, self.rendered.produced)

    @invariant()
    def is_that_of_a_full_render(self) -> None:
        expected = attempt(self.other, Stores(self.stores.values()), self.quarantine)
        found = attempt(self.renderer, self.stores, self.quarantine)
        if isinstance(found, Rendered) and isinstance(expected, Rendered):
            assert everything(found) == everything(expected)
            self.quarantine.take(found.serial, found.changed, is_new=found.is_new)
            self.rendered = found
            self.former = [*self.former[-3:], (found, everything(found))]
        else:
            assert found == expected

    @invariant()
    def what_was_rendered_stays_as_it_was(self) -> None:
        for rendered, content in self.former:
            assert everything(rendered) == content


IncrementalMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
TestIncrementalMachine = pytest.mark.slow(IncrementalMachine.TestCase)


def test_an_each_that_opens_again_loops_over_the_present_versions_of_rejected_objects() -> None:
    machine = IncrementalMachine()
    text = (
        "{% for o in resources.others.list() %}{% fragment 'kept' for o %}{{ o.spec.n }} {% endfragment %}{% endfor %}"
    )
    each = "{% each s in resources.services as 'with' %}{{ s.metadata.name }} {{ t }}\n{% endeach %}"
    machine.compile([f"{{% set t %}}{text}{{% endset %}}{each}"], ["", MAPS[1]])

    def write(kind: str, name: str, version: str, value: str) -> None:
        metadata = {"namespace": "x", "name": name, "resourceVersion": version}
        spec = {"n": 1, "text": value, "ref": "a", "file": None}
        machine.write([{"kind": kind, "metadata": metadata, "spec": spec}])

    write("Service", "a", "1", "t")
    write("ConfigMap", "a", "1", "t")
    machine.is_that_of_a_full_render()
    machine.accept()
    machine.is_that_of_a_full_render()
    write("Service", "a", "2", "not good")
    machine.is_that_of_a_full_render()
    # Another text around the each: all of its turns are made again.
    write("ConfigMap", "b", "1", "t")
    machine.is_that_of_a_full_render()
    assert machine.rendered is not None
    (origin,) = (one.origin for one in machine.rendered.texts["haproxy.cfg"].origins)
    assert origin.subject.resource_version == "2"
