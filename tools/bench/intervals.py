"""Cases in which intervals hold changes back: the default settings under steady change, and classic mode."""

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from haptic_trio.config.model import ReconcilerConfig
from tools.bench.changes import Changes
from tools.bench.figures.meter import Meter, Trial
from tools.bench.figures.report import Case
from tools.bench.rig.objects import CLASSIC, DEFAULTS

DEBOUNCE = float(ReconcilerConfig().debounce_interval)
SLACK = 1.0
"""Seconds after an interval when all that it held back is through."""
STRUCTURAL_INTERVAL = 1.0
PAUSE = 0.05
MANY = 1_000_000
UNDER_CHANGE = "endpoint change among structural ones, default settings"
CLASSIC_FIRST = "endpoint change, classic mode"
CLASSIC_LATER = "endpoint change within the interval, classic mode"


def measure_defaults(meter: Meter, changes: Changes, seconds: float) -> Case:
    """Change endpoints for *seconds* while the structure changes every second, with the default settings."""
    changes.configure(DEFAULTS)
    time.sleep(DEBOUNCE + SLACK)
    since = len(meter.controller.log.read())

    def move(number: int) -> Trial:
        time.sleep(PAUSE)
        return changes.move_endpoint(number)

    with _changing_structure(changes):
        case = meter.measure(UNDER_CHANGE, move, MANY, warm_up=0, pause=False, seconds=seconds)
    time.sleep(DEBOUNCE + SLACK)
    reloads = [line.at for line in meter.controller.log.read()[since:] if line.event == "instance reloaded"]
    gaps = [later - earlier for earlier, later in itertools.pairwise(reloads)]
    return msgspec.structs.replace(case, notes={"seconds": seconds, "least s between reloads": min(gaps, default=0.0)})


def measure_classic(meter: Meter, changes: Changes, rounds: int) -> list[Case]:
    """Make two changes, one right after the other, *rounds* times in classic mode with the default intervals."""
    changes.configure(CLASSIC)
    first: list[float] = []
    later: list[float] = []
    counts, usage = meter.counts(), meter.controller.usage()
    for number in range(rounds):
        time.sleep(DEBOUNCE + SLACK)
        first.append(changes.move_endpoint(2 * number).seconds)
        later.append(changes.move_endpoint(2 * number + 1).seconds)
    cpu_s = meter.controller.usage().cpu_s - usage.cpu_s
    return [
        meter.summarize(name, seconds, counts=counts, cpu_s=cpu_s / 2)
        for name, seconds in ((CLASSIC_FIRST, first), (CLASSIC_LATER, later))
    ]


@contextmanager
def _changing_structure(changes: Changes) -> Iterator[None]:
    ended = threading.Event()

    def run() -> None:
        number = 0
        while not ended.wait(STRUCTURAL_INTERVAL):
            number += 1
            changes.change_structure(number)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
