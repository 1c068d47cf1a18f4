"""Two holders of a lock for one folder."""

import threading
from pathlib import Path

from tests.support.processes.locks import locked


def test_second_holder_waits_for_the_first(tmp_path: Path) -> None:
    order: list[str] = []
    begun = threading.Event()

    def make() -> None:
        begun.set()
        with locked(tmp_path / "new" / "folder"):
            order.append("second")

    second = threading.Thread(target=make)
    with locked(tmp_path / "new" / "folder"):
        second.start()
        assert begun.wait(20)
        second.join(0.05)
        order.append("first")
    second.join(20)

    assert order == ["first", "second"]
