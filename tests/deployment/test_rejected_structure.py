"""Data that was prepared with a structure that HAProxy rejects."""

from haptic_trio.messages import Reason, ValidationFailed
from tests.deployment.test_schedule import World


def test_data_that_is_valid_without_the_rejected_structure_stays_with_all_newer_data() -> None:
    world = World()
    world.prepare(1, 1)
    world.validate_newest()
    world.prepare(666, 2)
    world.prepare(666, 3)

    world.validate(1, 2, 2)
    world.report(ValidationFailed(correlation="c2", reason=Reason.CHANGED, phase="check", problems=(), keeps_data=True))

    assert set(world.running.values()) == {(1, 3)}
    assert "rollback" not in world.whys
