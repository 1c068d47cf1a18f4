"""Over stores that fetch on demand a render gives what it gives over full ones, whatever happens in between."""

from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.render import Rendered, Renderer
from tests.pipeline.test_incremental import MAPS, PARTS, SNIPPETS, objects
from tests.support.components.on_demand import Pair, config_map, created, service

STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(["Service", "ConfigMap"]).flatmap(objects)),
    # The cluster has the object before the watch reports it.
    st.tuples(st.just("late"), st.sampled_from(["Service", "ConfigMap"]).flatmap(objects)),
    st.tuples(st.just("remove"), st.integers(0, 20)),
    st.tuples(st.just("relist"), st.sampled_from(["Service", "ConfigMap"])),
    st.tuples(st.just("forbid"), st.integers(0, 20)),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 100.0, 1000.0])),
)


async def ignore(_refs: tuple[ResourceRef, ...]) -> None:
    await trio.lowlevel.checkpoint()


async def play(pair: Pair, steps: list[tuple[str, Any]], clock: trio.testing.MockClock) -> None:
    async def wait(seconds: float) -> None:
        # The clock stands still while a render waits for its thread.
        clock.jump(seconds)
        await trio.testing.wait_all_tasks_blocked()

    late: dict[ResourceRef, Resource] = {}
    async with trio.open_nursery() as nursery:
        for store in pair.demanding():
            nursery.start_soon(store.run_upkeep, ignore)
        for step, value in steps:
            if step == "late":
                late[ref_of(value)] = pair.write(value)
                # Whatever that gives is of neither moment, but nothing that may last.
                await pair.render(pair.sparse)
                continue
            for resource in late.values():
                pair.report(resource)
            late.clear()
            if step == "wait":
                await wait(value)
            else:
                await take_step(pair, step, value)
            # Beyond every delay before another attempt.
            await wait(100)
            await pair.is_same()
        nursery.cancel_scope.cancel()


async def take_step(pair: Pair, step: str, value: Any) -> None:
    known = sorted(pair.cluster.objects)
    match step:
        case "put":
            pair.put(value)
        case "remove" if known:
            pair.remove(known[value % len(known)])
        case "relist":
            pair.relist(value)
        case "forbid" if known:
            pair.cluster.forbidden.add(known[value % len(known)])
            await pair.render(pair.sparse)
            pair.cluster.forbidden.clear()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    main=st.lists(st.sampled_from(PARTS), min_size=1, max_size=4),
    maps=st.lists(st.sampled_from(MAPS), min_size=1, max_size=2),
    steps=st.lists(STEPS, min_size=1, max_size=10),
)
def test_on_demand_gives_what_full_stores_give(main: list[str], maps: list[str], steps: list[tuple[str, Any]]) -> None:
    templates = {f"{name}.map": {"template": text} for name, text in zip("ab", maps, strict=False)}
    pair = Pair("".join(main), templateSnippets=SNIPPETS, maps=templates)
    clock = trio.testing.MockClock()
    trio.run(play, pair, steps, clock, clock=clock)


SHOW = "{% each s in resources.services as 'show' %}\n{{ s.metadata.name }} {{ s.spec.n }}\n{% endeach %}\n"


async def test_what_no_template_uses_is_not_fetched_and_the_rest_once() -> None:
    pair = Pair(
        "{% each s in resources.services as 'f' by ['metadata.creationTimestamp', 'metadata.name'] %}"
        "{% if s.metadata.name in ['b', 'c'] %}{{ s.metadata.name }}{{ s.spec.n }} {% endif %}{% endeach %}\n"
        "{% if resources.services.get('x', 'a') %}{{ resources.services.list() | length }}{% endif %}\n"
    )
    for number, name in enumerate("abcd"):
        pair.put(created(service(name, n=number)))
    assert await pair.texts() == "b1 c2 4"
    assert sorted(pair.cluster.fetched) == ["b", "c"]

    pair.cluster.fetched.clear()
    pair.put(created(service("a", n=9)))
    assert await pair.texts() == "b1 c2 4"
    pair.put(created(service("c", n=3)))
    assert await pair.texts() == "b1 c3 4"
    assert pair.cluster.fetched == ["c"]


async def test_one_change_renders_one_fragment() -> None:
    pair = Pair(SHOW)
    for number in range(20):
        pair.put(service(f"s{number}", n=number))
    first = await pair.render(pair.sparse)
    assert isinstance(first, Rendered)
    pair.put(service("s7", n=70))
    second = await pair.render(pair.sparse)
    assert isinstance(second, Rendered)
    assert "s7 70" in second.text
    # Once without the object, once with it.
    assert second.fragments_rendered == 2
    assert list(second.changed.values()) == [second.produced[key] for key in second.changed]
    assert len(second.changed) == 1


async def test_what_is_found_together_is_fetched_together() -> None:
    passes = 0

    class Counting(Renderer):
        def _render(self, *args: Any, **kwargs: Any) -> Any:
            nonlocal passes
            passes += 1
            return super()._render(*args, **kwargs)

    for template in (
        "{% for s in resources.services.list() %}{{ s.spec.n }} {% endfor %}\n",
        "{% for s in resources.services.get('x') %}{{ s.spec.n }} {% endfor %}\n",
        "{{ resources.services.pick('spec.n', 'x') | join(' ') }}\n",
        "{% for s in resources.services.list() %}{% fragment 'f' for s %}{{ s.spec.n }}{% endfragment %}{% endfor %}\n",
        "{% each s in resources.services as 'f' by ['spec.n:desc'] %}{{ s.spec.n }} {% endeach %}\n",
        "{% set all %}{% each s in resources.services as 'f' by 'spec.n' %}{{ s.spec.n }} {% endeach %}{% endset %}\n",
        "{{ resources.services.list() | sort_by('spec.n') | map(attribute='spec.n') | join(' ') }}\n",
        "{{ (resources.services.list() | list | dig('[?@.spec.n > 28]')).spec.n }}\n",
    ):
        pair = Pair(template)
        for number in range(30):
            pair.put(service(f"s{number}", n=number))
        passes = 0
        pair.sparse[0].__class__ = Counting
        await pair.is_same()
        assert passes == 2, template
        assert len(pair.cluster.fetched) == 30
        assert all(store.cached <= 2 for store in pair.demanding())


async def test_order_by_what_has_to_be_fetched_follows_changes() -> None:
    pair = Pair("{% each s in resources.services as 'f' by 'spec.n' %}{{ s.metadata.name }} {% endeach %}\n")
    for number, name in enumerate("abcd"):
        pair.put(service(name, n=number))
    assert await pair.texts() == "a b c d"
    pair.put(service("a", n=9))
    pair.put(service("e", n=-1))
    assert await pair.texts() == "e b c d a"

    pair.put(service("c", n=99))
    pair.cluster.forbidden.add(ResourceRef("Service", "x", "c"))
    # Its last good output stays where it was.
    assert await pair.texts() == "e b c d a"


async def test_an_object_that_cannot_be_fetched_keeps_its_last_output_and_no_other_suffers(
    mock_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    pair = Pair(SHOW)
    store = next(store for store in pair.demanding() if store.name == "services")
    retried: list[tuple[ResourceRef, ...]] = []

    async def retry(refs: tuple[ResourceRef, ...]) -> None:
        retried.append(refs)
        await trio.lowlevel.checkpoint()

    nursery.start_soon(store.run_upkeep, retry)
    for name in "abc":
        pair.put(service(name, n=1))
    await pair.texts()

    ref = ResourceRef("Service", "x", "b")
    pair.cluster.forbidden.add(ref)
    for name in "abc":
        pair.put(service(name, n=2))
    pair.put(service("new", n=2))
    pair.cluster.forbidden.add(ResourceRef("Service", "x", "new"))
    rendered = await pair.render(pair.sparse)
    assert isinstance(rendered, Rendered)
    assert rendered.text.split() == ["a", "2", "b", "1", "c", "2"]
    held = {rejection.subject.name: rejection for rejection in rendered.rejections}
    assert held["b"].has_fallback
    assert not held["new"].has_fallback
    assert "Service x/b could not be fetched" in held["b"].problem.message
    assert "403 no" in held["b"].problem.message
    assert "grant it" in held["b"].problem.hint

    # Not before it is time, however often something else is rendered.
    pair.cluster.fetched.clear()
    pair.put(service("a", n=3))
    await pair.texts()
    assert pair.cluster.fetched == ["a"]
    pair.cluster.forbidden.clear()
    mock_clock.jump(5)
    await trio.testing.wait_all_tasks_blocked()
    assert {ref for refs in retried for ref in refs} == {ref, ResourceRef("Service", "x", "new")}
    rendered = await pair.render(pair.sparse)
    assert isinstance(rendered, Rendered)
    assert rendered.text.split() == ["a", "3", "b", "2", "c", "2", "new", "2"]
    assert rendered.rejections == ()
    nursery.cancel_scope.cancel()


async def test_an_object_deleted_before_it_was_fetched_is_reported_until_the_watch_event() -> None:
    pair = Pair(SHOW)
    for name in "ab":
        pair.put(service(name, n=1))
    del pair.cluster.objects[ResourceRef("Service", "x", "a")]
    rendered = await pair.render(pair.sparse)
    assert isinstance(rendered, Rendered)
    assert rendered.text.split() == ["b", "1"]
    (rejection,) = rendered.rejections
    assert "does not exist any more" in rejection.problem.message

    pair.remove(ResourceRef("Service", "x", "a"))
    rendered = await pair.render(pair.sparse)
    assert isinstance(rendered, Rendered)
    assert rendered.rejections == ()


async def test_a_cluster_that_does_not_answer_holds_a_render_up_for_seconds_however_much_is_wanted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pair = Pair(SHOW)
    for number in range(100):
        pair.put(service(f"s{number}", n=number))
    pair.cluster.answers = False
    before = trio.current_time()
    rendered = await pair.render(pair.sparse)
    assert trio.current_time() - before <= 10
    assert isinstance(rendered, Rendered)
    assert len(rendered.rejections) == 100
    assert "has not responded" in rendered.rejections[-1].problem.message


async def test_what_fails_outside_of_all_objects_for_want_of_one_fails_the_render() -> None:
    pair = Pair("{{ resources.services.get_single('x', 'a').spec.n }}\n")
    pair.put(service("a", n=1))
    pair.cluster.forbidden.add(ResourceRef("Service", "x", "a"))
    problems = await pair.render(pair.sparse)
    assert isinstance(problems, tuple)
    assert "could not be fetched" in problems[0].message
    assert problems[0].line == 1


async def test_a_render_does_not_fetch_one_thing_after_another_forever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    names = [f"s{number}" for number in range(20)]
    pair = Pair(
        f"{{% for name in {names} %}}{{{{ resources.services.get_single('x', name).spec.n }}}} {{% endfor %}}\n"
    )
    for name in names:
        pair.put(service(name, n=1))
    pair.cluster.delay = 4.0
    problems = await pair.render(pair.sparse)
    assert isinstance(problems, tuple)
    assert "still look up missing objects: services" in problems[0].message
    assert "within fragments" in problems[0].hint
    assert trio.current_time() < 70
    pair.cluster.delay = 0.1
    assert await pair.texts() == " ".join("1" * 20)


async def test_a_render_given_up_while_it_fetches_leaves_nothing_wrong_behind() -> None:
    pair = Pair(SHOW)
    for name in "ab":
        pair.put(service(name, n=1))
    pair.cluster.answers = False
    with trio.move_on_after(0.2) as giving_up:
        await pair.render(pair.sparse)
    assert giving_up.cancelled_caught
    pair.cluster.answers = True
    await pair.is_same()


async def test_a_template_imported_by_a_fragment_may_use_what_has_to_be_fetched() -> None:
    pair = Pair(
        "{% each s in resources.others as 'f' %}{% import 'module' as m %}{{ m.first }} {% endeach %}\n",
        templateSnippets={"module": {"template": "{% set first = resources.services.get('x', 'a')[0].spec.n %}"}},
    )
    pair.put(config_map("o"))
    await pair.is_same()
    pair.put(service("a", n=1))
    assert await pair.texts() == "1"
    pair.put(service("a", n=2))
    assert await pair.texts() == "2"
    await pair.is_same()


async def test_an_occasional_full_render_fetches_the_objects_it_needs() -> None:
    pair = Pair(SHOW, validation={"paranoiaEvery": 2})
    for number in range(10):
        pair.put(service(f"s{number}", n=number))
    for number in range(4):
        pair.put(service("s3", n=number + 20))
        rendered = await pair.render(pair.sparse)
        assert isinstance(rendered, Rendered)
        assert rendered.differing == ()
        assert f"s3 {number + 20}\n" in rendered.text


async def test_an_object_newer_than_the_watch_knows_is_not_fetched_again_when_it_does() -> None:
    pair = Pair(SHOW)
    pair.put(service("a", n=1))
    newer = pair.write(service("a", n=2))
    assert await pair.texts() == "a 2"
    pair.report(newer)
    assert await pair.texts() == "a 2"
    assert pair.cluster.fetched == ["a"]


def test_nothing_can_be_fetched_by_who_blocks() -> None:
    pair = Pair(SHOW)
    pair.put(service("a", n=1))
    renderer, stores, _quarantine = pair.sparse
    with pytest.raises(RejectedError) as caught:
        renderer.render_here(stores)
    assert "services" in caught.value.problems[0].message
