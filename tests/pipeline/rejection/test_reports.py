"""Each warning and each quarantined object is reported once, and at most a few in one cycle."""

import msgspec
import pytest

from haptic_trio.messages import Quarantined, Released, ReportsOmitted, WarningRaised, WarningResolved
from haptic_trio.pipeline.rejection.reports import MOST_REPORTED
from tests.support.components.controller import accepting_binary
from tests.support.components.pipeline import HEAD, Bench
from tests.support.kubernetes import service

pytestmark = pytest.mark.process

TEMPLATE = (
    HEAD
    + """\
{% each service in resources.services %}
{% if not service.spec.balance is defined %}{% do warn(service, "NoBalance", "spec.balance is missing") %}{% endif %}
# {{ service.spec.balance | default("none") | word }}
{% endeach %}
"""
)


@pytest.fixture
def bench() -> Bench:
    """A pipeline with a warning about each Service without `balance`."""
    return Bench(accepting_binary(), TEMPLATE)


def reports_of(bench: Bench) -> list[tuple[str, str]]:
    """Return type and object of each event about objects since the last call."""
    found: list[tuple[str, str]] = []
    for event in bench.reported():
        match event:
            case WarningRaised() | WarningResolved():
                found.append((type(event).__name__, event.warning.subject.name))
            case Quarantined() | Released():
                found.append((type(event).__name__, event.ref.name))
    return found


async def test_warning_is_reported_once_when_it_appears_and_once_when_it_is_resolved(bench: Bench) -> None:
    bench.put(service("web"), service("api", balance="first"))
    await bench.run()
    assert reports_of(bench) == [("WarningRaised", "web")]

    bench.put(service("api", balance="random"))
    await bench.run()
    assert reports_of(bench) == []

    bench.put(service("web", balance="first"))
    await bench.run()
    assert reports_of(bench) == [("WarningResolved", "web")]


async def test_warning_of_the_former_configuration_is_not_reported_again(bench: Bench) -> None:
    bench.put(service("web"))
    await bench.run()
    bench.reported()

    bench.configure(TEMPLATE + "# another configuration\n")
    await bench.run()

    assert reports_of(bench) == []


async def test_warning_of_an_object_that_is_quarantined_now_is_not_reported_as_resolved(bench: Bench) -> None:
    bench.put(service("web"))
    await bench.run()
    bench.reported()

    bench.put(service("web", balance="a\nb"))
    await bench.run()

    assert reports_of(bench) == [("Quarantined", "web")]


async def test_reports_of_one_cycle_are_limited(bench: Bench) -> None:
    bench.put(*(service(f"web{number}", balance="a\nb") for number in range(MOST_REPORTED + 3)))
    bench.put(*(service(f"api{number}") for number in range(MOST_REPORTED + 2)))

    await bench.run()

    events = bench.reported()
    quarantined = [event for event in events if isinstance(event, Quarantined)]
    raised = [event for event in events if isinstance(event, WarningRaised)]
    assert (len(quarantined), len(raised)) == (MOST_REPORTED, MOST_REPORTED)
    assert quarantined[0].quarantined == MOST_REPORTED + 3
    (omitted,) = [event for event in events if isinstance(event, ReportsOmitted)]
    assert msgspec.structs.replace(omitted, correlation="") == ReportsOmitted(correlation="", quarantined=3, warnings=2)
