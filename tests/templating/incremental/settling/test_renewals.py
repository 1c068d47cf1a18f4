"""Good versions of rejected objects, rendered again: all fragments of an object, or none."""

from typing import Any

import pytest

from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.templating.incremental.outputs import FragmentOutput
from haptic_trio.templating.incremental.settling.renewals import Renewals
from haptic_trio.templating.values.subjects import FragmentKey
from tests.pipeline.test_incremental import WATCHED, IncrementalMachine
from tests.support.components.pipeline import config_of

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


LISTS = (
    "{% each s in resources.services as 'lists' %}{% for o in resources.services.list() %}{{ o.spec.n }}{% endfor %};\n"
    "{% endeach %}"
)
GROWS = (
    "{% each s in resources.services as 'NAME' %}{{ s.spec.n }}{% for o in resources.others.get(s.spec.ref) %}"
    "{% for _ in range(o.spec.n) %} 123456789{% endfor %}{% endfor %};\n{% endeach %}"
)
OWNS = (
    "{% each s in resources.services as 'owns' %}{% if s.spec.n == 3 %}{{ fail('three') }}{% endif %}"
    "{% for o in resources.others.get(s.spec.ref) %}{{ files.file('f', o.spec.text) }}{% endfor %};\n{% endeach %}"
)


def made(
    kind: str, n: int, version: int, *, name: str = "a", namespace: str = "x", text: str = "t", ref: str = ""
) -> Resource:
    metadata = {"namespace": namespace, "name": name, "resourceVersion": str(version)}
    return {"kind": kind, "metadata": metadata, "spec": {"n": n, "text": text, "ref": ref or name, "file": None}}


def render(machine: IncrementalMachine, *resources: Resource) -> list[tuple[str, bool]]:
    """Write *resources*; return the rejected objects, each with whether it has a fallback, as in a full render."""
    before = machine.rendered
    machine.write(list(resources))
    machine.is_that_of_a_full_render()
    assert isinstance(machine.rendered, Rendered)
    assert machine.rendered is not before, "the render has failed"
    return [(rejection.subject.name, rejection.has_fallback) for rejection in machine.rendered.rejections]


def lines_after(machine: IncrementalMachine, *resources: Resource) -> list[str]:
    """Write *resources*; return the lines, which are those of a render from the start."""
    render(machine, *resources)
    machine.accept()
    assert machine.rendered is not None
    return machine.rendered.text.replace("\n", "").split(";")[:-1]


def machine_with_files() -> IncrementalMachine:
    """Return a machine in which the objects b and c register one file with equal content; b is the older one."""
    machine = IncrementalMachine()
    machine.compile([OWNS], [""])
    contents = [made("ConfigMap", 1, 1, name=name, text="one") for name in "bc"]
    services = [made("Service", 1, 1, name="b", namespace="w"), made("Service", 1, 1, name="c", ref="none")]
    assert render(machine, *contents, *services) == []
    machine.accept()
    return machine


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
    # They are as they were last.
    assert lines_after(machine, made("ConfigMap", 9, 4)) == ["1 sees 6"]
    assert lines_after(machine) == ["1 sees 6"]
    assert lines_after(machine, made("ConfigMap", 7, 5)) == ["1 sees 7"]


def test_an_object_stays_as_it_was_while_haproxy_rejects_what_it_would_have_now() -> None:
    machine = machine_of(SHOWS, FAILS)
    lines_after(machine, made("Service", 3, 2))
    assert render(machine, made("ConfigMap", 6, 2)) == [("a", True)]
    assert isinstance(machine.rendered, Rendered)
    assert "1 sees 6" in machine.rendered.text
    (key,) = (key for key in machine.rendered.produced if key.fragment == "shows")
    machine.quarantine.reject({key: Problem(message="HAProxy says no")}, machine.rendered.produced)

    # The verdict is remembered as long as the object is rejected.
    assert [lines_after(machine) for _turn in range(3)] == [["1 sees 5"]] * 3


def test_an_object_stays_as_it_was_while_haproxy_rejects_what_both_of_its_versions_would_have() -> None:
    machine = IncrementalMachine()
    machine.compile([LISTS, FAILS], [""])
    assert lines_after(machine, made("Service", 1, 1)) == lines_after(machine, made("Service", 3, 2)) == ["1"]
    assert render(machine, made("Service", 4, 1, name="b")) == [("a", True)]
    assert isinstance(machine.rendered, Rendered)
    assert machine.rendered.text.split() == ["14;", "14;"]
    (key,) = (key for key in machine.rendered.produced if (key.fragment, key.name) == ("lists", "a"))
    machine.quarantine.reject({key: Problem(message="HAProxy says no")}, machine.rendered.produced)

    assert render(machine) == [("a", True), ("a", True)]
    assert machine.rendered.text.split() == ["1;", "14;"]


def test_a_single_fragment_is_rendered_again_as_well() -> None:
    machine = machine_of(SHOWS.replace("'shows'", "'shows' apart if s.spec.n != 3 or fail('three')"))
    assert lines_after(machine, made("Service", 3, 2)) == ["1 sees 5"]

    assert lines_after(machine, made("ConfigMap", 6, 2)) == ["1 sees 6"]


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


def test_an_object_that_may_not_return_a_second_time_in_a_render_returns_in_the_next_one() -> None:
    key, found = FragmentKey("shows", "Service", "x", "a", 0, ""), ("x", "a", "Service")
    renewals, output = Renewals(), FragmentOutput("new", (), "1", original=FragmentOutput("good", (), "1"))
    for one in (None, output, None):
        renewals.note(key, one)
        assert renewals.settle() == {found}
    renewals.note(key, output)
    assert renewals.settle() == set()
    assert renewals.keeps(key)

    renewals.restart()

    assert renewals.is_undecided
    assert renewals.settle() == {found}
    assert not renewals.keeps(key)


def test_renewed_outputs_that_find_no_room_together_end_no_render() -> None:
    machine = IncrementalMachine()
    templates = GROWS.replace("NAME", "one"), GROWS.replace("NAME", "two"), FAILS
    machine.compile(list(templates), [""])
    config = config_of("".join(templates), watchedResources=WATCHED, templating={"maxNamespaceBytes": 200})
    machine.renderer, machine.other = Renderer(config), Renderer(config)
    before = lines_after(machine, made("Service", 1, 1), made("ConfigMap", 1, 1))
    assert lines_after(machine, made("Service", 3, 2)) == before

    assert lines_after(machine, made("ConfigMap", 12, 2)) == before
    assert lines_after(machine, made("ConfigMap", 2, 3)) == ["1 123456789 123456789"] * 2


def test_a_newer_good_version_gives_way_to_an_older_one_while_others_have_its_present_file() -> None:
    machine = machine_with_files()
    assert render(machine, made("Service", 1, 2, name="c")) == []
    assert machine.rendered is not None
    # It passes phase 1, and waits for phase 2.
    machine.quarantine.prepare(machine.rendered.serial)
    assert render(machine, made("Service", 3, 3, name="c", ref="none")) == [("c", True)]
    used = [one for key, one in machine.rendered.produced.items() if key.name == "c"]
    assert [one.version for one in used] == ["2"]

    assert render(machine, made("ConfigMap", 1, 2, name="c", text="two")) == [("c", True)]

    used = [one for key, one in machine.rendered.produced.items() if key.name == "c"]
    assert [one.version for one in used] == ["1"]


def test_a_good_version_is_used_again_when_its_present_file_is_that_of_others() -> None:
    machine = machine_with_files()
    assert lines_after(machine, made("Service", 1, 2, name="c")) == ["general/f"] * 2
    assert render(machine, made("Service", 3, 3, name="c", ref="none")) == [("c", True)]

    assert render(machine, made("ConfigMap", 1, 2, name="c", text="two")) == [("c", False)]
    assert render(machine, made("ConfigMap", 1, 3, name="c", text="one")) == [("c", True)]
