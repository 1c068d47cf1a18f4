"""An object that makes `haproxy -c` slow is found by CPU time and quarantined; a busy machine blames none."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.k8s.resource import Resource, ResourceRef
from haptic_trio.pipeline.rejection.crash_search import MOST_OF_GROUP
from haptic_trio.pipeline.rejection.errors import TimedOutError
from haptic_trio.pipeline.rejection.slow_search import MOST_MEASUREMENTS, find_slow_fragments, find_slow_namespaces
from haptic_trio.templating.values.subjects import FragmentKey
from tests.support.components.pipeline import HEAD, Bench
from tests.support.kubernetes import service
from tests.support.processes.scripts import script

ROUNDS = 90_000_000
"""Of SHA-512: tens of CPU seconds."""
HASH = "a" * 86
TEMPLATE = HEAD + (
    "{% each service in resources.services %}\n"
    "backend {{ ident(service.metadata.namespace, service.metadata.name) }}\n"
    "    balance {{ service.spec.balance | word }}\n"
    "{% if service.spec.rounds %}\n"
    "userlist {{ ident('users', service.metadata.namespace, service.metadata.name) }}\n"
    "    user u password $6$rounds={{ service.spec.rounds }}$abcdefgh$" + HASH + "\n"
    "{% endif %}\n"
    "{% endeach %}\n"
)
TIMEOUT = {"validation": {"checkTimeout": "2s"}}
"""What adds more than 0.2 s of CPU time is slow."""


def web(name: str, *, rounds: int = 0, version: str = "1", balance: str = "roundrobin", day: int = 0) -> Resource:
    namespace, _, own = name.partition("/")
    resource = service(own, rounds=rounds, balance=balance)
    created = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day)
    place = {"namespace": namespace, "resourceVersion": version, "creationTimestamp": f"{created:%Y-%m-%dT%H:%M:%SZ}"}
    return {**resource, "metadata": {**resource["metadata"], **place}}


def backends(text: str) -> set[str]:
    return {line.split()[1] for line in text.splitlines() if line.startswith("backend ")}


@pytest.mark.haproxy
async def test_an_object_that_makes_the_check_slow_is_quarantined_and_others_are_served(haproxy_binary: Path) -> None:
    bench = Bench(haproxy_binary, TEMPLATE, **TIMEOUT)
    bench.put(*(web(f"shop/n{number}") for number in range(3)))
    await bench.run()

    bench.put(web("evil/a", rounds=ROUNDS), web("shop/new", rounds=1000), web("other/new"))
    valid = await bench.run()

    assert backends(valid.generation.text) == {"shop_n0", "shop_n1", "shop_n2", "shop_new", "other_new"}
    [held] = bench.quarantine.objects
    assert str(held.ref) == "Service evil/a"
    assert held.problem.message == "HAProxy takes more than 0.2 s of CPU time to read it"
    assert "10% of `validation.checkTimeout`" in held.problem.hint

    bench.put(web("evil/a", rounds=1000, version="2"))
    assert "evil_a" in backends((await bench.run()).generation.text)
    assert bench.quarantine.objects == ()


@pytest.mark.haproxy
async def test_a_slow_object_that_is_gone_before_it_can_be_tried_is_counted(haproxy_binary: Path) -> None:
    bench = Bench(haproxy_binary, TEMPLATE, validation={"checkTimeout": "1s"})
    bench.put(web("shop/a"))
    await bench.run()
    measure = bench.validator.measure

    async def measure_after(*args: Any, **more: Any) -> float:
        for number in range(2):
            bench.services.delete(ResourceRef("Service", "evil", f"n{number}"))
        return await measure(*args, **more)

    bench.validator.measure = measure_after  # type: ignore[method-assign]
    for number in range(2):
        bench.put(web("evil/n0", rounds=ROUNDS, version=str(number)), web(f"shop/new{number}"))
        assert f"shop_new{number}" in backends((await bench.run()).generation.text)

    paused = bench.quarantine.setbacks.paused(trio.current_time())
    assert paused.objects.keys() == {("Service", "evil", "n0")}
    bench.put(web("evil/n0", rounds=ROUNDS, version="3"), web("shop/last"))
    assert {"shop_a", "shop_last"} < backends((await bench.run()).generation.text)
    [held] = bench.quarantine.objects
    assert "held back until" in held.problem.message


@pytest.mark.process
@pytest.mark.parametrize("objects", [1, 5])
async def test_a_check_that_waits_for_a_processor_blames_no_object(tmp_path: Path, objects: int) -> None:
    # However long it takes: it is the machine that does not run it.
    waiting = script(tmp_path / "haproxy", 'grep -q source "${@: -1}" 2>/dev/null && exec sleep 3600\nexit 0')
    waiting.write_text(waiting.read_text().replace("#!/bin/sh", "#!/bin/bash"))
    bench = Bench(waiting, TEMPLATE, validation={"checkTimeout": "500ms"})
    bench.put(web("shop/a"))
    await bench.run()
    bench.put(*(web(f"evil/n{number}", balance="source") for number in range(objects)))

    with pytest.raises(TimedOutError) as caught:
        await bench.run()

    assert bench.quarantine.objects == ()
    [problem] = caught.value.problems
    assert "raise `validation.checkTimeout`" in problem.hint


@pytest.mark.haproxy
async def test_the_youngest_objects_of_a_namespace_that_is_slow_as_a_whole_are_quarantined(
    haproxy_binary: Path,
) -> None:
    # Each object takes some 20 ms, where three seconds are too long, 100 ms are slow, and 333 ms are for a namespace.
    bench = Bench(haproxy_binary, TEMPLATE, validation={"checkTimeout": "1s"})
    bench.put(web("shop/old"))
    await bench.run()
    others = [web(f"n{number}/web", rounds=5_000) for number in range(20)]
    bench.put(*others, *(web(f"evil/n{number:03}", rounds=90_000, day=number) for number in range(400)))

    valid = await bench.run()

    names = sorted(name for name in backends(valid.generation.text) if name.startswith("evil"))
    assert {"shop_old", *(f"n{number}_web" for number in range(20))} < backends(valid.generation.text)
    assert names
    assert names == [f"evil_n{number:03}" for number in range(len(names))]
    held = bench.quarantine.objects
    assert {one.ref.namespace for one in held} == {"evil"}
    assert len(held) == 400 - len(names)
    assert "more than 0.333 s of CPU time to read the changed objects of the namespace evil" in held[0].problem.message
    assert "validation.checkTimeout" in held[0].problem.hint

    # A quarantined object is served once it is cheap.
    bench.put(web("evil/n399", version="2"))
    assert "evil_n399" in backends((await bench.run()).generation.text)


@pytest.mark.haproxy
async def test_many_objects_that_are_slow_only_together_are_not_quarantined(haproxy_binary: Path) -> None:
    # A large cluster in small: 240 objects of some 20 ms each, where three seconds are too long and 100 ms are slow.
    bench = Bench(haproxy_binary, TEMPLATE, validation={"checkTimeout": "1s"})
    bench.put(*(web(f"n{number}/web", rounds=90_000) for number in range(240)))

    with pytest.raises(TimedOutError):
        await bench.run()

    assert bench.quarantine.objects == ()


def keys_of(names: Collection[str]) -> dict[ResourceRef, tuple[FragmentKey, ...]]:
    found: dict[ResourceRef, tuple[FragmentKey, ...]] = {}
    for name in names:
        namespace, _, own = name.partition("/")
        found[ResourceRef("Service", namespace, own)] = (FragmentKey("web", "Service", namespace, own),)
    return found


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0.001, 0.002, 5.0])), max_size=80))
async def test_exactly_the_slow_are_found(objects: list[tuple[int, float]]) -> None:
    costs = {f"n{group}/{number}": cost for number, (group, cost) in enumerate(objects)}
    asked = 0

    async def is_slow(keys: Collection[FragmentKey]) -> bool:
        nonlocal asked
        asked += 1
        return sum(costs[f"{key.namespace}/{key.name}"] for key in keys) > 1.0

    fragments = await find_slow_fragments(keys_of(costs), is_slow)

    found = {f"{key.namespace}/{key.name}" for key in fragments.found}
    beside = {f"{key.namespace}/{key.name}" for key in fragments.beside}
    slow = {name for name, cost in costs.items() if cost > 1.0}
    of_group = [sum(name.startswith(f"n{group}/") for name in slow) for group in range(6)]
    assert found <= slow
    if asked < MOST_MEASUREMENTS:
        assert slow <= found | beside
    assert all(of_group[int(name[1])] > MOST_OF_GROUP for name in beside)
    assert asked <= MOST_MEASUREMENTS + 2


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0.0, 0.5)), max_size=60))
async def test_a_slow_namespace_loses_as_few_of_its_youngest_objects_as_possible(
    objects: list[tuple[int, float]],
) -> None:
    costs = {f"{f'n{group}' if group else ''}/{number}": cost for number, (group, cost) in enumerate(objects)}

    async def is_slow(keys: Collection[FragmentKey]) -> bool:
        return sum(costs[f"{key.namespace}/{key.name}"] for key in keys) > 1.0

    omitted = {f"{key.namespace}/{key.name}" for key in await find_slow_namespaces(keys_of(costs), is_slow)}

    assert not any(name.startswith("/") for name in omitted)
    for group in range(1, 6):
        own = [name for name in costs if name.startswith(f"n{group}/")]
        kept = [name for name in own if name not in omitted]
        assert own[: len(kept)] == kept
        assert len(kept) <= 1 or sum(costs[name] for name in kept) <= 1.0
        more = own[: len(kept) + 1]
        assert kept == own or sum(costs[name] for name in more) > 1.0


async def test_an_object_that_is_slow_in_one_of_two_measurements_is_not_found() -> None:
    seen: set[FragmentKey] = set()

    async def is_slow(keys: Collection[FragmentKey]) -> bool:
        [key] = keys
        is_first = key not in seen
        seen.add(key)
        return is_first

    assert await find_slow_fragments(keys_of(["shop/web"]), is_slow) == ((), ())
