"""Fixtures of the fleet tests."""

from collections.abc import Iterator

import pytest
import structlog

from tests.support.processes.haproxy import haproxy_binary, instance_root

__all__ = ["haproxy_binary", "instance_root", "quiet"]


@pytest.fixture(autouse=True, scope="package")
def quiet() -> Iterator[None]:
    """Drop log lines: thousands of examples would write more of them than anybody reads, and take their time."""
    structlog.configure(processors=[drop])
    yield
    structlog.reset_defaults()


def drop(_logger: object, _method: str, _event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    raise structlog.DropEvent
