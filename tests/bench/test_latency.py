"""The latency bench, as a person calls it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.haproxy import haproxy_binary, live_haproxies

__all__ = ["haproxy_binary"]

ROOT = Path(__file__).parents[2]
BENCH = [sys.executable, str(ROOT / "bench" / "latency.py")]


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_binary")
def test_the_bench_measures_every_kind_of_change_and_ends_what_it_started(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"

    run = subprocess.run(
        [*BENCH, "--sizes", "2", "--repeats", "1", "--cold-starts", "1", "--json", str(figures)],
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        timeout=120,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    cases = {case["name"]: case for case in json.loads(figures.read_text())["cases"]}
    assert {name: case["reloads"] for name, case in cases.items()} == {
        "cold start": 0,
        "endpoint moves": 0,
        "new Ingress, known Service": 0,
        "new Ingress, new Service": 1,
        "ConfigMap, to traffic": 1,
        "ConfigMap, to deployment": 1,
    }
    for name, case in cases.items():
        assert name in run.stdout
        assert case["errors"] == 0
        assert 0 < case["p50_ms"] <= case["p99_ms"] <= case["max_ms"]
        assert case["phases"]["cycles"] == 1
    assert not live_haproxies(tmp_path)
    assert list(tmp_path.iterdir()) == [figures]


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_binary")
def test_an_interrupted_bench_ends_what_it_started(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*BENCH, "--sizes", "2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as bench:
        assert bench.stderr is not None
        while "cold start" not in bench.stderr.readline():
            assert bench.poll() is None
        bench.send_signal(signal.SIGINT)
        bench.stderr.read()

    assert bench.returncode == 130
    assert not live_haproxies(tmp_path)
    assert not list(tmp_path.iterdir())
