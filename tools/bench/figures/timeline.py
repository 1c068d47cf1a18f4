"""Timeline of a change, read from the controller's log by the correlation ids of its cycles."""

import statistics
from collections.abc import Mapping, Sequence

import msgspec

from tools.bench.rig.controller import Line

UNCORRELATED = frozenset({"configuration changed", "iteration ended", "resources synchronized", "stage reached"})
"""Steps of a new configuration, which come before its first cycle."""
SEEN = "the client has the right answer"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the controller has logged, or the client has seen. Milliseconds, medians over all changes."""

    name: str
    at_ms: float
    """After the write."""
    took_ms: Mapping[str, float] = {}
    """What the controller says that it took, by its name for it."""


Trace = Mapping[str, tuple[float, Mapping[str, float]]]
"""Of one change: for each step how long after the write it was logged first, and what it says that it took."""


def read_trace(lines: Sequence[Line], *, written: float, seen: float) -> Trace:
    """Return the steps among *lines* of a change that was written at *written*, seconds since the epoch.

    *seen* is how many seconds later the client had the right answer. Lines of
    cycles that had begun before are left out.
    """
    earlier = {line.correlation for line in lines if line.at < written}
    trace: dict[str, tuple[float, Mapping[str, float]]] = {}
    for line in lines:
        if (
            line.at < written
            or not (line.correlation or line.event in UNCORRELATED)
            or line.correlation in earlier - {""}
        ):
            continue
        name = f"stage {line.fields['name']} reached" if line.event == "stage reached" else line.event
        trace.setdefault(name, (1000 * (line.at - written), _durations(line)))
    trace[SEEN] = (1000 * seen, {})
    return trace


def _durations(line: Line) -> Mapping[str, float]:
    return {
        name.removesuffix("_ms") if name != "ms" else "all": float(value)
        for name, value in line.fields.items()
        if (name == "ms" or name.endswith("_ms")) and isinstance(value, int | float)
    }


def summarize_traces(traces: Sequence[Trace]) -> tuple[Step, ...]:
    """Return the steps that most changes had, in the order of their medians."""
    steps: list[Step] = []
    for name in dict.fromkeys(name for trace in traces for name in trace):
        having = [trace[name] for trace in traces if name in trace]
        if 2 * len(having) < len(traces):
            continue
        fields = dict.fromkeys(field for _at, took in having for field in took)
        took = {field: statistics.median(row[field] for _at, row in having if field in row) for field in fields}
        steps.append(Step(name=name, at_ms=statistics.median(at for at, _took in having), took_ms=took))
    return tuple(sorted(steps, key=lambda step: step.at_ms))
