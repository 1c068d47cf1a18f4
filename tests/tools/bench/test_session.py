"""The benchmark times its floor after the controller has been quiet."""

from typing import Any, cast

import pytest

from tools.bench import session
from tools.bench.figures.meter import Meter
from tools.bench.session import FLOOR_QUIET, FLOOR_ROUNDS, measure_floor


class NotingMeter:
    """A meter and its controller that note what they are asked for."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    @property
    def controller(self) -> "NotingMeter":
        return self

    def settle(self, quiet: float) -> None:
        self.noted.append(f"quiet for {quiet:g} s")

    def counts(self) -> None:
        self.noted.append("counts")

    def summarize(self, name: str, seconds: list[float], **_counted: Any) -> str:
        return f"{name}, {len(seconds)} times"


def test_floors_are_timed_when_the_controller_has_been_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = NotingMeter()
    for action in ("check", "reload"):
        monkeypatch.setattr(session, f"time_{action}", lambda each, action=action: each.noted.append(action))

    cases = measure_floor(cast("Meter", meter))

    quiet = f"quiet for {FLOOR_QUIET:g} s"
    assert meter.noted == [quiet, "counts", *["check"] * FLOOR_ROUNDS, quiet, "counts", *["reload"] * FLOOR_ROUNDS]
    assert len(cases) == 2
