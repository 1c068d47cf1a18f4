"""Makes a change again and again, and sums up what it took and cost."""

import os
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from tools.bench.figures.report import Case, percentile
from tools.bench.figures.timeline import Trace, read_trace, summarize_traces
from tools.bench.rig.controller import Controller
from tools.bench.rig.load import Background, Counts

LEAST_SAMPLES = 3
LEAST_REST = 0.25
REST_EACH = 0.0001
"""Seconds without a log line, and for each Ingress, after which no reload is under way."""


class Trial(msgspec.Struct, frozen=True):
    """One change."""

    seconds: float
    """From the write to the effect."""
    written: float
    """When, in seconds since the epoch."""


Change = Callable[[int], Trial]


class Meter:
    """Measures changes of one cluster under one controller."""

    def __init__(
        self,
        *,
        cluster: str,
        size: int,
        controller: Controller,
        background: Background,
        case_seconds: float,
        traced: bool,
        say: Callable[[str], None],
    ) -> None:
        self.controller = controller
        self._background = background
        self._cluster = cluster
        self._size = size
        self._case_seconds = case_seconds
        self._traced = traced
        self._say = say

    def measure(
        self,
        name: str,
        change: Change,
        samples: int,
        *,
        warm_up: int = 1,
        pause: bool = True,
        seconds: float | None = None,
    ) -> Case:
        """Make *change* *warm_up* times, and then *samples* times, or until the time for a case is over, to measure it.

        With *pause* each one meets a controller that has nothing to do.
        *seconds* is the time for this case if it has one of its own.
        """
        for number in range(warm_up):
            change(samples + number)
            self._pause(number, pause=True)
        self.rest()
        fragments = self.controller.count_fragments()
        self._pause(0, pause=True)
        counts, reloads, usage = self.counts(), self.controller.count_reloads(), self.controller.usage()
        since = len(self.controller.log.read())
        trials: list[Trial] = []
        deadline = time.monotonic() + (self._case_seconds if seconds is None else seconds)
        while len(trials) < samples and (len(trials) < LEAST_SAMPLES or time.monotonic() < deadline):
            trials.append(change(len(trials)))
            self._pause(len(trials), pause=pause)
        self.rest()
        after = self.controller.usage()
        return self.summarize(
            name,
            [trial.seconds for trial in trials],
            counts=counts,
            reloads=self.controller.count_reloads() - reloads,
            cpu_s=after.cpu_s - usage.cpu_s,
            check_cpu_s=after.check_cpu_s - usage.check_cpu_s,
            fragments=(self.controller.count_fragments() - fragments) / len(trials),
            traces=self._read_traces(trials, since) if self._traced else (),
        )

    def rest(self) -> None:
        """Return when the controller waits for nothing any more, not even for a reload."""
        self.controller.settle(LEAST_REST + REST_EACH * self._size)

    def counts(self) -> Counts:
        """Return what the client at a constant rate has sent so far."""
        return self._background.counts()

    def summarize(
        self,
        name: str,
        seconds: Sequence[float],
        *,
        counts: Counts,
        reloads: int = 0,
        cpu_s: float,
        check_cpu_s: float = 0.0,
        fragments: float = 0.0,
        traces: Sequence[Trace] = (),
        notes: Mapping[str, float] | None = None,
    ) -> Case:
        """Return the case, and say it; *counts* are those of before."""
        now, usage = self.counts(), self.controller.usage()
        case = Case(
            cluster=self._cluster,
            name=name,
            n=self._size,
            samples=len(seconds),
            p50_ms=1000 * percentile(seconds, 0.5),
            p99_ms=1000 * percentile(seconds, 0.99),
            max_ms=1000 * max(seconds),
            reloads=reloads,
            errors=now.errors - counts.errors,
            requests=now.sent - counts.sent,
            rss_mib=usage.rss_mib,
            peak_mib=usage.peak_mib,
            cpu_s=cpu_s,
            check_cpu_s=check_cpu_s,
            cpu_ms=1000 * cpu_s / len(seconds),
            fragments=fragments,
            load=os.getloadavg()[0],
            notes=notes or {},
            timeline=summarize_traces(traces),
        )
        self._say(
            f"{case.cluster}, {case.n:,}: {case.name}: p50 {case.p50_ms:,.1f} ms, p99 {case.p99_ms:,.1f} ms, "
            f"{case.reloads} reloads, {case.errors} errors, CPU {case.cpu_ms:,.1f} ms"
        )
        return case

    def _pause(self, number: int, *, pause: bool) -> None:
        if pause:
            self.controller.settle()
        # Never in step with anything that the controller does at regular times.
        time.sleep(0.001 * (1 + number * 7 % 23))

    def _read_traces(self, trials: Sequence[Trial], since: int) -> list[Trace]:
        lines = self.controller.log.read()[since:]
        ends = [trial.written for trial in trials[1:]] + [float("inf")]
        return [
            read_trace([line for line in lines if line.at < end], written=trial.written, seen=trial.seconds)
            for trial, end in zip(trials, ends, strict=True)
        ]
