"""A fault of one object does not affect others; a fault of the templates quarantines no object."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from haptic_trio.haproxy.config.check_output import MOST_WARNINGS
from haptic_trio.k8s.resource import Resource
from haptic_trio.messages import ConfigRendered, Quarantined, Released
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.templating.incremental.provenance import Provenance
from tests.support.components.controller import accepting_binary
from tests.support.components.pipeline import HEAD, Bench
from tests.support.kubernetes import service
from tests.support.processes.scripts import script

pytestmark = pytest.mark.process

EACH = "{% for service in resources.services.list() %}\n"
FRAGMENT = """\
{% fragment "backend" for service %}
backend {{ ident(service.metadata.name) }}
    balance {{ service.spec.balance | word }}
{% endfragment %}
"""
BACKENDS = HEAD + EACH + FRAGMENT + "{% endfor %}\n"


def web(name: str, balance: str = "roundrobin", version: str = "1") -> Resource:
    """Return a Service whose backend has *balance*; none leaves the field out."""
    resource = service(name, **({"balance": balance} if balance else {}))
    return {**resource, "metadata": {**resource["metadata"], "resourceVersion": version}}


def events_of(bench: Bench) -> list[tuple[Any, ...]]:
    """Return quarantine's part of the story: what, which object, and whether something stands in for it."""
    story: list[tuple[Any, ...]] = []
    for event in bench.reported():
        match event:
            case Quarantined():
                story.append(("quarantined", event.correlation, event.ref.name, event.has_fallback, event.quarantined))
            case Released():
                story.append(("released", event.correlation, event.ref.name, event.quarantined))
    return story


def backends(text: str) -> dict[str, str]:
    """Return the balance of each backend by its name."""
    lines = text.splitlines()
    return {
        line.split()[1]: lines[number + 1].split()[1].strip("'")
        for number, line in enumerate(lines)
        if line.startswith("backend")
    }


@pytest.fixture
def bench(haproxy_binary: Path) -> Bench:
    """A pipeline with the real HAProxy and a backend for each Service."""
    return Bench(haproxy_binary, BACKENDS)


Break = Callable[[str, str], Resource]


def without_the_field(name: str, version: str) -> Resource:
    """An object that the template cannot render."""
    return web(name, "", version)


def with_nonsense(name: str, version: str) -> Resource:
    """An object whose output HAProxy rejects."""
    return web(name, "nonsense", version)


BREAKS = [without_the_field, with_nonsense]


async def test_cycle_reports_the_rendered_output_and_measures_each_phase() -> None:
    bench = Bench(accepting_binary(), BACKENDS, maps={"host.map": {"template": "a b\n"}})
    bench.put(web("api"))

    valid = await bench.run()

    [rendered] = bench.reported()
    assert isinstance(rendered, ConfigRendered)
    assert (rendered.correlation, rendered.files) == ("c1", 1)
    assert rendered.bytes == len(valid.generation.text)
    assert rendered.seconds == valid.phases.render
    assert min(valid.phases.render, valid.phases.parse, valid.phases.check) > 0


async def test_equal_objects_make_the_same_generation() -> None:
    bench = Bench(accepting_binary(), BACKENDS)
    bench.put(web("api"))

    first = await bench.run()
    bench.put(web("api", version="2"))
    second = await bench.run()

    assert first.generation.id == second.generation.id


@pytest.mark.haproxy
@pytest.mark.parametrize("broken", BREAKS)
async def test_broken_object_is_quarantined_once_and_the_others_are_served(bench: Bench, broken: Break) -> None:
    bench.put(web("api"), broken("shop", "1"), web("web"))

    for _ in range(3):
        valid = await bench.run()
        assert backends(valid.generation.text) == {"api": "roundrobin", "web": "roundrobin"}

    assert events_of(bench) == [("quarantined", "c1", "shop", False, 1)]


@pytest.mark.haproxy
@pytest.mark.parametrize("broken", BREAKS)
async def test_object_that_breaks_is_served_as_it_was_last_good_until_it_is_corrected(
    bench: Bench, broken: Break
) -> None:
    bench.put(web("api"), web("shop", "source"))
    await bench.run()

    bench.put(broken("shop", "2"))
    during = await bench.run()
    bench.put(web("shop", "leastconn", "3"))
    after = await bench.run()

    assert backends(during.generation.text) == {"api": "roundrobin", "shop": "source"}
    assert backends(after.generation.text) == {"api": "roundrobin", "shop": "leastconn"}
    assert events_of(bench) == [("quarantined", "c2", "shop", True, 1), ("released", "c3", "shop", 0)]


@pytest.mark.haproxy
@pytest.mark.parametrize("broken", BREAKS)
async def test_broken_object_that_is_deleted_is_released(bench: Bench, broken: Break) -> None:
    shop = broken("shop", "1")
    bench.put(web("api"), shop)
    await bench.run()

    bench.services.replace([web("api")])
    valid = await bench.run()

    assert backends(valid.generation.text) == {"api": "roundrobin"}
    assert events_of(bench) == [("quarantined", "c1", "shop", False, 1), ("released", "c2", "shop", 0)]


@pytest.mark.haproxy
async def test_many_broken_objects_of_both_kinds_are_all_quarantined(bench: Bench) -> None:
    bench.put(
        *(with_nonsense(f"n{number}", "1") for number in range(70)),
        *(without_the_field(f"w{number}", "1") for number in range(10)),
        web("api"),
    )

    valid = await bench.run()

    assert backends(valid.generation.text) == {"api": "roundrobin"}
    assert bench.quarantine.count == 80


@pytest.mark.haproxy
async def test_very_many_warnings_about_an_object_hide_no_error_of_another(haproxy_binary: Path) -> None:
    # HAProxy warns about each rule behind one that ends every request.
    rules = "{% for _ in range(service.spec.rules) %}\n    http-request redirect location /\n{% endfor %}\n"
    bench = Bench(haproxy_binary, BACKENDS.replace("{% endfragment %}", rules + "{% endfragment %}"))
    noisy = [web(f"a{number}") for number in range(10)]
    quiet = [with_nonsense("shop", "1"), web("web")]
    for one in (*noisy, *quiet):
        one["spec"]["rules"] = 1_000 if one in noisy else 0
    bench.put(*noisy, *quiet)

    valid = await bench.run()

    assert sorted(backends(valid.generation.text)) == [*(f"a{number}" for number in range(10)), "web"]
    assert 1 <= len(valid.warnings) <= MOST_WARNINGS


@pytest.mark.haproxy
async def test_rejection_that_no_object_caused_names_its_place_and_quarantines_no_object(haproxy_binary: Path) -> None:
    bench = Bench(haproxy_binary, BACKENDS + "backend extra\n    balance nonsense\n")
    bench.put(web("api"))

    with pytest.raises(RejectedError) as caught:
        await bench.run()

    error = caught.value
    assert error.phase == "check"
    assert error.problems[0].source == "haproxy.cfg"
    assert error.problems[0].line > 10
    assert error.phases.check > 0
    assert events_of(bench) == []


@pytest.mark.haproxy
async def test_error_of_a_template_beside_a_broken_object_rejects_all(haproxy_binary: Path) -> None:
    bench = Bench(haproxy_binary, BACKENDS + "backend extra\n    balance nonsense\n")
    bench.put(web("api"), with_nonsense("shop", "1"))

    with pytest.raises(RejectedError) as caught:
        await bench.run()

    assert caught.value.phase == "check"


@pytest.mark.haproxy
@pytest.mark.parametrize(
    "fragment",
    [
        FRAGMENT.replace("service.spec.balance", "service.spec.balanse"),
        FRAGMENT.replace("balance {{", "balance and {{"),
        FRAGMENT.replace("    balance", "    balanse"),
    ],
    ids=["render", "check", "parse"],
)
@pytest.mark.parametrize("count", [1, 2, 120])
async def test_new_templates_that_break_every_object_are_at_fault_themselves(
    bench: Bench, fragment: str, count: int
) -> None:
    bench.put(*(web(f"s{number}") for number in range(count)))
    await bench.run()
    bench.reported()

    bench.configure(HEAD + EACH + fragment + "{% endfor %}\n")
    with pytest.raises(RejectedError) as caught:
        await bench.run()

    assert caught.value.problems
    assert caught.value.problems[0].subject.startswith("Service default/s")


@pytest.mark.haproxy
async def test_fixed_templates_serve_all_objects_again(bench: Bench) -> None:
    bench.put(web("api"), web("shop"))
    await bench.run()
    bench.configure(HEAD + EACH + FRAGMENT.replace("balance", "balanse") + "{% endfor %}\n")
    with pytest.raises(RejectedError):
        await bench.run()

    bench.configure(BACKENDS)
    valid = await bench.run()

    assert set(backends(valid.generation.text)) == {"api", "shop"}


async def test_write_during_a_cycle_belongs_to_the_next_one(tmp_path: Path) -> None:
    # The render of 300 objects takes long enough for a write to fall into it.
    bench = Bench(script(tmp_path / "haproxy", "exit 0"), BACKENDS + EACH + EACH + "{% endfor %}{% endfor %}")
    bench.put(*(web(f"s{number}") for number in range(300)))
    texts = []

    async def run_cycle() -> None:
        texts.append((await bench.run()).generation.text)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_cycle)
        await trio.testing.wait_all_tasks_blocked()
        bench.put(web("late"))
    texts.append((await bench.run()).generation.text)

    assert "backend late" not in texts[0]
    assert "backend late" in texts[1]


async def test_cycle_includes_a_write_during_a_question_about_the_newest_render(tmp_path: Path) -> None:
    bench = Bench(script(tmp_path / "haproxy", "exit 0"), BACKENDS)
    bench.put(web("api"))
    await bench.run()
    asked, may_answer = trio.Event(), threading.Event()

    def ask(_rendered: Rendered, _provenance: Provenance) -> bool:
        trio.from_thread.run_sync(asked.set)
        return may_answer.wait(30)

    texts = []

    async def run_cycle() -> None:
        texts.append((await bench.run()).generation.text)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.pipeline.consult, ask)
        await asked.wait()
        bench.put(web("late"))
        nursery.start_soon(run_cycle)
        await trio.testing.wait_all_tasks_blocked()
        may_answer.set()

    assert "backend late" in texts[0]


async def test_running_pipeline_goes_on_before_the_records_of_a_candidate_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = script(tmp_path / "haproxy", "exit 0")
    running, candidate = Bench(binary, BACKENDS), Bench(binary, BACKENDS)
    running.put(web("api"))
    await running.run()
    has_copied, has_rendered, take_over = trio.Event(), threading.Event(), Renderer.take_over

    def take_over_slowly(*arguments: Any) -> Callable[[], None]:
        complete = take_over(*arguments)

        def complete_later() -> None:
            trio.from_thread.run_sync(has_copied.set)
            assert has_rendered.wait(30)
            complete()

        return complete_later

    monkeypatch.setattr(Renderer, "take_over", take_over_slowly)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(candidate.pipeline.take_over, running.pipeline, ["services"])
        await has_copied.wait()
        running.put(web("late"))
        assert "backend late" in (await running.run()).generation.text
        has_rendered.set()

    # The candidate has what there was, and renders nothing of it again.
    assert "backend late" not in (await candidate.run()).generation.text
    assert [event.fragments_rendered for event in candidate.reported() if isinstance(event, ConfigRendered)] == [0]


async def test_cancelled_cycle_gives_the_stores_free(tmp_path: Path) -> None:
    bench = Bench(script(tmp_path / "haproxy", "exec sleep 60"), BACKENDS)
    bench.put(web("api"))
    with trio.move_on_after(0.1):
        await bench.run()

    bench.put(web("late"))

    assert [resource["metadata"]["name"] for resource in bench.services.list()] == ["api", "late"]
