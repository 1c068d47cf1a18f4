"""Charts of the performance page, from the figures of `make bench` and `make bench-requests`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tools.bench.figures.chart import Chart, Curve, draw_chart
from tools.bench.figures.report import Measured
from tools.bench.requests.table import RequestMeasured

CHANGES: Final = ("endpoint change", "new Ingress", "path change")
REQUESTS: Final = {
    "HTTPRoute: header, two header filters": "HTTPRoute: header, two filters",
    "HTTPRoute: path": "HTTPRoute: path",
    "Ingress: path": "Ingress: path",
    "map routing by hand (floor)": "by hand",
    "plain reverse proxy": "no routing",
}
"""Names of cases, with their names in the chart."""
FLOORS: Final = {"by hand", "no routing"}
INGRESSES: Final = "Ingresses, each with a Service and an EndpointSlice"


def charts_of_changes(measured: Measured) -> Iterator[tuple[str, Chart]]:
    """Yield a name of a file and a chart for each subject of `make bench`; those of the first cluster."""
    cluster = measured.settings.clusters[0]

    def curve(
        case: str, name: str = "", field: str = "p50_ms", factor: float = 1.0, *, is_floor: bool = False
    ) -> Curve:
        points = [
            (one.n, factor * getattr(one, field))
            for one in measured.cases
            if (one.cluster, one.name) == (cluster, case)
        ]
        return Curve(name=name or case, points=points, is_floor=is_floor)

    yield "changes", Chart(
        title="A change: from the write to traffic (median)",
        unit="ms", objects=INGRESSES, curves=[curve(name) for name in CHANGES],
    )  # fmt: skip
    routes = [(one.n, one.seconds) for one in measured.whole if (one.name, one.kind) == ("cold start", "HTTPRoute")]
    yield "start", Chart(
        title="Cold start: from the start of the process to the first response",
        unit="s", objects="Ingresses or HTTPRoutes, each with a Service and an EndpointSlice",
        curves=[
            Curve(name="HTTPRoutes", points=routes),
            curve("cold start", "Ingresses", factor=0.001),
            curve("floor: haproxy -c", "haproxy -c alone", factor=0.001, is_floor=True),
        ],
    )  # fmt: skip
    yield "configmap", Chart(
        title="ConfigMap change: one snippet, from the write to traffic (median)",
        unit="s", objects=INGRESSES,
        curves=[
            curve("ConfigMap change, to traffic", "ConfigMap change", factor=0.001),
            _sum("haproxy -c and reload alone", curve("floor: haproxy -c"), curve("floor: reload")),
        ],
    )  # fmt: skip
    yield "memory", Chart(
        title="Memory of the controller",
        unit="MiB", objects=INGRESSES,
        curves=[
            curve("ConfigMap change, to traffic", "after ConfigMap changes", "rss_mib"),
            curve("cold start", "after a cold start", "rss_mib"),
        ],
    )  # fmt: skip


def _sum(name: str, first: Curve, second: Curve) -> Curve:
    """Return the floor that two steps of HAProxy make together, in seconds."""
    points = [(n, (ms + more) / 1000) for (n, ms), (_, more) in zip(first.points, second.points, strict=True)]
    return Curve(name=name, points=points, is_floor=True)


def charts_of_requests(measured: RequestMeasured) -> Iterator[tuple[str, Chart]]:
    """Yield a name of a file and a chart of `make bench-requests`."""
    curves = [
        Curve(
            name=name,
            points=[(one.hosts, one.ratio) for one in measured.requests if one.name == case],
            is_floor=name in FLOORS,
        )
        for case, name in REQUESTS.items()
    ]
    yield "requests", Chart(
        title="CPU time of HAProxy for one request, as a multiple of a configuration by hand",
        unit="times", objects="hosts, each with a route and a Service", curves=curves,
    )  # fmt: skip


def write_charts(charts: Mapping[str, Chart], folder: Path) -> None:
    """Write the pictures `performance-NAME.svg` to *folder*; charts without a figure are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, chart in charts.items():
        if any(curve.points for curve in chart.curves):
            (folder / f"performance-{name}.svg").write_text(draw_chart(chart), "utf-8")
