"""Duplicate events."""

import msgspec

from haptic_trio.fleet.duplicates import SWEEP_ABOVE, DuplicateWindow
from haptic_trio.fleet.model import EventType, GroupKey, ReconcileEvent

WEB = GroupKey("web")
EVENT = ReconcileEvent(type=EventType.CHECK_INSTANCE, group="web", instance_id="a", prevent_duplicate=True)


def handled(window: DuplicateWindow, event: ReconcileEvent, now: float) -> None:
    window.accept(WEB, event)
    window.begin(WEB)
    window.succeed(WEB, now, window=10.0)


def test_only_events_handled_within_the_window_are_duplicates() -> None:
    window = DuplicateWindow()
    assert not window.is_duplicate(EVENT, 0.0, window=10.0)
    handled(window, EVENT, 5.0)
    assert window.is_duplicate(EVENT, 14.9, window=10.0)
    assert not window.is_duplicate(EVENT, 15.0, window=10.0)


def test_type_tenant_group_and_instance_identify_an_event() -> None:
    window = DuplicateWindow()
    handled(window, EVENT, 0.0)
    for other in ({"tenant": "blue"}, {"group": "api"}, {"instance_id": "b"}, {"type": EventType.DRAIN_ACKED}):
        assert not window.is_duplicate(msgspec.structs.replace(EVENT, **other), 0.0, window=10.0)
    assert window.is_duplicate(msgspec.structs.replace(EVENT, cause="other", timestamp=3.0), 0.0, window=10.0)


def test_events_without_prevent_duplicate_and_repetitions_are_never_ignored() -> None:
    window = DuplicateWindow()
    handled(window, EVENT, 0.0)
    assert not window.is_duplicate(msgspec.structs.replace(EVENT, prevent_duplicate=False), 0.0, window=10.0)
    assert not window.is_duplicate(msgspec.structs.replace(EVENT, attempt=1), 0.0, window=10.0)


def test_an_event_during_a_pass_is_marked_by_the_next_pass() -> None:
    window = DuplicateWindow()
    window.begin(WEB)
    window.accept(WEB, EVENT)
    window.succeed(WEB, 0.0, window=10.0)
    assert not window.is_duplicate(EVENT, 0.0, window=10.0)
    window.begin(WEB)
    window.succeed(WEB, 1.0, window=10.0)
    assert window.is_duplicate(EVENT, 1.0, window=10.0)


def test_old_entries_are_removed() -> None:
    window = DuplicateWindow()
    for number in range(2 * SWEEP_ABOVE):
        handled(window, msgspec.structs.replace(EVENT, instance_id=str(number)), float(number))
    assert not window.is_duplicate(msgspec.structs.replace(EVENT, instance_id="0"), 0.0, window=10.0)
    assert window.is_duplicate(msgspec.structs.replace(EVENT, instance_id="199"), 199.0, window=10.0)
