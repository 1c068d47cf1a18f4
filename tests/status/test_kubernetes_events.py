"""Events say a thing once, count it when it is said again, and an object is not heard for ever."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.status.kubernetes_events import (
    Allowance,
    EventType,
    Notice,
    NoticeBoard,
    NoticeKey,
    Regarding,
    Turns,
    event_of,
    repeated,
    shorten,
)

NOW, LATER = "2026-01-01T00:00:00.000000Z", "2026-01-01T00:01:00.000000Z"


def notice(note: str = "broken", name: str = "web", namespace: str = "default") -> Notice:
    regarding = Regarding(
        api_version="networking.k8s.io/v1", kind="Ingress", namespace=namespace, name=name, uid=f"uid-{name}"
    )
    return Notice(regarding=regarding, type=EventType.WARNING, reason="Quarantined", action="Render", note=note)


def test_event_has_what_the_api_asks_for() -> None:
    event = event_of(notice("x" * 3000), instance="me", now=NOW)

    assert event["metadata"]["namespace"] == "default"
    assert event["regarding"]["uid"] == "uid-web"
    assert len(event["note"].encode()) <= 1024
    assert "series" not in event
    assert event_of(notice(namespace=""), instance="me", now=NOW)["metadata"]["namespace"] == "default"


def test_same_notice_has_the_same_name_and_another_one_another() -> None:
    assert notice().name == notice().name
    assert len({notice().name, notice("other").name, notice(name="api").name}) == 3


def test_repeated_event_counts_up() -> None:
    event = event_of(notice(), instance="me", now=NOW)

    again = repeated(repeated(event, 1, now=NOW), 3, now=LATER)

    assert again["series"] == {"count": 5, "lastObservedTime": LATER}
    assert again["eventTime"] == NOW


@given(st.text(max_size=100), st.integers(3, 50))
def test_shortened_text_fits(text: str, limit: int) -> None:
    short = shorten(text, limit)

    assert len(short.encode()) <= limit
    assert short == text or len(text.encode(errors="replace")) > limit or "?" in short


def test_allowance_is_a_burst_and_then_one_for_each_interval() -> None:
    allowance = Allowance(2, 10)

    assert [allowance.take(100) for _ in range(2)] == [0, 0]
    assert allowance.take(100) == pytest.approx(10)
    assert allowance.take(105) == pytest.approx(5)
    assert allowance.take(110) == 0
    assert allowance.take(110) > 0


def test_pending_repetitions_are_written_together() -> None:
    board = NoticeBoard()
    key = board.put(notice(), 0)
    assert key is not None
    board.put(notice(), 0)

    assert board.pending(key) == (notice(), 2)
    board.put(notice(), 0)
    assert board.note_written(key, 2)
    assert board.pending(key) == (notice(), 1)
    assert not board.note_written(key, 1)
    assert board.pending(key) is None


def test_object_with_too_much_to_say_is_not_heard_for_a_while_and_others_are() -> None:
    board = NoticeBoard(burst=3, interval=60)

    received = [board.put(notice(str(number)), 0) is not None for number in range(5)]

    assert received == [True, True, True, False, False]
    assert board.put(notice(name="api"), 0) is not None
    assert board.put(notice("later"), 61) is not None


def test_many_notices_of_one_topic_use_up_no_notice_of_another() -> None:
    board = NoticeBoard(burst=3, interval=60)

    def change(reason: str, topic: str, number: int) -> bool:
        changed = msgspec.structs.replace(notice(str(number)), reason=reason, topic=topic)
        return board.put(changed, 0) is not None

    toggled = [
        change("Resolved" if number % 2 else "HostPathConflict", "HostPathConflict", number) for number in range(6)
    ]

    assert toggled == [True, True, True, False, False, False]
    assert change("Quarantined", "", 0)
    assert change("NoEndpoints", "", 0)
    assert change("Resolved", "NoEndpoints", 0)


def test_topics_of_a_namespace_take_turns_and_one_takes_no_place_from_another() -> None:
    turns = Turns(most=3)
    kept = [turns.put(NoticeKey("one", f"event-{number}", "HostPathConflict")) for number in range(5)]

    assert (kept, turns.put(NoticeKey("one", "event", "NoEndpoints"))) == ([True, True, True, False, False], True)
    assert [turns.take().topic for _ in range(4)] == ["HostPathConflict", "NoEndpoints", *["HostPathConflict"] * 2]
    assert not turns


def test_namespaces_take_turns_and_one_cannot_have_any_number_of_notices() -> None:
    turns = Turns(most=3)
    kept = [turns.put(NoticeKey("many", f"event-{number}")) for number in range(5)]
    turns.put(NoticeKey("few", "event"))
    again = turns.put(NoticeKey("many", "event-0"))

    taken = []
    while turns:
        taken.append(turns.take())

    assert (kept, again) == ([True, True, True, False, False], True)
    assert [key.namespace for key in taken] == ["many", "few", "many", "many"]
    assert [key.name for key in taken if key.namespace == "many"] == ["event-0", "event-1", "event-2"]


@pytest.mark.parametrize("name", ["a" * 253, "a" * 199 + "." + "b" * 50, "a" * 198 + "--" + "b" * 50, "web"])
def test_the_name_of_an_event_is_a_name_of_kubernetes(name: str) -> None:
    regarding = Regarding(api_version="v1", kind="Service", namespace="default", name=name)
    notice = Notice(regarding=regarding, type=EventType.NORMAL, reason="R", action="A", note="")

    assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", notice.name)
    assert not re.search(r"\.\.|-\.|\.-", notice.name)
    assert len(notice.name) <= 253
