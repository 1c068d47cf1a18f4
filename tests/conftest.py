"""Fixtures and profiles that all tests share."""

import os
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

# Examples of one run take as long as the machine is busy: a deadline would only measure that.
COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
settings.register_profile("ci", COMMON, max_examples=200, derandomize=True)
settings.register_profile("deep", COMMON, max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(autouse=True)
def _own_logs() -> Iterator[None]:
    """Have each test log to what is standard output then, not to where a command that an earlier one ran did."""
    yield
    structlog.reset_defaults()
