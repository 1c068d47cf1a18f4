"""Changes of a namespace whose fragments take much CPU time: those of others go first."""

from itertools import count

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.messages import Reason
from haptic_trio.templating.incremental import bodies
from tests.pipeline.heavy import Bench
from tests.support.kubernetes import ingress, path, rule

# The validator asks for the version of an HAProxy, which does not exist.
pytestmark = pytest.mark.process


def site(namespace: str, where: str) -> Resource:
    return ingress("site", rule(f"{namespace}.test", path(where, "web")), namespace=namespace)


async def routed(bench: Bench, reason: Reason) -> set[str]:
    """Run a cycle; return the host names and paths that are routed then."""
    prepared = await bench.pipeline.prepare("c", reason)
    return {line.split()[0] for line in prepared.rendered.texts["maps/path-prefix.map"].text.splitlines()}


async def test_a_change_of_another_namespace_is_rendered_before_the_next_one_of_a_costly_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    bench.put(site("big", "/0"), site("small", "/0"))
    await bench.cycle()
    # Each fragment takes 1,000 s.
    monkeypatch.setattr(bodies, "cpu_clock", map(float, count(step=1000)).__next__)
    bench.put(site("big", "/1"))
    assert "big.test|/1/" in await routed(bench, Reason.CHANGED)
    monkeypatch.undo()

    bench.put(site("big", "/2"), site("small", "/1"))

    assert {"big.test|/1/", "small.test|/1/"} <= await routed(bench, Reason.CHANGED)
    assert bench.pipeline.is_behind
    assert {"big.test|/2/", "small.test|/1/"} <= await routed(bench, Reason.WAITED)
    assert not bench.pipeline.is_behind
