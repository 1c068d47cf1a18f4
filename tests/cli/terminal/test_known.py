"""Messages of the console are kept by topic, with the controller's clock."""

import trio
from trio.testing import MockClock

from haptic_trio.cli.terminal.known import Known


async def test_the_clock_of_the_controller_goes_on(autojump_clock: MockClock) -> None:
    known = Known()
    known.welcome({"now": {"clock": 100.0, "unix": 1_700_000_000.0}})
    await trio.sleep(5)

    assert (known.clock, known.unix) == (105.0, 1_700_000_005.0)
    known.take({"kind": "now", "value": {"clock": 200.0, "unix": 1_700_000_100.0}})
    assert known.clock == 200.0
    assert known.time_of_day(None) == ""


async def test_events_are_kept_until_a_controller_numbers_them_again() -> None:
    known = Known()
    known.take({"kind": "events", "value": [{"number": 7}], "missed": 0})
    known.take({"kind": "a topic of a newer controller", "value": 1})
    assert known.seen == 7

    known.welcome({"now": {"clock": 1.0, "unix": 2.0}})
    assert (known.seen, list(known.events)) == (0, [])
