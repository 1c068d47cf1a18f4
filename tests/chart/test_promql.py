"""The check of expressions finds what Prometheus would reject."""

import pytest

from tests.chart.support.promql import PromqlError, Selector, parse


def test_expression_says_what_it_asks_for() -> None:
    query = parse('histogram_quantile(0.99, sum by (le, phase) (rate(a_bucket{job="x",phase=~"r.*"}[5m]))) > 1e3')

    assert query.kind == "vector"
    assert query.selectors == (Selector("a_bucket", (("job", "x"), ("phase", "r.*"))),)
    assert query.selectors[0].labels == {"job", "phase"}
    assert query.grouped == {"le", "phase"}


@pytest.mark.parametrize(
    "text",
    [
        "up",
        "(sum(up) or vector(0)) == bool 0",
        'max(a{b="c\\"d"}) by (x) / on (x) group_left (y) b',
        "-increase(a_total[1h30m] offset 5m) * 2 ^ 3",
        "time() - topk(3, a)",
    ],
)
def test_well_formed_expressions_pass(text: str) -> None:
    parse(text)


def test_ranges_are_distinguished_because_rules_must_be_instant_vectors() -> None:
    assert parse("up[5m]").kind == "range"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "up)",
        "sum(up",
        "rate(up)",
        "up[5m] > 1",
        "rate(up[5])",
        "raet(up[5m])",
        "up{job}",
        "up{job=x}",
        "up > ",
        "1 and up",
        "histogram_quantile(up)",
        "{job='x'}",
        "sum by le (up)",
        "up $x",
    ],
)
def test_malformed_expressions_are_found(text: str) -> None:
    with pytest.raises(PromqlError):
        parse(text)
