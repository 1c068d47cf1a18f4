"""Goals of the performance: the wanted figure, the measured one, and its ratio to a floor of the same run."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from tools.bench.figures.chart import shown
from tools.bench.figures.report import Measured, plural_of
from tools.bench.requests.table import RequestMeasured

CHECK: Final = "haproxy -c"
RELOAD: Final = "haproxy -c, reload"
BY_HAND: Final = "by hand"
MANY: Final = 10_000
MOST: Final = 20_000
HOSTS: Final = 1_000
"""Hosts of the request cases that are compared with the goals."""
FLOOR: Final = "map routing by hand (floor)"
REQUEST_GOALS: Final = {
    "Ingress: path": 1.1,
    "HTTPRoute: path": 1.1,
    "HTTPRoute: header": 1.4,
    "HTTPRoute: header, two header filters": 1.4,
}
"""Most that a request may cost, as a multiple of the floor."""
HEADLINE_REQUESTS: Final = ("HTTPRoute: path", "HTTPRoute: header, two header filters")
HEADINGS: Final = ("Goal", "Measured", "Wanted", "Met", "Ratio to the floor")
HEADLINES: Final = ("What", "Measured", "Wanted", "Met", "Command")
BENCH: Final = "make bench"
BENCH_REQUESTS: Final = "make bench-requests"
NONE: Final = "-"


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table of goals."""

    name: str
    unit: str
    measured: float | None = None
    """None: not measured in this run."""
    wanted: float | None = None
    """The most that is good; None: the figure has no goal."""
    floor: float | None = None
    """The least that is possible, in the same unit; measured in the same run."""
    floor_name: str = ""
    command: str = BENCH
    """What measures it."""
    is_headline: bool = False
    """Whether it is among the few lines that the performance page begins with."""

    @property
    def is_met(self) -> bool | None:
        """Whether the figure is good enough; None if it was not measured or has no goal."""
        if self.measured is None or self.wanted is None:
            return None
        return self.measured <= self.wanted


def goals_of_changes(measured: Measured) -> list[Goal]:
    """Return the goals that `make bench` measures, for the first of its clusters."""
    cluster = measured.settings.clusters[0]
    cases = {(one.name, one.n): one for one in measured.cases if one.cluster == cluster}
    whole = {(one.name, one.kind, one.n): one for one in measured.whole}

    def ms(name: str, n: int) -> float | None:
        found = cases.get((name, n))
        return None if found is None else found.p50_ms

    def at_once(name: str, kind: str, n: int, wanted: float, *, is_headline: bool = False) -> Goal:
        found = whole.get((name, kind, n))
        goal = Goal(
            name=f"{_WHOLE[name]}, {n:,} {plural_of(kind)}", unit="s", wanted=wanted, floor_name=CHECK,
            is_headline=is_headline,
        )  # fmt: skip
        return goal if found is None else msgspec.structs.replace(goal, measured=found.seconds, floor=found.check_s)

    check, reload = ms("floor: haproxy -c", MANY), ms("floor: reload", MANY)
    both = None if check is None or reload is None else check + reload
    return [
        *(
            Goal(
                name=f"{name}, {MANY:,} Ingresses", unit="ms", measured=ms(name, MANY),
                is_headline=name == "endpoint change",
            )
            for name in _CHANGES
        ),
        Goal(
            name=f"ConfigMap change, one snippet, {MANY:,} Ingresses", unit="s", wanted=1.0, is_headline=True,
            measured=_seconds(ms("ConfigMap change, to traffic", MANY)), floor=_seconds(both), floor_name=RELOAD,
        ),
        Goal(
            name=f"cold start, {MANY:,} Ingresses", unit="s", wanted=2.0, is_headline=True,
            measured=_seconds(ms("cold start", MANY)), floor=_seconds(check), floor_name=CHECK,
        ),
        at_once("cold start", "HTTPRoute", MOST, 12.0, is_headline=True),
        at_once("render", "Ingress", MANY, 5.3),
        at_once("render", "Ingress", MOST, 9.5),
        at_once("render", "HTTPRoute", MANY, 6.0, is_headline=True),
        Goal(
            name="memory of the controller for 1,000 Ingresses", unit="MiB", measured=_memory(measured, cluster),
            is_headline=True,
        ),
    ]  # fmt: skip


_WHOLE: Final = {"render": "`render`", "cold start": "cold start"}
_CHANGES: Final = ("endpoint change", "new Ingress", "path change")


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


def _memory(measured: Measured, cluster: str) -> float | None:
    """Return by how many MiB the controller grows with 1,000 Ingresses, from the smallest size to the largest."""
    sizes = sorted((one.n, one.rss_mib) for one in measured.cases if (one.cluster, one.name) == (cluster, "cold start"))
    if len(sizes) < 2 or sizes[-1][0] < 1000:
        return None
    (few, low), (many, high) = sizes[0], sizes[-1]
    return 1000 * (high - low) / (many - few)


def goals_of_requests(measured: RequestMeasured) -> list[Goal]:
    """Return the goals that `make bench-requests` measures, at `HOSTS` hosts."""
    requests = {one.name: one for one in measured.requests if one.hosts == HOSTS}
    memory = {one.name: one.mib_of_1000 for one in measured.memory if one.hosts == max(_hosts(measured), default=0)}
    goals = []
    for name, most in REQUEST_GOALS.items():
        found = requests.get(name)
        # The ratio is the median of the rounds: the wanted time follows from it, not from the two medians.
        floor = None if found is None else found.cpu_us / found.ratio
        goals.append(
            Goal(
                name=f"request, {name}", unit="µs", floor=floor, floor_name=BY_HAND,
                command=BENCH_REQUESTS, is_headline=name in HEADLINE_REQUESTS,
                measured=None if found is None else found.cpu_us, wanted=None if floor is None else most * floor,
            )
        )  # fmt: skip
    floor = memory.get("map routing by hand")
    goals += [
        Goal(
            name=f"memory of HAProxy for 1,000 routes, {name}", unit="MiB", measured=value,
            floor=floor, floor_name=BY_HAND, command=BENCH_REQUESTS,
        )
        for name, value in memory.items()
        if name != "map routing by hand"
    ]  # fmt: skip
    return goals


def _hosts(measured: RequestMeasured) -> list[int]:
    return [one.hosts for one in measured.memory]


def goal_lines(goals: Sequence[Goal]) -> Iterator[str]:
    """Yield the table of all goals in Markdown, for a terminal as well as for a page."""
    return _table([HEADINGS, *((*_cells(goal), _ratio(goal)) for goal in goals)])


def headline_lines(goals: Sequence[Goal]) -> Iterator[str]:
    """Yield the table of the most important goals in Markdown."""
    return _table([HEADLINES, *((*_cells(goal), f"`{goal.command}`") for goal in goals if goal.is_headline)])


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table in Markdown with aligned columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    yield lines[0]
    yield "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    yield from lines[1:]


def _ratio(goal: Goal) -> str:
    return f"{goal.measured / goal.floor:.2f} x {goal.floor_name}" if goal.measured is not None and goal.floor else NONE


def _cells(goal: Goal) -> tuple[str, ...]:
    met = {None: NONE, True: "yes", False: "no"}[goal.is_met]
    measured = "not measured" if goal.measured is None else f"{shown(goal.measured)} {goal.unit}"
    wanted = NONE if goal.wanted is None else f"≤ {shown(goal.wanted)} {goal.unit}"
    return (goal.name, measured, wanted, met)
