"""A shell in a directory with a site."""

from pathlib import Path

import pytest

from tests.cli.mistakes.commands import KUBECONFIG, Shell, make_site


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], haproxy_binary: Path
) -> Shell:
    """A shell in a directory with a site and files of users."""
    make_site(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAPTIC_HAPROXY", str(haproxy_binary))
    Path("kubeconfig").write_text(KUBECONFIG)
    Path("broken").write_text("apiVersion: v1\nclusters: [a, b\ncontexts: {\n")
    Path("haproxy-2.4").write_text('#!/bin/sh\necho "HAProxy version 2.4.0 2021/05/14 - https://haproxy.org/"\n')
    Path("haproxy-2.4").chmod(0o755)
    return Shell(monkeypatch, capsys)
