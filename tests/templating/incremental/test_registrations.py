"""A file that very many objects register costs one turn when the first of them comes, goes or changes."""

import tracemalloc
from typing import Any

import pytest

from tests.pipeline.heavy import SHARED, Bench, authorities, site
from tests.templating.incremental.test_takeover import BASE, TakeoverMachine

# The validator asks for the version of an HAProxy, which does not exist.
pytestmark = pytest.mark.process
REGISTERING = (
    "{% each s in resources.services as 'first' if s.spec.file %}{{ files.file(s.spec.file, s.spec.text) }}\n"
    "{% endeach %}{% each s in resources.services as 'second' if s.spec.file and s.spec.n != 1 %}\n"
    "{{ files.file(s.spec.file, s.spec.text) }}{% if s.spec.n == 3 %}{{ fail('late') }}{% endif %}\n{% endeach %}"
)


def service(name: str, text: str = "t", n: int = 0, file: str | None = "f") -> dict[str, Any]:
    metadata = {"namespace": "x", "name": name, "resourceVersion": "1"}
    return {"kind": "Service", "metadata": metadata, "spec": {"n": n, "text": text, "ref": "a", "file": file}}


def deleted(machine: TakeoverMachine, name: str) -> None:
    for store in machine.stores.values():
        store.replace([one for one in store.list() if (one["kind"], one["metadata"]["name"]) != ("Service", name)])


@pytest.fixture
def machine() -> TakeoverMachine:
    """Return a renderer of Services that all register the file `f`."""
    found = TakeoverMachine()
    found.compile([REGISTERING], ["", ""], BASE)
    found.write([service(name) for name in "abcdefgh"])
    found.is_that_of_a_full_render()
    found.accept()
    return found


def rendered_by(machine: TakeoverMachine) -> int:
    """Return how many fragments the next render renders; its output must be that of a complete one."""
    machine.is_that_of_a_full_render()
    assert machine.rendered is not None
    return machine.rendered.fragments_rendered


def test_a_large_file_of_many_objects_is_kept_once() -> None:
    found = TakeoverMachine()
    found.compile(
        ["{% each s in resources.services %}{{ files.file('f', 'x' * 1000000) }}{% endeach %}"], ["", ""], BASE
    )
    found.write([service(f"s{number}") for number in range(30)])
    tracemalloc.start()
    try:
        rendered = found.renderer.render_here(found.stores)
        kept, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(rendered.texts["general/f"].text) == 1_000_000
    assert kept < 10_000_000


@pytest.mark.parametrize(
    "text", ["{{ files.file('f', 't') }}", "{% fragment 'last' for s %}{{ files.file('f', 't') }}{% endfragment %}"]
)
def test_a_file_of_an_each_that_is_left_out_is_registered_by_the_text_after_it(text: str) -> None:
    found = TakeoverMachine()
    # One turn alone: others would register the file after it.
    turns = (
        "{% each s in resources.services as 'first' if s.metadata.name == 'a' %}{{ files.file('f', 't') }}{% endeach %}"
    )
    others = "{% each s in resources.services as 'other' %}{{ s.metadata.name }}\n{% endeach %}"
    condition = "{% if resources.others.list() | length > 2 %}" + turns + "{% endif %}\n" + others
    found.compile([condition + "{% for s in resources.services.list() %}" + text + "{% endfor %}\n"], ["", ""], BASE)
    found.is_that_of_a_full_render()
    found.delete(0, "ConfigMap")

    found.is_that_of_a_full_render()

    assert found.rendered is not None
    assert found.rendered.texts["general/f"].text == "t"


async def test_an_ingress_costs_the_same_however_many_share_its_file() -> None:
    costs = []
    for count in (4, 16):
        bench = Bench()
        bench.put(authorities(0), *(site(number, annotations=SHARED) for number in range(count)))
        await bench.catch_up()
        bench.delete(site(0))
        gone = await bench.cycle()
        bench.put(site(0, annotations=SHARED))
        back = await bench.cycle()
        costs.append((gone.rendered.fragments_rendered, back.rendered.fragments_rendered))

    assert costs[0] == costs[1]


def test_the_next_unit_registers_a_file_that_is_given_up(machine: TakeoverMachine) -> None:
    deleted(machine, "a")
    assert rendered_by(machine) == 1
    machine.write([service("b", file=None)])
    assert rendered_by(machine) <= 3
    machine.write([service("a")])
    assert rendered_by(machine) <= 3


def test_another_content_renders_all_that_register_the_file(machine: TakeoverMachine) -> None:
    machine.write([service("a", "other")])
    assert rendered_by(machine) >= 8
    machine.write([service("a")])
    assert rendered_by(machine) >= 8


def test_a_unit_that_fails_passes_the_file_on(machine: TakeoverMachine) -> None:
    machine.write([service(name, n=3) for name in "bcd"])
    machine.is_that_of_a_full_render()
    for name in "abc":
        deleted(machine, name)
        machine.is_that_of_a_full_render()


def test_a_unit_that_could_not_register_its_content_does_when_the_file_is_given_up(machine: TakeoverMachine) -> None:
    machine.write([service("z", "other")])
    machine.is_that_of_a_full_render()
    assert machine.rendered is not None
    assert {one.subject.name for one in machine.rendered.rejections} == {"z"}
    for name in "abcdefgh":
        deleted(machine, name)
        machine.is_that_of_a_full_render()

    assert machine.rendered is not None
    assert machine.rendered.rejections == ()
