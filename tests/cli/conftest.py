"""Directories of manifests, and the real HAProxy."""

from pathlib import Path

import pytest

from haptic_trio.demo.site import DemoPorts, write_site
from tests.support.processes.haproxy import haproxy_binary

__all__ = ["haproxy_binary"]

PORTS = DemoPorts(http=18880, https=18443, web_one=18881, web_two=18882, api=18883)


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """The manifests of the demo; nothing listens on the ports that they name."""
    return write_site(tmp_path / "site", PORTS).manifests


@pytest.fixture(autouse=True)
def _no_kubeconfig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have commands find no kubeconfig of the user who runs the tests."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
