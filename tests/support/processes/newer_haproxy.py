"""Fixtures for what the wheel's HAProxy cannot do: a newer one takes its place."""

from pathlib import Path

import pytest

from haptic_trio.dataplane.binary import HaproxyVersion, find_haproxy, probe_version
from tests.support.processes.haproxy_versions import is_required, provide

VERSION = "3.4"
"""What is fetched where a newer HAProxy is required."""


@pytest.fixture
def haproxy_with_quic(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have the test's HAProxy be one that was built with QUIC."""
    if "QUIC" not in _at_hand().features:
        _fetch(monkeypatch, "the HAProxy at hand was built without QUIC")
    return find_haproxy()


@pytest.fixture
def haproxy_3(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have the test's HAProxy be 3.0 or later."""
    if _at_hand().number < (3,):
        _fetch(monkeypatch, "the HAProxy at hand is older than 3.0")
    return find_haproxy()


def _at_hand() -> HaproxyVersion:
    return probe_version(find_haproxy())


def _fetch(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    if not is_required():
        pytest.skip(reason)
    monkeypatch.setenv("PATH", str(provide(VERSION)), prepend=":")
