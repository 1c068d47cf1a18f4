"""A namespace whose reviews take long has none for some time, and long reviews of many namespaces become short."""

from pathlib import Path

import pytest

from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.pipeline.review.dry_run import DryRun
from haptic_trio.pipeline.review.dry_run_object import LONGEST_RENDER, DryRunError
from haptic_trio.pipeline.review.pauses import BUDGET, FREE, PAUSE, REFILL, SHORT_RENDER, USUAL, ReviewPauses
from tests.support.components.controller import accepting_binary
from tests.support.components.pipeline import Bench
from tests.support.kubernetes import service

COSTLY = """\
global
    maxconn 10
{% each service in resources.services %}
# {{ service.metadata.name }}
{% for a in range(service.spec.rounds) %}{% for b in range(1000) %}{% endfor %}{% endfor %}
{% endeach %}
"""


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_pause_lasts_ten_times_as_long_as_the_review_took_beyond_what_is_free() -> None:
    clock = Clock()
    pauses = ReviewPauses(now=clock)

    pauses.note("cheap", FREE)
    pauses.note("", 60.0)
    pauses.note("costly", FREE + 1.0)

    pauses.check("cheap")
    pauses.check("")
    clock.now += PAUSE - 0.1
    with pytest.raises(DryRunError, match=r"there is none for 0\.1 s"):
        pauses.check("costly")
    clock.now += 0.2
    pauses.check("costly")


def test_renders_are_short_while_long_reviews_of_many_namespaces_have_spent_their_budget() -> None:
    clock = Clock()
    pauses = ReviewPauses(now=clock)

    pauses.note("first", USUAL + 0.6 * BUDGET)
    assert pauses.longest_render("victim") == LONGEST_RENDER
    pauses.note("second", USUAL + 0.6 * BUDGET)
    assert pauses.longest_render("victim") == SHORT_RENDER

    # Those of administrators are not.
    assert pauses.longest_render("") == LONGEST_RENDER
    clock.now += 0.3 * BUDGET / REFILL
    assert pauses.longest_render("victim") == LONGEST_RENDER


def test_usual_reviews_and_those_of_administrators_spend_nothing() -> None:
    pauses = ReviewPauses(now=Clock())

    for number in range(1000):
        pauses.note(f"tenant-{number}", USUAL)
        pauses.note("", 10.0)

    assert pauses.longest_render("tenant-0") == LONGEST_RENDER


def test_renders_have_their_usual_time_again_soon_after_any_number_of_long_reviews() -> None:
    clock = Clock()
    pauses = ReviewPauses(now=clock)
    for number in range(1000):
        pauses.note(f"attacker-{number}", 1.0)

    clock.now += BUDGET / REFILL + 0.1

    assert pauses.longest_render("victim") == LONGEST_RENDER


@pytest.mark.process
async def test_costly_reviews_of_a_namespace_again_and_again_leave_time_for_others(tmp_path: Path) -> None:
    bench = Bench(accepting_binary(), COSTLY)
    bench.put(service("web", rounds=0))
    await bench.run()
    dry_runs = bench.dry_runs(tmp_path)

    async def try_out(resource: Resource) -> DryRun:
        return await dry_runs.run({"services": {ref_of(resource): resource}}, limit=10.0)

    with pytest.raises(DryRunError, match="too long"):
        await try_out(service("slow", namespace="attacker", rounds=90_000))
    with pytest.raises(DryRunError, match="an earlier review of an object of its namespace took long"):
        await try_out(service("slow", namespace="attacker", rounds=90_000))

    found = await try_out(service("new", namespace="victim", rounds=0))

    assert found.faults == ()


@pytest.mark.process
async def test_costly_reviews_of_very_many_namespaces_become_short_and_others_are_reviewed(tmp_path: Path) -> None:
    bench = Bench(accepting_binary(), COSTLY)
    bench.put(service("web", rounds=0))
    await bench.run()
    dry_runs = bench.dry_runs(tmp_path)

    async def try_out(resource: Resource) -> DryRun:
        return await dry_runs.run({"services": {ref_of(resource): resource}}, limit=10.0)

    reasons = []
    for number in range(12):
        with pytest.raises(DryRunError, match="too long") as caught:
            await try_out(service("slow", namespace=f"attacker-{number}", rounds=90_000))
        reasons.append(str(caught.value).partition(": ")[2])

    assert reasons[0] == f"more than {LONGEST_RENDER:g} s"
    assert reasons[-1] == f"more than {SHORT_RENDER:g} s"
    assert (await try_out(service("new", namespace="victim", rounds=0))).faults == ()
