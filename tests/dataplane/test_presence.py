"""Presence of a followed endpoint on a virtual clock: silence, problems, loss, renewals and fixed lists."""

import trio
import trio.testing

from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.dataplane.presence import LOST_AFTER, SILENCE_REPORTED, FixedEndpoints, Presence, Renewal
from tests.k8s.api.api_cluster import Reports
from tests.support.components.endpoints import MemoryEndpoint


async def test_silence_is_reported_and_then_the_endpoint_is_lost(autojump_clock: trio.testing.MockClock) -> None:
    published, reports = list[Endpoint | None](), Reports()
    presence = Presence("agent a", published.append, reports)

    assert not presence.failed("refused")
    await trio.sleep(SILENCE_REPORTED)
    assert reports.reported == 0
    assert not presence.failed("refused")
    assert not presence.failed("refused")
    assert reports.messages == "does not answer: refused"
    assert reports.reported == 1
    assert published == []

    await trio.sleep(LOST_AFTER - SILENCE_REPORTED)
    presence.failed("refused")
    assert published == [None]

    presence.answered()
    assert reports.messages == ""


async def test_first_failure_after_an_answer_is_distinguished(autojump_clock: trio.testing.MockClock) -> None:
    presence = Presence("agent a", print, Reports())
    presence.answered()
    await trio.sleep(LOST_AFTER)
    presence.answered()

    assert presence.failed("reset")
    assert not presence.failed("reset")


async def test_answer_does_not_solve_a_problem_other_than_silence() -> None:
    reports = Reports()
    presence = Presence("agent a", print, reports)

    presence.report_problem("HAProxy 2.6 is not supported", "update it")
    presence.answered()
    assert reports.messages == "HAProxy 2.6 is not supported (update it)"

    presence.clear_problem()
    presence.clear_problem()
    assert reports.messages == ""
    assert reports.reported == 2


async def test_renewals_before_the_next_probe_count_as_one(autojump_clock: trio.testing.MockClock) -> None:
    renewal = Renewal()
    renewal.request()
    renewal.request()

    await renewal.wait()
    with trio.move_on_after(1) as scope:
        await renewal.wait()
    assert scope.cancelled_caught


def test_fixed_endpoint_is_replaced_by_name_and_never_removed() -> None:
    published = list[tuple[Endpoint, ...]]()
    one, two, other = MemoryEndpoint("one"), MemoryEndpoint("two"), MemoryEndpoint("one")
    endpoints = FixedEndpoints([one, two], published.append)

    endpoints.renew(None)
    assert published == []
    endpoints.renew(other)
    assert published == [(other, two)]
    assert endpoints.present == (other, two)
