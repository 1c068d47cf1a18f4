"""Good versions of rejected objects, rendered again: all fragments of an object, or none."""

from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered
from haptic_trio.templating.incremental.outputs import FragmentOutput
from haptic_trio.templating.incremental.settling.renewals import Renewals
from haptic_trio.templating.values.subjects import FragmentKey
from tests.pipeline.test_incremental import IncrementalMachine

SHOWS = (
    "{% each s in resources.services as 'shows' %}{{ s.spec.n }}"
    "{% for o in resources.others.get(s.spec.ref) %} sees {{ o.spec.n }}{% endfor %};\n{% endeach %}"
)
FAILS = (
    "{% each s in resources.services as 'fails' if s.spec.n != 3 or fail('three') %}"
    "{% for o in resources.others.get(s.spec.ref) if o.spec.n == 9 %}{{ fail('nine') }}{% endfor %}{% endeach %}"
)
INNER = (
    "{% each s in resources.services as 'outer' if s.spec.n != 3 or fail('three') %}{{ s.spec.n }}"
    "{% for o in resources.others.get(s.spec.ref) %}{% fragment 'inner' for o %} holds {{ o.spec.n }}"
    "{% if o.spec.n == 9 %}{{ fail('nine') }}{% endif %}{% endfragment %}{% endfor %};\n{% endeach %}"
)


def made(kind: str, n: int, version: int) -> Resource:
    metadata = {"namespace": "x", "name": "a", "resourceVersion": str(version)}
    return {"kind": kind, "metadata": metadata, "spec": {"n": n, "text": "t", "ref": "a", "file": None}}


def lines_after(machine: IncrementalMachine, *resources: Resource) -> list[str]:
    """Write *resources*; return the lines, which are those of a render from the start."""
    machine.write(list(resources))
    machine.is_that_of_a_full_render()
    assert isinstance(machine.rendered, Rendered)
    machine.accept()
    return machine.rendered.text.replace("\n", "").split(";")[:-1]


def machine_of(*templates: str) -> IncrementalMachine:
    machine = IncrementalMachine()
    machine.compile(list(templates), [""])
    assert lines_after(machine, made("Service", 1, 1), made("ConfigMap", 5, 1))[0].startswith("1 ")
    return machine


def test_a_good_version_is_rendered_again_when_what_it_looks_up_changes() -> None:
    machine = machine_of(SHOWS, FAILS)
    assert lines_after(machine, made("Service", 3, 2)) == ["1 sees 5"]

    assert lines_after(machine, made("ConfigMap", 6, 2)) == ["1 sees 6"]


def test_all_fragments_stay_as_they_were_while_one_cannot_be_rendered_again() -> None:
    machine = machine_of(SHOWS, FAILS)
    lines_after(machine, made("Service", 3, 2))

    assert lines_after(machine, made("ConfigMap", 9, 2)) == ["1 sees 5"]
    assert lines_after(machine, made("ConfigMap", 6, 3)) == ["1 sees 6"]


def test_a_fragment_for_another_object_inside_has_its_own_good_version() -> None:
    machine = machine_of(INNER)
    assert lines_after(machine, made("Service", 3, 2)) == ["1 holds 5"]
    assert lines_after(machine, made("ConfigMap", 6, 2)) == ["1 holds 6"]
    lines_after(machine, made("Service", 4, 3))
    assert lines_after(machine, made("ConfigMap", 9, 3)) == ["4 holds 6"]

    assert lines_after(machine, made("Service", 3, 4)) == ["4 holds 6"]


@pytest.mark.parametrize("is_trial", [False, True])
def test_a_trial_has_the_decisions_and_changes_none(is_trial: bool) -> None:
    key = FragmentKey("shows", "Service", "x", "a", 0, "")
    renewals, output = Renewals(), FragmentOutput("good", (), "1")
    renewals.note(key, None)
    assert renewals.settle() == {("x", "a", "Service")}

    one: Any = renewals.for_trial() if is_trial else renewals
    one.note(key, FragmentOutput("new", (), "1", original=output))

    assert (one.keeps(key), one.in_use(key, output)) == (True, output)
    assert renewals.is_undecided is not is_trial
