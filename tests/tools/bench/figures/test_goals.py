from typing import Any

import pytest

from tools.bench.figures.goals import Goal, goal_lines, goals_of_changes, goals_of_requests, headline_lines
from tools.bench.figures.report import Case, Measured, Settings, WholeFigures
from tools.bench.requests.measure import MemoryFigures, RequestFigures
from tools.bench.requests.table import RequestMeasured


def settings(*sizes: int) -> Settings:
    return Settings(
        sizes=sizes, clusters=("api",), samples=1, case_seconds=1.0, rate=1.0, is_profiled=False, processors=2,
        python="3.11", system="Linux", haproxy="3.4.7", load=0.5, day="2026-11-27",
    )  # fmt: skip


def case(name: str, n: int, p50_ms: float, **fields: Any) -> Case:
    about: dict[str, Any] = {
        "cluster": "api", "samples": 1, "p99_ms": p50_ms, "max_ms": p50_ms, "reloads": 0, "errors": 0, "requests": 0,
        "rss_mib": 100.0, "peak_mib": 100.0, "cpu_s": 0.0,
    }  # fmt: skip
    return Case(name=name, n=n, p50_ms=p50_ms, **(about | fields))


def by_name(goals: list[Goal]) -> dict[str, Goal]:
    return {goal.name: goal for goal in goals}


def test_goals_of_changes_compare_with_floors_of_the_same_run() -> None:
    cases = [
        case("cold start", 1000, 900.0, rss_mib=100.0),
        case("cold start", 10_000, 2500.0, rss_mib=190.0),
        case("ConfigMap change, to traffic", 10_000, 700.0),
        case("floor: haproxy -c", 10_000, 200.0),
        case("floor: reload", 10_000, 300.0),
        case("cold start", 10_000, 1.0, cluster="directory"),
    ]
    whole = [WholeFigures(name="render", kind="HTTPRoute", n=10_000, seconds=6.5, cpu_s=6.0, peak_mib=1.0, check_s=0.5)]

    found = by_name(goals_of_changes(Measured(settings(1000, 10_000), cases, whole)))

    start, config = found["cold start, 10,000 Ingresses"], found["ConfigMap change, one snippet, 10,000 Ingresses"]
    assert (start.measured, start.wanted, start.floor, start.is_met) == (2.5, 2.0, 0.2, False)
    assert (config.measured, config.floor, config.is_met) == (0.7, 0.5, True)
    render = found["`render`, 10,000 HTTPRoutes"]
    assert (render.measured, render.wanted, render.floor, render.is_met) == (6.5, 6.0, 0.5, False)
    assert found["`render`, 20,000 Ingresses"].is_met is None
    memory = found["memory of the controller for 1,000 Ingresses"]
    assert memory.measured == pytest.approx(10.0)
    assert memory.wanted is None


def test_goals_of_requests_are_multiples_of_the_floor() -> None:
    requests = [
        RequestFigures(hosts=1000, name="Ingress: path", requests=1, cpu_us=22.0, ratio=1.1, p99_us=1.0),
        RequestFigures(hosts=1000, name="HTTPRoute: header", requests=1, cpu_us=30.0, ratio=1.5, p99_us=1.0),
        RequestFigures(hosts=100, name="HTTPRoute: path", requests=1, cpu_us=30.0, ratio=1.5, p99_us=1.0),
    ]
    memory = [
        MemoryFigures(hosts=1000, name="map routing by hand", mib_of_1000=8.0),
        MemoryFigures(hosts=1000, name="Ingress", mib_of_1000=12.0),
    ]
    measured = RequestMeasured(
        haproxy="3.4.7", processors=2, load=0.1, system="Linux", rounds=1, requests=requests, memory=memory
    )

    found = by_name(goals_of_requests(measured))

    assert found["request, Ingress: path"].is_met is True
    header = found["request, HTTPRoute: header"]
    assert header.is_met is False
    assert header.floor == pytest.approx(20.0)
    assert header.wanted == pytest.approx(28.0)
    assert found["request, HTTPRoute: path"].measured is None
    ingress = found["memory of HAProxy for 1,000 routes, Ingress"]
    assert (ingress.measured, ingress.floor) == (12.0, 8.0)


def test_the_table_says_what_is_met_and_what_was_not_measured() -> None:
    goals = [
        Goal(name="start", unit="s", measured=2.5, wanted=2.0, floor=0.5, floor_name="haproxy -c", is_headline=True),
        Goal(name="render", unit="s", wanted=5.3, floor_name="haproxy -c"),
        Goal(name="memory", unit="MiB", measured=10.0),
    ]

    assert list(goal_lines(goals)) == [
        "| Goal   | Measured     | Wanted  | Met | Ratio to the floor |",
        "|--------|--------------|---------|-----|--------------------|",
        "| start  | 2.5 s        | ≤ 2 s   | no  | 5.00 x haproxy -c  |",
        "| render | not measured | ≤ 5.3 s | -   | -                  |",
        "| memory | 10 MiB       | -       | -   | -                  |",
    ]
    assert list(headline_lines(goals)) == [
        "| What  | Measured | Wanted | Met | Command      |",
        "|-------|----------|--------|-----|--------------|",
        "| start | 2.5 s    | ≤ 2 s  | no  | `make bench` |",
    ]
