"""Runs `haptic-trio` and draws where its threads spend their time.

python -m tools.bench.figures.sampler GRAPH.svg serve …

What was seen before a SIGUSR1 is drawn in GRAPH-start.svg.
A thread looks at the stacks of the others every few milliseconds. A thread
that waits for work is not counted. What runs without the interpreter (a
system call, a hash) is the Python function that called it. To look costs some
percent of the time; figures of a sampled run are not valid.
"""

import runpy
import signal
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType

import haptic_trio
from tools.bench.figures.flame import draw_flame

INTERVAL = 0.003
WAITING = frozenset({
    ("_io_epoll.py", "get_events"),
    ("_thread_cache.py", "_work"),
    ("threading.py", "wait"),
    ("selectors.py", "select"),
})  # fmt: skip
"""Where a thread is that has nothing to do: file and function."""
PACKAGE_ROOT = str(Path(haptic_trio.__file__).parent)


class Sampler:
    """Looks at all threads but its own for the duration of a `with` block."""

    def __init__(self) -> None:
        self.stacks: Counter[tuple[str, ...]] = Counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def take(self) -> Counter[tuple[str, ...]]:
        """Return the counts of stacks so far, and reset them."""
        taken, self.stacks = self.stacks, Counter()
        return taken

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        own = threading.get_ident()
        while not self._ended.wait(INTERVAL):
            for ident, frame in sys._current_frames().items():  # noqa: SLF001  there is no other way to see them
                if ident != own and not _is_waiting(frame):
                    self.stacks[read_stack(frame)] += 1


def _is_waiting(frame: FrameType) -> bool:
    code = frame.f_code
    return (code.co_filename.rpartition("/")[2], code.co_name) in WAITING


def read_stack(frame: FrameType | None) -> tuple[str, ...]:
    """Return the functions that lead to *frame*, the outermost first."""
    names: list[str] = []
    while frame is not None:
        code = frame.f_code
        names.append(f"{_short(code.co_filename)} {code.co_qualname}")
        frame = frame.f_back
    return tuple(reversed(names))


def _short(path: str) -> str:
    if path.startswith(PACKAGE_ROOT):
        return path[len(PACKAGE_ROOT) + 1 :].removesuffix(".py")
    return "/".join(path.removesuffix(".py").split("/")[-2:])


def main(arguments: Sequence[str]) -> None:
    """Run `haptic-trio` with all but the first of *arguments*, and write the graph to that."""
    graph, rest = Path(arguments[0]), arguments[1:]
    sys.argv = ["haptic-trio", *rest]
    # As the program does while it runs: so that it ends in order, and this goes on to draw.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sampler = Sampler()
    parts: list[tuple[str, Counter[tuple[str, ...]]]] = []
    signal.signal(signal.SIGUSR1, lambda _number, _frame: parts.append((f"{graph.stem}-start", sampler.take())))
    try:
        with sampler:
            runpy.run_module("haptic_trio", run_name="__main__", alter_sys=False)
    finally:
        parts.append((graph.stem, sampler.take()))
        for stem, stacks in parts:
            graph.with_stem(stem).write_text(draw_flame(stacks, title=stem))


if __name__ == "__main__":
    main(sys.argv[1:])
