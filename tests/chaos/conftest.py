"""Fixtures of the experiments, and the table that they print."""

import pytest

from tests.chaos.report import ROW, table
from tests.support.processes.haproxy import haproxy_binary, instance_root

__all__ = ["haproxy_binary", "instance_root"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of all experiments."""
    rows = [
        value
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        for key, value in getattr(report, "user_properties", ())
        if key == ROW
    ]
    if rows:
        terminalreporter.section("experiments")
        terminalreporter.write(table(rows))
