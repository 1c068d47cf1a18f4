"""Progress of a command on a terminal: what it does and for how long, once that takes longer than a second."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Final, TextIO, TypeAlias

from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from haptic_trio.cli.output.findings import make_console

Count: TypeAlias = Callable[[], tuple[int, int]]
"""Returns how many are done, and of how many; 0 if that is unknown. Called in a thread of its own."""

DELAY: Final = 1.0
_RATE: Final = 5.0
"""Updates a second."""


class Steps:
    """The steps of a command, of which the present one is shown; this class itself shows nothing."""

    def begin(self, text: str, count: Count | None = None) -> None:
        """Show *text* from now on, with the numbers of *count*."""


SILENT: Final = Steps()


class _Counted(ProgressColumn):
    def render(self, task: Task) -> Text:
        count: Count | None = task.fields["count"]
        if count is None:
            return Text()
        done, total = count()
        return Text(f"{done:,} of {total:,}" if total else f"{done:,}", style="progress.download")


class _ShownSteps(Steps):
    def __init__(self, stream: TextIO) -> None:
        self._progress = Progress(
            *(SpinnerColumn(), TextColumn("{task.description}"), _Counted(), TimeElapsedColumn()),
            console=make_console(stream),
            transient=True,
            refresh_per_second=_RATE,
            redirect_stdout=False,
        )
        self._task = self._progress.add_task("", count=None)

    def begin(self, text: str, count: Count | None = None) -> None:
        self._progress.update(self._task, description=text, count=count)

    @contextmanager
    def shown(self, delay: float) -> Iterator[None]:
        """Show the steps from *delay* seconds on until the end of the block, which removes them."""
        timer = Timer(delay, self._progress.start)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            self._progress.stop()


@contextmanager
def showing_steps(stream: TextIO, *, delay: float = DELAY) -> Iterator[Steps]:
    """Show the steps of the block in the last line of *stream* if that is a terminal, once they take *delay* seconds.

    The line is removed at the end of the block, so leave it before printing results.
    """
    if not stream.isatty() or make_console(stream).is_dumb_terminal:
        yield SILENT
        return
    steps = _ShownSteps(stream)
    with steps.shown(delay):
        yield steps
