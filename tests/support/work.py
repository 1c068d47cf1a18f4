"""Work that is counted in calls, which no busy machine changes."""

import sys
from types import FrameType
from typing import Self


class Work:
    """Counts calls while it is active: of Python, and of C by Python."""

    def __init__(self) -> None:
        self.calls = 0

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        self.calls += event in ("call", "c_call")

    def __enter__(self) -> Self:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(None)
