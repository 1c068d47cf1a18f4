"""A namespace whose reviews take long has none for some time; other namespaces have theirs."""

from pathlib import Path

import pytest

from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.pipeline.review.dry_run import DryRun
from haptic_trio.pipeline.review.dry_run_object import DryRunError
from haptic_trio.pipeline.review.pauses import FREE, PAUSE, ReviewPauses
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
