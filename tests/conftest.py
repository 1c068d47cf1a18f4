"""Fixtures and profiles that all tests share."""

import os
import signal
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

# The duration of an example depends on the load of the machine, so a deadline would only measure that.
COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
settings.register_profile("ci", COMMON, max_examples=200, derandomize=True)
settings.register_profile("deep", COMMON, max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# A shell starts background jobs with SIGINT ignored, and processes that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _own_logs() -> Iterator[None]:
    """Have each test log to the present standard output, not to the stream of a command in an earlier test."""
    yield
    structlog.reset_defaults()
