"""The bench of endpoint changes while the ConfigMap changes, as a person calls it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes.haproxy import haproxy_binary, live_haproxies

__all__ = ["haproxy_binary"]

ROOT = Path(__file__).parents[3]
PHASES = ("before", "candidate", "next iteration, reload", "after")
CHANGES = ("setting", "global", "backends")


@pytest.mark.haproxy
def test_each_phase_of_a_change_has_a_row(tmp_path: Path, haproxy_binary: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tools.bench.configure", "--size", "10", "--configs", "1", "--seconds", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path), "PATH": f"{haproxy_binary.parent}:{os.environ['PATH']}"},
        timeout=200,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    for phase in PHASES:
        assert re.search(rf"^{phase} ", ended.stdout, re.MULTILINE), ended.stdout
    # Every move has reached traffic, also those of the time in which HAProxy was reloaded.
    for change in CHANGES:
        assert re.search(rf"^{change} +[1-9]", ended.stdout, re.MULTILINE), ended.stdout
    assert not live_haproxies(tmp_path)
    assert not list(tmp_path.iterdir())
