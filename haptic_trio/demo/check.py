"""Self-check of the demo: runs the steps, waits for the effect of each, and measures it."""

import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import trio
from rich.console import Console
from rich.table import Table

from haptic_trio.demo.client import DemoClient, Traffic
from haptic_trio.demo.event_log import EventLog
from haptic_trio.demo.running import RunningDemo
from haptic_trio.demo.steps import Step, Walkthrough
from haptic_trio.errors import HapticError
from haptic_trio.messages import ValidationFailed

STEP_LIMIT = 30.0
PIPE_WIDTH = 200


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a step."""

    title: str
    seconds: float | None = None
    """Measured time in seconds, if any."""
    detail: str = ""
    ok: bool = True


class _Record:
    """The results so far; a failure ends the run, because each step builds on the previous ones."""

    def __init__(self, events: EventLog) -> None:
        self.results: list[Result] = []
        self._events = events

    async def take(self, title: str, step: Step) -> None:
        if not all(result.ok for result in self.results):
            return
        try:
            with trio.fail_after(STEP_LIMIT):
                seconds, detail = await step()
        except trio.TooSlowError:
            rejection = self._events.find_last(ValidationFailed)
            why = f"; last rejection: {rejection.problems[0]}" if rejection is not None else ""
            self.results.append(Result(title=title, detail=f"not within {STEP_LIMIT:g} s{why}", ok=False))
        except HapticError as exc:
            self.results.append(Result(title=title, detail=str(exc), ok=False))
        else:
            self.results.append(Result(title=title, seconds=seconds, detail=detail))


async def run_story(open_demo: Callable[[], AbstractAsyncContextManager[RunningDemo]]) -> list[Result]:
    """Run the demo once, from start to stop, or until a step fails; return the results up to there."""
    traffic = Traffic()
    began = trio.current_time()
    async with open_demo() as running, DemoClient.open(running.site) as client:
        record = _Record(running.events)
        walkthrough = Walkthrough(running, client)
        await record.take("start to first answer", lambda: walkthrough.start(began))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(traffic.run, client)
            for title, step in walkthrough.steps:
                await record.take(title, step)
            nursery.cancel_scope.cancel(reason="all steps are done")
        finished = trio.current_time()
    stopped = trio.current_time()
    left = await trio.to_thread.run_sync(find_processes, running.site.state)
    return [*record.results, _judge_traffic(traffic, finished - began), _judge_stop(left, stopped - finished)]


def _judge_traffic(traffic: Traffic, seconds: float) -> Result:
    title = "traffic during all steps"
    if traffic.failures:
        failures = f"{len(traffic.failures)} of {traffic.sent} requests failed, the first: {traffic.failures[0]}"
        return Result(title=title, seconds=seconds, detail=failures, ok=False)
    detail = f"{traffic.sent} requests, each on a new connection, none failed"
    return Result(title=title, seconds=seconds, detail=detail)


def _judge_stop(left: list[int], seconds: float) -> Result:
    detail = f"processes still running: {left}" if left else "HAProxy has stopped, no process is left"
    return Result(title="stop", seconds=seconds, detail=detail, ok=not left)


def find_processes(directory: Path) -> list[int]:
    """Return the running processes whose command line has a path below *directory*."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            # Zombies have an empty command line.
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if f"{directory}/".encode() in command:
            found.append(int(entry.name))
    return found


def print_results(results: list[Result]) -> None:
    """Print *results* as a table on standard output."""
    table = Table(show_edge=False, pad_edge=False, box=None)
    table.add_column("")
    table.add_column("step")
    table.add_column("ms", justify="right")
    table.add_column("")
    for result in results:
        mark = "ok" if result.ok else "FAILED"
        seconds = f"{result.seconds * 1000:,.0f}" if result.seconds is not None else ""
        table.add_row(mark, result.title, seconds, result.detail, style=None if result.ok else "bold red")
    # No wrapping in pipes.
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False).print(table)
