"""One change through a real HAProxy as one trace, as a receiver on the loopback interface gets it."""

from pathlib import Path

import pytest
import trio

from haptic_trio.messages import ConfigValidated, ReconcileTriggered
from tests.features.harness import LIMIT, Site, controller
from tests.support.processes.haproxy import backend
from tests.support.traffic.otlp import receiving

pytestmark = pytest.mark.haproxy

STEPS = {"reconciliation", "debounce", "wait", "render", "validate", "check", "schedule", "deploy", "plan"}


async def test_change_is_one_trace_from_its_watch_to_each_instance(
    site: Site, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    site.write_config(validation={"interval": "0s"})
    async with (
        receiving() as receiver,
        backend("one") as one,
        backend("two") as two,
        controller(site, haproxy_binary, instances=2, otlp_endpoint=receiver.address) as running,
    ):
        site.write_service("web", one)
        site.write_ingress("web", "web.localhost", "web")
        await running.serves(site, "web.localhost", "one")
        await running.all_deployed(("local-1", "local-2"))
        mark = len(running.events)
        site.write_service("web", two)
        trigger = await running.wait(ReconcileTriggered, since=mark)
        await running.wait(ConfigValidated, lambda event: event.correlation == trigger.correlation, since=mark)
        with trio.fail_after(LIMIT):
            spans = await receiver.wait_for(trigger.correlation, STEPS)

    (root,) = [span for span in spans if span.name == "reconciliation"]
    assert root.attributes["haptic.outcome"] == "deployed"
    assert root.attributes["haptic.changes"] == 1
    assert {span.trace for span in spans} == {root.trace}
    assert {span.attributes["haptic.correlation"] for span in spans} == {trigger.correlation}
    # Once HAProxy has accepted all of it, instances are asked again whether they have it.
    deploys = [span for span in spans if span.name == "deploy" and span.attributes["haptic.kind"] != "unchanged"]
    assert {span.attributes["haptic.kind"] for span in deploys} == {"runtime"}
    assert len({span.attributes["haptic.instance"] for span in deploys}) == len(deploys) == 2
    assert {span.id for span in deploys} <= {span.parent for span in spans if span.name == "plan"}
    # The steps follow each other: each begins within the trace, and none before the one that it needs.
    order = [next(span for span in spans if span.name == name) for name in ("debounce", "wait", "render", "validate")]
    assert [span.began for span in order] == sorted(span.began for span in order)
    assert all(root.began <= span.began <= span.ended for span in spans)
    assert all(span.ended <= root.ended for span in [*order, *deploys])
    assert not any(span.failed for span in spans)
