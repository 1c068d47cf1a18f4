"""Of several objects that want a file with different content, the oldest one has it, whatever happened before."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from haptic_trio.k8s.resource import Resource
from tests.pipeline.heavy import AUTHORITIES, NONSENSE, SHARED, Bench, authorities, site
from tests.pipeline.test_incremental import MAPS
from tests.support.work import Work
from tests.templating.incremental.test_takeover import BASE, TakeoverMachine

FAILING = "{% if s.spec.n == 3 %}{{ fail('three') }}{% endif %}"
TURNS = (
    "{% each s in resources.services as 'file' if s.spec.file %}{{ s.spec.n }} "
    f"{{{{ files.file(s.spec.file, s.spec.text) }}}}{FAILING}\n{{% endeach %}}\n"
)
PLAIN = (
    "{% for s in resources.others.list() if s.spec.file %}{% fragment 'plain' for s %}"
    f"{{{{ files.file(s.spec.file, s.spec.text) }}}}{FAILING}\n{{% endfragment %}}{{% endfor %}}\n"
)
LOOKING = (
    "{% each s in resources.services as 'looks' %}{% for o in resources.others.get(s.spec.ref) if o.spec.file %}"
    "{{ files.file(o.spec.file, o.spec.text) }} {% endfor %}\n{% endeach %}"
)
GUARDED = (
    "{% each s in resources.services as 'guarded' if s.spec.file %}{% if s.spec.n %}{{ guarded('n') }}{% endif %}"
    "{{ files.file(s.spec.file, s.spec.text) }}\n{% endeach %}"
)
APART = (
    f"{{% each s in resources.services as 'first' %}}{{{{ s.metadata.name }}}}{FAILING}\n{{% endeach %}}"
    "{% for s in resources.services.list() %}{% fragment 'second' for s %}"
    "{% for o in resources.others.get(s.spec.ref) if o.spec.file %}"
    "{{ files.file(o.spec.file, o.spec.text) }}{% endfor %}{% endfragment %}\n{% endfor %}"
)
USING = (
    "{% each s in resources.services as 'uses' %}{% for o in resources.others.get(s.spec.ref) if o.spec.file %}"
    f"{{{{ files.file(o.spec.file, o.spec.text, of=o) }}}}{{% endfor %}}{FAILING}\n{{% endeach %}}"
)
NAMED = USING.replace("'uses'", "'named'").replace("o.spec.file,", "ident(o.metadata.namespace, o.metadata.name),")
OWN = "{% if resources.others.list() | length > 2 %}{{ files.file('f2', 'own') }}{% endif %}\n"
PARTS = [TURNS, PLAIN, LOOKING, GUARDED, APART, USING, NAMED, OWN]
MAIN = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4)
NAMES = st.sampled_from("abc")


def wanting(
    name: str, text: str = "t", *, namespace: str = "x", created: str = "", kind: str = "Service", **spec: Any
) -> Resource:
    """Return an object that registers the file `f1` with *text*."""
    metadata = {"namespace": namespace, "name": name, "resourceVersion": "1", "creationTimestamp": created}
    return {"kind": kind, "metadata": metadata, "spec": {"n": 1, "text": text, "ref": "a", "file": "f1", **spec}}


@st.composite
def objects(draw: st.DrawFn) -> Resource:
    name, namespace = draw(NAMES), draw(st.sampled_from("xy"))
    resource = wanting(
        name,
        draw(st.sampled_from(["t", "u", "not good"])),
        namespace=namespace,
        # The age of an object stays.
        created={"a": "2026-01-02", "b": "2026-01-01", "c": ""}[name] if namespace == "x" else "2026-01-01T12",
        kind=draw(st.sampled_from(["Service", "ConfigMap"])),
        n=draw(st.sampled_from([0, 1, 3])),
        ref=draw(NAMES),
        file=draw(st.sampled_from([None, "f1", "f1", "f2"])),
    )
    resource["metadata"]["resourceVersion"] = str(draw(st.integers()))
    return resource


class ContestedMachine(TakeoverMachine):
    """Objects that want the same files, with all that can happen to them."""

    @initialize(main=MAIN, maps=st.lists(st.sampled_from(["", MAPS[2]]), min_size=2, max_size=2))
    def compile(self, main: list[str], maps: list[str], chosen: dict[str, Any] = BASE) -> None:
        super().compile(main, maps, chosen)

    @rule(resources=st.lists(objects(), min_size=1, max_size=3))
    def write(self, resources: list[Resource]) -> None:
        super().write(resources)

    @rule(number=st.integers(0, 20), part=st.sampled_from([*PARTS, "text\n"]))
    def change_part(self, number: int, part: str) -> None:
        super().change_part(number, part)

    @rule(main=MAIN)
    def change_main(self, main: list[str]) -> None:
        super().change_main(main)

    @invariant()
    def every_output_has_the_content_that_it_was_rendered_with(self) -> None:
        if self.rendered is None:
            return
        present = {path: text.text for path, text in self.rendered.texts.items()}
        for key, output in self.rendered.produced.items():
            for file in output.files:
                # A fallback has the present content of another object.
                assert present[file.path] == file.text or (file.source and key.fragment in ("uses", "named")), key


ContestedMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
TestContestedMachine = pytest.mark.slow(ContestedMachine.TestCase)


def machine_of(*main: str, maps: str = "") -> TakeoverMachine:
    """Return a renderer of the parts *main* that has no objects yet."""
    machine = TakeoverMachine()
    machine.compile(list(main), [maps, ""], BASE)
    for store in machine.stores.values():
        store.replace(())
    machine.is_that_of_a_full_render()
    return machine


def accept(machine: TakeoverMachine, *resources: Resource) -> None:
    """Take *resources* in as parts of a valid configuration."""
    machine.write(list(resources))
    machine.is_that_of_a_full_render()
    machine.accept()
    machine.is_that_of_a_full_render()


def served(machine: TakeoverMachine) -> tuple[str, list[str]]:
    """Return the content of the file, and the rejected objects."""
    machine.is_that_of_a_full_render()
    assert machine.rendered is not None
    file = machine.rendered.texts.get("general/f1")
    rejected = dict.fromkeys(str(one.subject) for one in machine.rendered.rejections)
    return (file.text if file else ""), sorted(rejected)


OLD = wanting("z", "old", namespace="y", created="2025-01-01")
MIDDLE = wanting("b", "middle", created="2026-01-01")
YOUNG = wanting("a", "young", namespace="a", created="2027-01-01")


@pytest.mark.parametrize("order", [*permutations((OLD, MIDDLE, YOUNG))])
def test_the_oldest_object_has_the_file_in_whatever_order_they_come(order: tuple[Resource, ...]) -> None:
    machine = machine_of(TURNS)
    for resource in order:
        accept(machine, resource)

    assert served(machine) == ("old", ["Service a/a", "Service x/b"])

    machine.delete([one["metadata"]["name"] for one in machine.stores["services"].list()].index("z"), "Service")
    assert served(machine) == ("middle", ["Service a/a"])


def crowded(number: int) -> tuple[int, int]:
    """Return calls of a render with so many objects that want one file, and of one after a change of another object."""
    machine = TakeoverMachine()
    machine.compile([TURNS], ["", ""], BASE)
    for store in machine.stores.values():
        store.replace(())
    crowd = [wanting(f"o{one}", str(one), namespace="y") for one in range(number)]
    machine.write([*crowd, wanting("other", file="f2")])
    with Work() as first:
        machine.renderer.render_here(machine.stores)
    machine.write([wanting("other", "changed", file="f2")])
    with Work() as second:
        machine.renderer.render_here(machine.stores)
    return first.calls, second.calls


def test_objects_that_want_one_file_cost_linear_time_and_hardly_any_in_changes_of_others() -> None:
    crowded(20)
    (few, _), (more, _), (most, after) = crowded(40), crowded(80), crowded(120)

    assert most - 2 * more + few <= 0.02 * more, (few, more, most)
    assert after <= 20 * 120


def test_text_outside_of_fragments_has_precedence_over_objects_that_come_first() -> None:
    machine = machine_of("{{ files.file('f1', 'own') }}\n", maps=MAPS[2])
    machine.write([OLD])
    assert served(machine) == ("own", ["Service y/z"])


def test_an_object_that_contradicts_itself_takes_the_file_from_no_other() -> None:
    machine = machine_of(TURNS, PLAIN, maps=MAPS[2])
    accept(machine, OLD)
    machine.write([wanting("d", "t", created="2026-01-01", kind="ConfigMap")])
    assert served(machine) == ("t", ["Service y/z"])


def test_a_fallback_gives_way_to_other_objects_of_its_namespace() -> None:
    machine = machine_of(TURNS)
    shared = [
        wanting(name, "first", created=created) for name, created in (("a", "2025"), ("b", "2026"), ("c", "2027"))
    ]
    accept(machine, *shared)
    # Its last good version is served.
    accept(machine, wanting("a", "first", created="2025", n=3))
    assert served(machine) == ("first", ["Service x/a"])
    machine.write([wanting(name, "rotated", created=created) for name, created in (("b", "2026"), ("c", "2027"))])

    assert served(machine) == ("rotated", ["Service x/a"])
    assert machine.rendered is not None
    assert {key.name for key in machine.rendered.produced if key.fragment == "file"} == {"b", "c"}

    machine.write([wanting("a", "rotated", created="2025")])
    assert served(machine) == ("rotated", [])


@pytest.mark.parametrize("created", ["2025", "2027"])
def test_a_render_ends_if_the_fragment_with_the_file_is_not_the_one_that_fails(created: str) -> None:
    """The rejected object had its former file and lost it in turns, and no change of any object took effect."""
    machine = machine_of(APART)
    shared = wanting("a", "first", kind="ConfigMap", n=1)
    accept(machine, shared, wanting("a", created=created, file=None), wanting("b", created="2026", file=None))
    accept(machine, wanting("a", created=created, file=None, n=3))
    assert served(machine) == ("first", ["Service x/a"])
    machine.write([wanting("a", "rotated", kind="ConfigMap")])

    assert served(machine) == ("rotated", ["Service x/a"])


def test_a_fallback_keeps_its_file_from_younger_objects_of_other_namespaces() -> None:
    machine = machine_of(TURNS)
    accept(machine, OLD)
    machine.write([wanting("z", "old", namespace="y", created="2025-01-01", n=3), YOUNG])
    assert served(machine) == ("old", ["Service a/a", "Service y/z"])


def test_a_fallback_is_used_again_once_its_file_is_free() -> None:
    machine = machine_of(TURNS)
    accept(machine, MIDDLE)
    machine.write([wanting("b", "middle", created="2026-01-01", n=3), wanting("a", "other", created="2027")])
    assert served(machine) == ("other", ["Service x/b"])
    machine.delete(0, "Service")
    assert served(machine) == ("middle", ["Service x/b"])


def test_a_name_that_another_object_has_as_well_is_decided_by_age_although_its_content_is_borrowed() -> None:
    machine = machine_of(USING + TURNS)
    borrowing = wanting("a", created="2026-01-02", file=None)
    accept(machine, wanting("a", "first", kind="ConfigMap"), borrowing)
    # The same name for a content of its own.
    machine.write([wanting("b", "own", created="2026-01-01", ref="none")])
    assert served(machine) == ("own", ["Service x/a"])
    machine.write([wanting("b", "own", created="2026-01-01", ref="none", file=None)])
    assert served(machine) == ("first", [])


@pytest.mark.process
async def test_a_rotated_secret_rejects_no_object_beside_one_that_uses_the_former_content() -> None:
    bench = Bench()
    bench.put(authorities(0), *(site(number, annotations=SHARED) for number in range(4)))
    prepared = await bench.catch_up()
    bench.quarantine.accept(prepared.rendered.serial, prepared.rendered.rejections)
    # The first to register the file.
    bench.put(site(0, annotations={**SHARED, **NONSENSE}))
    prepared = await bench.cycle()
    assert [one.has_fallback for one in prepared.rendered.rejections] == [True]
    assert "h0.test|/ default_i0_web_80" in prepared.rendered.texts["maps/path-prefix.map"].text
    bench.put(authorities(1))
    prepared = await bench.catch_up()

    (rejection,) = prepared.rendered.rejections
    # Its good version uses the present content, too.
    assert (rejection.subject.name, rejection.has_fallback) == ("i0", True)
    assert "h0.test|/ default_i0_web_80" in prepared.rendered.texts["maps/path-prefix.map"].text
    assert [one.content for one in prepared.rendered.files.values() if b"BEGIN" in one.content] == [AUTHORITIES[1]]
