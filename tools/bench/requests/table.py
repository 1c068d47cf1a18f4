"""Tables of the request benchmark in Markdown."""

from collections.abc import Iterator, Sequence

import msgspec

from tools.bench.requests.measure import MemoryFigures, RequestFigures


class RequestMeasured(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one run has measured."""

    haproxy: str
    processors: int
    load: float
    """Of the machine before the first measurement, over one minute."""
    system: str
    rounds: int
    requests: Sequence[RequestFigures]
    memory: Sequence[MemoryFigures]


def table_lines(measured: RequestMeasured) -> Iterator[str]:
    """Yield a line with the circumstances, a table of requests, and one of memory."""
    yield (
        f"HAProxy {measured.haproxy}, {measured.processors} processors, load {measured.load:.1f} at the beginning; "
        f"{measured.system}; medians of {measured.rounds} rounds."
    )
    hosts = list(dict.fromkeys(one.hosts for one in measured.requests))
    yield ""
    yield "| Case" + "".join(f" | {count:,} hosts: CPU µs | ratio to floor | p99 µs" for count in hosts) + " |"
    yield "|---" + "|---:" * 3 * len(hosts) + "|"
    cells: dict[str, list[str]] = {}
    for one in measured.requests:
        cells.setdefault(one.name, []).append(f"{one.cpu_us:.1f} | {one.ratio:.2f} | {one.p99_us:,.0f}")
    yield from _rows(cells)
    if measured.memory:
        yield ""
        yield "| Memory of HAProxy" + "".join(f" | {count:,} hosts: MiB for 1,000 routes" for count in hosts) + " |"
        yield "|---" + "|---:" * len(hosts) + "|"
        cells = {}
        for route in measured.memory:
            cells.setdefault(route.name, []).append(f"{route.mib_of_1000:.1f}")
        yield from _rows(cells)


def _rows(cells: dict[str, list[str]]) -> Iterator[str]:
    for name, values in cells.items():
        yield f"| {name} | {' | '.join(values)} |"
