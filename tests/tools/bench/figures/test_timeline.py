"""The timeline of a change, with its steps and their durations, is read from log lines."""

from tools.bench.figures.timeline import SEEN, Trace, read_trace, summarize_traces
from tools.bench.rig.controller import Line


def line(at: float, event: str, correlation: str = "", **fields: float | str) -> Line:
    return Line(at, event, {"correlation": correlation, **fields} if correlation else fields)


def test_a_trace_has_the_steps_of_the_cycle_that_the_write_caused() -> None:
    lines = [
        line(9.9, "configuration rendered", "1-1", ms=1.0),
        line(10.1, "deployment completed", "1-1"),
        line(10.2, "reconciliation triggered", "1-2"),
        line(10.3, "configuration validated", "1-2", render_ms=2.0, check_ms=20.0),
        line(10.4, "health and metrics are served"),
        line(10.5, "reconciliation triggered", "1-3"),
    ]

    trace = read_trace(lines, written=10.0, seen=0.25)

    assert {name: round(at) for name, (at, _took) in trace.items()} == {
        "reconciliation triggered": 200,
        "configuration validated": 300,
        SEEN: 250,
    }
    assert trace["configuration validated"][1] == {"render": 2.0, "check": 20.0}


def test_a_new_configuration_has_its_stages_before_its_first_cycle() -> None:
    lines = [
        line(1.0, "configuration changed"),
        line(2.0, "stage reached", name="load_config"),
        line(3.0, "stage reached", name="components"),
    ]

    assert list(read_trace(lines, written=0.5, seen=4.0)) == [
        "configuration changed",
        "stage load_config reached",
        "stage components reached",
        SEEN,
    ]


def test_steps_are_medians_in_order_and_rare_ones_are_left_out() -> None:
    traces: list[Trace] = [
        {"rendered": (float(number), {"all": float(number)}), SEEN: (100.0, {})} for number in (3, 1, 2)
    ]
    traces[0] = {**traces[0], "quarantined": (0.5, {})}

    steps = summarize_traces(traces)

    assert [(step.name, step.at_ms, dict(step.took_ms)) for step in steps] == [
        ("rendered", 2.0, {"all": 2.0}),
        (SEEN, 100.0, {}),
    ]
