"""Tables of the request benchmark."""

from tools.bench.requests.measure import MemoryFigures, RequestFigures
from tools.bench.requests.table import RequestMeasured, table_lines


def figures(hosts: int, name: str, cpu_us: float, ratio: float) -> RequestFigures:
    return RequestFigures(hosts=hosts, name=name, requests=800, cpu_us=cpu_us, ratio=ratio, p99_us=1234.5)


def test_a_case_has_one_row_with_columns_for_each_number_of_hosts() -> None:
    measured = RequestMeasured(
        haproxy="3.4.7",
        processors=2,
        load=0.5,
        system="Linux",
        rounds=15,
        requests=[
            figures(1000, "floor", 20, 1),
            figures(1000, "Ingress: path", 22.04, 1.102),
            figures(20_000, "floor", 21, 1),
            figures(20_000, "Ingress: path", 25, 1.2),
        ],
        memory=[
            MemoryFigures(hosts=1000, name="Ingress", mib_of_1000=7.25),
            MemoryFigures(hosts=20_000, name="Ingress", mib_of_1000=7),
        ],
    )

    lines = list(table_lines(measured))

    assert lines[0].startswith("HAProxy 3.4.7, 2 processors, load 0.5 at the beginning; Linux; medians of 15 rounds.")
    assert "| Ingress: path | 22.0 | 1.10 | 1,234 | 25.0 | 1.20 | 1,234 |" in lines
    assert "| Ingress | 7.2 | 7.0 |" in lines
    tables = [line for line in lines if line.startswith("|")]
    assert {line.count("|") for line in tables[:4]} == {8}
    assert {line.count("|") for line in tables[4:]} == {4}
