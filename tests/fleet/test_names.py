"""Numbered names of instances."""

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from haptic_trio.fleet.model import GroupKey
from haptic_trio.fleet.names import NumberedNames

KEY = GroupKey("local")


def test_numbers_continue_after_existing_and_former_instances(tmp_path: Path) -> None:
    path = tmp_path / "last"
    names = NumberedNames(path)
    names.load([])
    assert [names.make(KEY) for _ in range(3)] == ["local-1", "local-2", "local-3"]
    names.save()
    again = NumberedNames(path)
    again.load([])
    assert again.make(KEY) == "local-4"
    again.note_used("local-9")
    assert again.make(KEY) == "local-10"


def test_a_lost_or_damaged_file_repeats_no_name_in_use(tmp_path: Path) -> None:
    path = tmp_path / "last"
    path.write_text("x")
    names = NumberedNames(path)
    names.load(["local-7", "local-3", "no number", "local-x1"])
    assert names.make(KEY) == "local-8"


def test_a_fifo_in_place_of_the_file_is_reported_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "last"
    os.mkfifo(path)
    names = NumberedNames(path)
    with capture_logs() as logs:
        names.load(["local-7"])
    assert ["it is a FIFO" in entry["error"] for entry in logs] == [True]
    assert names.make(KEY) == "local-8"
    names.save()
    assert path.read_text() == "8"


@given(st.lists(st.one_of(st.text(max_size=8), st.integers(0, 99).map(lambda number: f"local-{number}"))))
def test_a_new_name_differs_from_all_noted_names(taken: list[str]) -> None:
    names = NumberedNames(Path("/nonexistent/last"))
    names.load(taken)
    made = [names.make(KEY) for _ in range(3)]
    assert not set(made) & set(taken)
    assert len(set(made)) == 3
