import gc

from trio.testing import MockClock

from haptic_trio.channels import Latest
from haptic_trio.haproxy.model import Generation
from haptic_trio.messages import ConfigValidated, Phases, Reason
from haptic_trio.stages.gc_tuning import SETTLE_LIMIT, building_without_collections, run_freeze
from tests.support.endpoints import generation


def validated(made: Generation) -> ConfigValidated:
    return ConfigValidated(correlation="1-1", reason=Reason.CHANGED, generation=made, phases=Phases())


async def test_what_an_iteration_has_built_is_frozen_once_a_configuration_is_valid() -> None:
    cell: Latest[ConfigValidated] = Latest()
    with building_without_collections(wanted=True):
        assert not gc.isenabled()
        cell.put(validated(generation("a")))

        await run_freeze(cell)

        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0
    assert gc.isenabled()


async def test_collections_are_not_held_off_for_ever_where_nothing_becomes_valid(autojump_clock: MockClock) -> None:
    with building_without_collections(wanted=True):
        await run_freeze(Latest())

        assert gc.isenabled()
        assert autojump_clock.current_time() == SETTLE_LIMIT


async def test_nothing_is_touched_where_it_is_not_wanted(autojump_clock: MockClock) -> None:
    with building_without_collections(wanted=False):
        await run_freeze(Latest())

        assert gc.isenabled()
        assert gc.get_freeze_count() == 0
