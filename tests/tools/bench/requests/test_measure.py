"""Medians of the request benchmark."""

import pytest

from tools.bench.requests.measure import median_ratio


def test_a_ratio_compares_values_of_the_same_round() -> None:
    floors = [10.0, 40.0, 20.0]
    values = [11.0, 44.0, 30.0]

    assert median_ratio(values, floors) == pytest.approx(1.1)
