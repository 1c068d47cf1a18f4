"""The request benchmark, as a person calls it."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tests.support.processes.haproxy import haproxy_binary, live_haproxies
from tools.bench.requests.cases import CASES
from tools.bench.requests.command import main
from tools.bench.requests.table import RequestMeasured

__all__ = ["haproxy_binary"]

ROOT = Path(__file__).parents[4]
COMMAND = [sys.executable, "-m", "tools.bench.requests.command"]


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_binary")
def test_every_case_is_measured_and_nothing_is_left(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"

    ended = subprocess.run(
        [*COMMAND, "--hosts", "4", "--rounds", "2", "--requests", "16", "--json", figures],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        timeout=100,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    measured = msgspec.json.decode(figures.read_bytes(), type=RequestMeasured)
    assert [one.name for one in measured.requests] == [case.name for case in CASES]
    for one in measured.requests:
        assert one.cpu_us > 0
        assert one.p99_us > 0
        assert f"| {one.name} | {one.cpu_us:.1f} | {one.ratio:.2f} |" in ended.stdout
    assert len(measured.memory) == 4
    assert not live_haproxies(tmp_path)
    assert "| request, HTTPRoute: path " in ended.stdout
    assert {each.name for each in tmp_path.iterdir()} == {figures.name, "performance-requests.svg"}


def test_help_says_what_is_measured() -> None:
    shown = CliRunner().invoke(main, ["--help"])

    assert shown.exit_code == 0
    assert "--hosts" in shown.output
    assert "20000" in shown.output


@pytest.mark.parametrize("hosts", ["1", "many", "1000,"])
def test_numbers_of_hosts_are_checked(hosts: str) -> None:
    shown = CliRunner().invoke(main, ["--hosts", hosts])

    assert shown.exit_code == 2
    assert "1000,20000" in shown.output
