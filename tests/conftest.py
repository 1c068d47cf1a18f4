"""Fixtures and profiles that all tests share."""

import os
import signal
import sys
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

# The duration of an example depends on the load of the machine, so a deadline would only measure that.
COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
settings.register_profile("ci", COMMON, max_examples=200, derandomize=True)
settings.register_profile("unit", COMMON, max_examples=25, derandomize=True)
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


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make test-unit`."""
    parser.addoption("--no-processes", action="store_true", help="fail each test that starts a process")


def pytest_configure(config: pytest.Config) -> None:
    """Install the guard of `--no-processes`: a test that starts a process belongs to `make test`."""
    if not config.getoption("--no-processes"):
        return

    def forbid_processes(event: str, _args: tuple[object, ...]) -> None:
        if (
            event in {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty"}
            and "PYTEST_CURRENT_TEST" in os.environ
        ):
            raise RuntimeError("this test starts a process: mark it with pytest.mark.process")

    sys.addaudithook(forbid_processes)
