"""An object on which HAProxy crashes is found and quarantined, and everything else is served in the same cycle."""

from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import Resource
from haptic_trio.messages import Quarantined, Released
from haptic_trio.pipeline.rejection.crash_search import MOST_OF_GROUP, find_culprits
from haptic_trio.pipeline.rejection.errors import CrashedError, UndecidedError
from tests.support.components.pipeline import HEAD, Bench
from tests.support.kubernetes import service
from tests.support.processes.scripts import script

pytestmark = pytest.mark.process

# HAProxy dies of `-u` without a number; phase 1 does not judge what stands inside `.if`.
CRASH = ".if 1\n    http-request deny if { path -u }\n.endif\n"
TEMPLATE = HEAD + (
    "{% each service in resources.services %}\n"
    "backend {{ ident(service.metadata.namespace, service.metadata.name) }}\n"
    "{% if service.spec.crashes %}\n" + CRASH + "{% endif %}\n"
    "    balance {{ service.spec.balance | word }}\n"
    "{% endeach %}\n"
)


def web(name: str, *, crashes: bool = False, balance: str = "roundrobin", version: str = "1") -> Resource:
    namespace, _, own = name.rpartition("/")
    resource = service(own, crashes=crashes, balance=balance)
    place = {"namespace": namespace or "default", "resourceVersion": version}
    return {**resource, "metadata": {**resource["metadata"], **place}}


def story(bench: Bench) -> list[tuple[str, str, bool]]:
    return [
        ("quarantined", str(event.ref), event.has_fallback)
        if isinstance(event, Quarantined)
        else ("released", str(event.ref), False)
        for event in bench.reported()
        if isinstance(event, Quarantined | Released)
    ]


def backends(text: str) -> list[str]:
    return [line.split()[1] for line in text.splitlines() if line.startswith("backend ")]


class Checks:
    """Counts the checks of a pipeline, and does something before some of them."""

    def __init__(self, bench: Bench) -> None:
        self.count = 0
        self.then: dict[int, Callable[[], None]] = {}
        self._check = bench.validator.check
        bench.validator.check = self.check  # type: ignore[method-assign]

    async def check(self, *args: Any, **more: Any) -> tuple[Problem, ...]:
        self.count += 1
        self.then.pop(self.count, lambda: None)()
        return await self._check(*args, **more)


@pytest.fixture
def bench(haproxy_binary: Path) -> Bench:
    """A pipeline with the real HAProxy and a backend for each Service."""
    return Bench(haproxy_binary, TEMPLATE)


@pytest.mark.haproxy
async def test_an_object_on_which_haproxy_crashes_is_quarantined_and_others_are_served(bench: Bench) -> None:
    bench.put(*(web(f"good-{number}") for number in range(5)))
    await bench.run()

    bench.put(web("evil/a", crashes=True), web("new-1"), web("new-2"))
    valid = await bench.run()

    assert sorted(backends(valid.generation.text)) == [f"default_good-{n}" for n in range(5)] + [
        "default_new-1",
        "default_new-2",
    ]
    [held] = bench.quarantine.objects
    assert str(held.ref) == "Service evil/a"
    assert held.problem.message == "HAProxy crashes on it (SIGSEGV)"
    assert held.problem.line > HEAD.count("\n")
    assert "made by fragment" in held.problem.hint
    assert story(bench) == [("quarantined", "Service evil/a", False)]


@pytest.mark.haproxy
async def test_at_a_cold_start_all_culprits_are_found(bench: Bench) -> None:
    bench.put(*(web(f"n{number}/one", crashes=number in {0, 3, 9}) for number in range(10)))

    valid = await bench.run()

    assert sorted(backends(valid.generation.text)) == [f"n{n}_one" for n in range(10) if n not in {0, 3, 9}]
    assert sorted(str(held.ref) for held in bench.quarantine.objects) == [f"Service n{n}/one" for n in (0, 3, 9)]


@pytest.mark.haproxy
async def test_many_culprits_of_one_namespace_cost_little_and_are_released_one_by_one(bench: Bench) -> None:
    bench.put(*(web(f"victim/{number}") for number in range(20)))
    bench.put(*(web(f"evil/n{number:02}", crashes=True) for number in range(20)), web("evil/other"))
    checks = Checks(bench)

    valid = await bench.run()

    assert sorted(backends(valid.generation.text)) == sorted(f"victim_{number}" for number in range(20))
    assert len(bench.quarantine.objects) == 21
    assert checks.count < 60

    bench.put(web("evil/other", balance="source", version="2"), web("evil/n19", version="2"))
    assert {"evil_n19", "evil_other"} < set(backends((await bench.run()).generation.text))
    assert len(bench.quarantine.objects) == 19


@pytest.mark.haproxy
async def test_what_changes_during_the_search_is_judged_by_itself(bench: Bench) -> None:
    bench.put(*(web(f"n{number}/one") for number in range(6)), web("n6/one", crashes=True))
    checks = Checks(bench)
    checks.then = {
        2: lambda: bench.put(web("n8/late", crashes=True)),
        3: lambda: bench.put(web("n2/one", balance="source", version="2"), web("n9/late")),
    }

    valid = await bench.run()

    assert sorted(backends(valid.generation.text)) == [*(f"n{number}_one" for number in range(6)), "n9_late"]
    assert sorted(str(held.ref) for held in bench.quarantine.objects) == ["Service n6/one", "Service n8/late"]
    assert "balance 'source'" in valid.generation.text


@pytest.mark.haproxy
async def test_an_object_that_is_fixed_during_the_search_blames_no_object(bench: Bench) -> None:
    bench.put(*(web(f"n{number}/one", crashes=number == 0) for number in range(8)))
    checks = Checks(bench)
    checks.then = {4: lambda: bench.put(web("n0/one", version="2"))}

    with suppress(CrashedError):
        await bench.run()
    valid = await bench.run()

    assert len(backends(valid.generation.text)) == 8
    assert bench.quarantine.objects == ()


@pytest.mark.haproxy
async def test_an_object_that_comes_to_crash_is_served_as_it_was_until_it_is_corrected(bench: Bench) -> None:
    bench.put(web("shop"), web("api"))
    await bench.run()

    bench.put(web("shop", crashes=True, balance="source", version="2"), web("api", balance="source", version="2"))
    during = (await bench.run()).generation.text
    again = (await bench.run()).generation.text
    bench.put(web("shop", balance="leastconn", version="3"))
    after = (await bench.run()).generation.text

    assert "balance 'roundrobin'" in during
    assert during.count("balance 'source'") == 1
    assert again == during
    assert "balance 'leastconn'" in after
    assert story(bench) == [("quarantined", "Service default/shop", True), ("released", "Service default/shop", False)]


@pytest.mark.haproxy
async def test_a_crash_without_any_object_is_a_verdict_and_quarantines_no_object(haproxy_binary: Path) -> None:
    bench = Bench(haproxy_binary, TEMPLATE + "backend own\n" + CRASH)
    bench.put(web("shop"))

    with pytest.raises(CrashedError, match="crashes on it") as caught:
        await bench.run()

    assert not isinstance(caught.value, UndecidedError)
    assert story(bench) == []


@pytest.mark.parametrize("signal", ["SEGV", "ABRT", "BUS"])
async def test_a_wrapper_that_dies_of_a_word_leads_to_the_object_with_that_word(tmp_path: Path, signal: str) -> None:
    binary = script(tmp_path / "haproxy", f'grep -q random "${{@: -1}}" 2>/dev/null && kill -{signal} $$\nexit 0')
    binary.write_text(binary.read_text().replace("#!/bin/sh", "#!/bin/bash"))
    bench = Bench(binary, TEMPLATE)
    bench.put(web("a"), web("b", balance="random"), web("c"))

    assert backends((await bench.run()).generation.text) == ["default_a", "default_c"]


@pytest.mark.parametrize("signal", ["KILL", "TERM"])
async def test_a_check_that_is_ended_from_outside_is_not_a_verdict(tmp_path: Path, signal: str) -> None:
    bench = Bench(script(tmp_path / "haproxy", f"kill -{signal} $$"), TEMPLATE)
    bench.put(web("a"))

    with pytest.raises(UndecidedError):
        await bench.run()

    assert bench.quarantine.objects == ()


@given(st.sets(st.integers(0, 59)), st.lists(st.integers(0, 5), min_size=60, max_size=60), st.integers(1, 60))
async def test_exactly_the_culprits_are_found(guilty: set[int], groups: list[int], count: int) -> None:
    asked = 0

    async def crashes(left_out: Collection[int]) -> bool:
        nonlocal asked
        asked += 1
        return bool({one for one in guilty if one < count} - set(left_out))

    culprits = await find_culprits(range(count), crashes, group=lambda one: str(groups[one]))

    found = [*culprits.found, *culprits.beside]
    expected = {one for one in guilty if one < count}
    many = {group for group in groups if sum(groups[one] == group for one in expected) >= MOST_OF_GROUP}
    assert set(found) - {one for one in range(count) if groups[one] in many} == {
        one for one in expected if groups[one] not in many
    }
    if not many:
        assert set(found) == expected
    assert expected <= set(found)
    assert len(found) == len(set(found))
    assert asked <= 1 + 9 * min(len(expected), 6 * MOST_OF_GROUP) or not expected


async def test_where_it_takes_two_the_last_is_the_culprit() -> None:
    async def crashes(left_out: Collection[str]) -> bool:
        return not {"b", "d"} & set(left_out)

    assert await find_culprits("abcdef", crashes, group=str) == (["d"], [])


async def test_without_suspects_to_leave_out_nothing_is_a_culprit() -> None:
    async def crashes(_left_out: Collection[str]) -> bool:
        return True

    assert await find_culprits("abc", crashes, group=str) == ([], [])


async def test_a_crash_that_goes_away_blames_no_object() -> None:
    answers = iter([False, True, True])

    async def crashes(_left_out: Collection[str]) -> bool:
        return next(answers, False)

    assert await find_culprits("abcdefgh", crashes, group=str) == ([], [])
