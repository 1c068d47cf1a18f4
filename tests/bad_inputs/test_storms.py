"""25: very many changes of one object, objects that come back as others, and controllers that answer each other."""

import pytest

from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.status.kubernetes_events import NoticeBoard
from haptic_trio.status.object_events import QuarantinedObject, compare_quarantined, quarantined
from haptic_trio.templating.values.subjects import ObjectWarning
from haptic_trio.templating.values.warning_list import compare_warnings
from tests.bad_inputs.world import World, evil
from tests.support.kubernetes import path, service

pytestmark = pytest.mark.haproxy

MANY = 100


async def test_an_object_that_changes_all_the_time_costs_its_own_parts_and_no_more(world: World) -> None:
    costs = set()
    with world.beside(evil(), service("other")):
        await world.cycle()
        for number in range(MANY):
            world.put(evil(path(f"/{number % 7}", "good")))
            prepared = await world.pipeline.prepare("storm")
            costs.add(prepared.rendered.fragments_rendered)
        outcome = await world.cycle()

    # What each template has to say of an Ingress, and the backend that it names; the same every time.
    assert len(costs) == 1
    assert max(costs) < 40
    assert outcome.held == {}


async def test_an_object_that_alternates_between_good_and_bad_gets_few_events(world: World) -> None:
    board, reported, allowed = NoticeBoard(), dict[ResourceRef, QuarantinedObject](), 0
    for number in range(60):
        with world.beside(evil(path("/a b" if number % 2 else "/", "good"))):
            await world.pipeline.prepare("flapping")
        held = {one.ref: one for one in world.quarantine.objects}
        fresh, _gone = compare_quarantined(reported, held)
        reported = {**held}
        allowed += sum(board.put(quarantined(evil(), item), number / 10) is not None for item in fresh)

    assert 0 < allowed <= 11


async def test_an_object_that_comes_back_under_another_uid_is_another_one_to_its_owner_alone(world: World) -> None:
    texts = set()
    for uid in ("one", "two", "three"):
        reborn = evil()
        reborn["metadata"] |= {"uid": uid, "resourceVersion": uid}
        with world.beside(reborn):
            outcome = await world.cycle()
            assert outcome.held == {}
            texts.add(outcome.valid.generation.id)

    assert len(texts) == 1


async def test_a_status_that_is_written_again_and_again_makes_no_new_generation(world: World) -> None:
    generations = set()
    for number in range(20):
        echoed = {**evil(), "status": {"loadBalancer": {"ingress": [{"ip": f"192.0.2.{number}"}]}}}
        echoed["metadata"] = {**echoed["metadata"], "resourceVersion": str(number)}
        with world.beside(echoed):
            generations.add((await world.pipeline.prepare("echo")).generation.id)

    assert len(generations) == 1


async def test_kinds_that_are_gone_take_their_routes_along_and_nothing_else(world: World) -> None:
    gone = [one for name, store in world.stores.items() if name.startswith("http") for one in store.list()]
    world.remove(*gone)
    try:
        outcome = await world.cycle()
    finally:
        world.put(*gone)

    assert outcome.held == {}
    assert "good.example.com|/ default_good_80\n" in outcome.files["maps/path-prefix.map"]
    assert "good.test" not in outcome.files["maps/gateway-prefix.map"]


async def test_repeated_warnings_are_the_same_warning(world: World) -> None:
    before: tuple[ObjectWarning, ...] = ()
    with world.beside(evil(path("/", "gone"))):
        for number in range(20):
            changed = evil(path("/", "gone"))
            changed["metadata"] |= {"resourceVersion": str(number)}
            world.put(changed)
            await world.pipeline.prepare("again")
            fresh, gone = compare_warnings(before, world.quarantine.warnings)
            assert (len(fresh), len(gone)) == ((0, 0) if number else (1, 0))
            before = world.quarantine.warnings
