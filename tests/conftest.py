"""Fixtures and profiles that all tests share."""

import gc
import os
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import wraps
from typing import Any

import pytest
import structlog
import trio
from hypothesis import HealthCheck, settings
from trio.abc import Instrument

from haptic_trio.slow_steps import SlowStep, SlowSteps

# The duration of an example depends on the load of the machine, so a deadline would only measure that.
COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
settings.register_profile("ci", COMMON, max_examples=50, derandomize=True)
settings.register_profile("unit", COMMON, max_examples=25, derandomize=True)
settings.register_profile("deep", COMMON, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# A shell starts background jobs with SIGINT ignored, and processes that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _own_logs() -> Iterator[None]:
    """Have each test log to the present standard output, not to the stream of a command in an earlier test."""
    yield
    structlog.reset_defaults()


def _reporting_slow_steps(run: Callable[..., object]) -> Callable[..., object]:
    """Return *run*, a `trio.run`, that warns of tasks of haptic-trio that kept the event loop busy."""

    @wraps(run)
    def reporting(*args: Any, instruments: Sequence[Instrument] = (), **kwargs: Any) -> object:
        found: list[SlowStep] = []
        try:
            return run(*args, instruments=[*instruments, SlowSteps(found.append)], **kwargs)
        finally:
            # Not while it runs: an instrument must not raise.
            for step in found:
                warnings.warn(f"slow step of {step.task} before {step.place}: {step.seconds:.2f} s", stacklevel=2)

    return reporting


trio.run = _reporting_slow_steps(trio.run)  # type: ignore[assignment]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collections, and have few during the tests, of what the tests allocate alone."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # With the default of 700, collections take a quarter of the time of the tests that render.
        gc.set_threshold(1_000, 20, 100)
        gc.enable()


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
