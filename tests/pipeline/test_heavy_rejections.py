"""Heavy changes and rejected objects: what fails, is quarantined or is released makes no cycle long."""

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline import heavy_changes
from haptic_trio.pipeline.cycle import Prepared
from tests.pipeline.heavy import NAMES, NONSENSE, PASSWORD, SHARED, Bench, authorities, site, users, web
from tests.support.kubernetes import ingress, path, rule

# The validator asks for the version of an HAProxy, which does not exist.
pytestmark = pytest.mark.process

TURNS = 14
"""More than the turns of one Ingress."""


@pytest.fixture(autouse=True)
def _few_dependents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each change count as heavy that two turns depend on."""
    monkeypatch.setattr(heavy_changes, "MOST_DEPENDENTS", 1)


@pytest.fixture
async def bench() -> Bench:
    bench = Bench()
    bench.put(*(site(number) for number in NAMES))
    await bench.cycle()
    return bench


@pytest.fixture
async def shared_host() -> Bench:
    """Return a bench with Ingresses of one host, each of which depends on the oldest one."""
    bench = Bench()
    bench.put(authorities(0), oldest("h1"), *(site(number, host=1, where=f"/{number}") for number in range(3 * TURNS)))
    await bench.cycle()
    return bench


def oldest(host: str, **annotations: str) -> Resource:
    """Return the oldest Ingress of *host*; on another host than before, the others have another oldest one."""
    return ingress("oldest", rule(f"{host}.test", path("/oldest", "web", "http")), age=1, annotations=annotations)


async def settle(bench: Bench) -> tuple[Prepared, int]:
    """Run cycles and steps until nothing waits; return the last one, and the most fragments that one rendered."""
    prepared = await bench.cycle()
    most = prepared.rendered.fragments_rendered
    while bench.pipeline.is_behind:
        if await bench.pipeline.render_ahead():
            prepared = await bench.cycle()
            most = max(most, prepared.rendered.fragments_rendered)
    return prepared, most


def paths(prepared: Prepared) -> str:
    return prepared.rendered.texts["maps/path-prefix.map"].text


@pytest.mark.parametrize("was_valid", [False, True])
async def test_turns_of_rejected_objects_are_rendered_ahead(bench: Bench, *, was_valid: bool) -> None:
    if not was_valid:
        for number in NAMES:
            bench.delete(site(number))
        await bench.catch_up()
    bench.put(*(site(number, annotations=NONSENSE) for number in NAMES))
    before = await bench.catch_up()
    assert [rejection.has_fallback for rejection in before.rendered.rejections] == [was_valid] * len(NAMES)
    bench.put(web(81))

    prepared, steps = await bench.take_in_heavy()

    assert steps >= 2 * len(NAMES)
    assert bench.port() == 81
    assert prepared.rendered.fragments_rendered <= 3
    assert prepared.rendered.rejections == before.rendered.rejections


async def test_turns_that_hash_passwords_are_rendered_ahead(bench: Bench) -> None:
    bench.put(users(), *(site(number, annotations=PASSWORD) for number in NAMES))
    await bench.catch_up()
    for change in (web(81), users(2000)):
        bench.put(change)

        prepared, steps = await bench.take_in_heavy()

        assert steps >= len(NAMES)
        assert prepared.rendered.fragments_rendered <= 3
        assert not prepared.rendered.rejections
    assert bench.targets(prepared) == {f"default_i{number}_web_81" for number in NAMES}
    assert prepared.rendered.text.count("$5$rounds=2000$") == len(NAMES)


async def test_objects_that_a_change_quarantines_or_releases_are_rendered_ahead(bench: Bench) -> None:
    bench.put(authorities(0), *(site(number, annotations=SHARED) for number in NAMES))
    await bench.catch_up()
    bench.delete(authorities(0))

    prepared, _ = await bench.take_in_heavy()
    assert {rejection.subject.name for rejection in prepared.rendered.rejections} == {f"i{one}" for one in NAMES}
    assert prepared.rendered.fragments_rendered <= 3

    bench.put(authorities(0))
    prepared, _ = await bench.take_in_heavy()
    assert not prepared.rendered.rejections
    assert prepared.rendered.fragments_rendered <= 3


async def test_an_object_that_many_depend_on_is_quarantined_by_a_short_cycle(shared_host: Bench) -> None:
    shared_host.put(oldest("h2", **NONSENSE))

    prepared, most = await settle(shared_host)

    assert [rejection.subject.name for rejection in prepared.rendered.rejections] == ["oldest"]
    assert "h1.test|/oldest/ " in paths(prepared)
    assert most <= TURNS


async def test_an_object_that_many_depend_on_is_released_when_these_are_rendered_ahead(shared_host: Bench) -> None:
    shared_host.put(oldest("h2", **NONSENSE))
    await shared_host.catch_up()
    shared_host.put(oldest("h2"))

    prepared = await shared_host.cycle()
    assert prepared.rendered.fragments_rendered <= TURNS
    assert [rejection.subject.name for rejection in prepared.rendered.rejections] == ["oldest"]
    assert "h1.test|/oldest/ " in paths(prepared)
    prepared, most = await settle(shared_host)

    assert most <= 2 * TURNS
    assert not prepared.rendered.rejections
    assert "h2.test|/oldest/ " in paths(prepared)
    assert "h1.test|/oldest/ " not in paths(prepared)
    assert not shared_host.pipeline.is_behind


async def test_an_object_that_failed_only_while_it_was_rendered_ahead_is_served(shared_host: Bench) -> None:
    shared_host.delete(authorities(0))
    await shared_host.catch_up()
    shared_host.put(oldest("h2", **SHARED))
    await shared_host.cycle()
    while not await shared_host.pipeline.render_ahead():
        pass
    shared_host.put(authorities(0))

    prepared, most = await settle(shared_host)

    assert not prepared.rendered.rejections
    assert "h2.test|/oldest/ " in paths(prepared)
    assert most <= 2 * TURNS


async def test_an_object_that_waits_for_its_release_may_change_and_fail_again(shared_host: Bench) -> None:
    shared_host.put(oldest("h2", **NONSENSE))
    await shared_host.catch_up()
    shared_host.put(oldest("h2"))
    await shared_host.cycle()
    await shared_host.pipeline.render_ahead()
    shared_host.put(oldest("h3", **NONSENSE))

    prepared, most = await settle(shared_host)
    assert [rejection.subject.resource_version for rejection in prepared.rendered.rejections] == ["1"]
    assert most <= 4 * TURNS
    shared_host.put(oldest("h3"))
    prepared, most = await settle(shared_host)

    assert not prepared.rendered.rejections
    assert "h3.test|/oldest/ " in paths(prepared)
    assert most <= 2 * TURNS


async def test_an_object_is_released_by_the_change_of_another_when_its_dependents_are_rendered_ahead(
    shared_host: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heavy_changes, "MOST_DEPENDENTS", 2 * TURNS)
    shared_host.put(oldest("h1", **SHARED))
    await shared_host.catch_up()
    shared_host.delete(authorities(0))
    await shared_host.catch_up()
    shared_host.put(oldest("h2", **SHARED))
    await shared_host.catch_up()
    shared_host.put(authorities(0))

    prepared, most = await settle(shared_host)

    assert not prepared.rendered.rejections
    assert "h2.test|/oldest/ " in paths(prepared)
    assert most <= 2 * TURNS


async def test_a_quarantined_object_that_many_depend_on_is_deleted_when_these_are_rendered_ahead(
    shared_host: Bench,
) -> None:
    shared_host.put(oldest("h2", **NONSENSE))
    await shared_host.catch_up()
    shared_host.delete(oldest("h2"))

    prepared, most = await settle(shared_host)

    assert not prepared.rendered.rejections
    assert "/oldest/" not in paths(prepared)
    assert most <= TURNS


async def test_an_object_that_waits_for_its_release_is_deleted(shared_host: Bench) -> None:
    shared_host.put(oldest("h2", **NONSENSE))
    await shared_host.catch_up()
    shared_host.put(oldest("h2"))
    await shared_host.cycle()
    await shared_host.pipeline.render_ahead()
    shared_host.delete(oldest("h2"))

    prepared, most = await settle(shared_host)

    assert not prepared.rendered.rejections
    assert "/oldest/" not in paths(prepared)
    assert most <= 2 * TURNS
