"""Answers that are compared, in rehearsals: what was tried leaves none behind, and what is shared costs nothing."""

from functools import partial
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.k8s.store import Stores
from haptic_trio.pipeline.render import Renderer
from haptic_trio.pipeline.review.dry_run_object import DryRunRender, render_dry_run
from haptic_trio.templating.incremental.outputs import Recall
from tests.support.components.pipeline import config_of, stores_of
from tests.support.kubernetes import service

ASKING = (
    "global\n    maxconn 10\n"
    "{% each service in resources.services %}\n# {{ service.metadata.name }}"
    "{{ ' there' if resources.services.has('default', service.spec.other) }}"
    "{% for n in resources.services.pick('spec.n', 'default', service.spec.other) if n %} {{ n }}{% endfor %}"
    "\n{% endeach %}\n"
)


def renderer_and_stores() -> tuple[Renderer, Stores]:
    config = config_of(ASKING)
    return Renderer(config), stores_of(config)


async def tried(renderer: Renderer, stores: Stores, name: str, replacement: Resource | None) -> DryRunRender:
    with stores.frozen(), trio.fail_after(60):
        replacements = {"services": {ref_of(service(name)): replacement}}
        return await render_dry_run(renderer, stores, replacements, Recall(), limit=60)


async def text_of(renderer: Renderer, stores: Stores) -> str:
    with stores.frozen():
        return (await renderer.render(stores)).text


async def test_a_part_without_reader_is_tried_without_rendering_other_readers() -> None:
    renderer, stores = renderer_and_stores()
    shared = service("shared", other="none", n=1)
    stores["services"].replace([shared, *(service(f"s{number}", other="shared") for number in range(50))])
    before = await text_of(renderer, stores)
    assert before.count("there 1#") == 50

    dry_run = await tried(renderer, stores, "shared", service("shared", other="none", n=1, more=True))
    assert {key.name for key in dry_run.changed} == {"shared"}
    dry_run = await tried(renderer, stores, "shared", service("shared", other="none", n=2))
    assert len(dry_run.changed) == 51
    assert dry_run.after is not None
    assert dry_run.after.text.count("there 2#") == 50
    assert await text_of(renderer, stores) == before


NAMES = st.sampled_from("abc")
OBJECTS = st.builds(lambda name, other, n: service(name, other=other, n=n), NAMES, NAMES, st.integers(0, 2))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), OBJECTS),
        st.tuples(st.just("remove"), NAMES),
        st.tuples(st.just("try"), OBJECTS),
        st.tuples(st.just("try without"), NAMES),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=40)
@given(STEPS)
def test_any_dry_runs_leave_the_result_of_a_full_render(steps: list[tuple[str, Any]]) -> None:
    trio.run(partial(_play, steps))


async def _play(steps: list[tuple[str, Any]]) -> None:
    renderer, stores = renderer_and_stores()
    await text_of(renderer, stores)
    for verb, value in steps:
        match verb:
            case "put":
                stores["services"].upsert(value)
            case "remove":
                stores["services"].delete(ref_of(service(value)))
            case "try":
                await text_of(renderer, stores)
                await tried(renderer, stores, value["metadata"]["name"], value)
            case "try without":
                await text_of(renderer, stores)
                await tried(renderer, stores, value, None)
        assert await text_of(renderer, stores) == Renderer(config_of(ASKING)).render_here(Stores(stores.values())).text
