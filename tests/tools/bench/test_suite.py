"""The bench, as a person calls it."""

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from haptic_trio.dataplane.binary import probe_version
from tests.support.processes.haproxy import haproxy_binary, live_haproxies

__all__ = ["haproxy_binary"]

ROOT = Path(__file__).parents[3]
MAKE_BENCH = [sys.executable, "-m", "tools.bench.run"]
USERS_BENCH = [sys.executable, "-m", "tools.bench.command"]
SMALL = ["--sizes", "10", "--samples", "3", "--cold-starts", "1", "--configs", "1", "--interval-seconds", "0"]
FEW = 10
"""Fragments that a change of one object may render."""

FIELDS = {"name", "n", "p50_ms", "p99_ms", "reloads", "errors", "rss_mib", "cpu_s"}
FLOORS = {"floor: haproxy -c", "floor: reload"}
MAP_OR_SERVER = {
    "endpoint change",
    "new Ingress, known Service",
    "path change",
    "certificate change",
    "delete, Service in use",
}
BACKEND = {"new Ingress", "delete"}
CONFIG = {"ConfigMap change, to traffic", "ConfigMap change, to deployment"}
WHOLE = [("render", "Ingress", 10), ("render", "HTTPRoute", 10), ("cold start", "HTTPRoute", 10)]
OTHERS = {"cold start", "burst", "endpoint change, new ConfigMap"}


def run(command: list[str], tmp_path: Path, *arguments: str) -> list[dict[str, Any]]:
    """Run a bench with everything in *tmp_path*, and return its cases."""
    cases: list[dict[str, Any]] = measure(command, tmp_path, *arguments)["cases"]
    return cases


def measure(command: list[str], tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """Run a bench with everything in *tmp_path*, and return its figures; the folder is empty again."""
    figures = tmp_path / "figures.json"
    ended = subprocess.run(
        [*command, *arguments, "--json", str(figures)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(figures.read_text())
    for case in found["cases"]:
        assert case["name"] in ended.stdout
    assert "| cold start, 10,000 Ingresses " in ended.stdout
    for curve in tmp_path.glob("performance-*.svg"):
        ET.parse(curve)
        curve.unlink()
    figures.unlink()
    return found


@pytest.mark.haproxy
@pytest.mark.parametrize("cluster", ["api", "directory"])
def test_every_case_counts_real_work_and_nothing_is_left(tmp_path: Path, haproxy_binary: Path, cluster: str) -> None:
    graphs = tmp_path / "graphs"
    profile = ["--profile", str(graphs)] if cluster == "api" else []

    # Once is enough: `render` does not depend on the cluster.
    whole = [] if cluster == "api" else ["--no-whole"]

    figures = measure([*MAKE_BENCH, "--clusters", cluster], tmp_path, *SMALL, *profile, *whole)

    found = figures["cases"]
    cases = {case["name"]: case for case in found}
    assert len(cases) == len(found)
    assert cases.keys() == FLOORS | MAP_OR_SERVER | BACKEND | CONFIG | OTHERS
    # From 3.4 on, a backend is added and removed at run time.
    for_backend = 0 if probe_version(haproxy_binary).number >= (3, 4) else 1
    expected = dict.fromkeys(MAP_OR_SERVER, 0) | dict.fromkeys(BACKEND, for_backend) | dict.fromkeys(CONFIG, 1)
    for name, reloads in expected.items():
        assert cases[name]["reloads"] == reloads * cases[name]["samples"], name
    for name, case in cases.items():
        assert case.keys() >= FIELDS
        assert (case["cluster"], case["n"], case["errors"]) == (cluster, 10, 0), name
        assert 0 < case["p50_ms"] <= case["p99_ms"] <= case["max_ms"]
        assert 10 < case["rss_mib"] <= case["peak_mib"]
    for name in MAP_OR_SERVER | BACKEND:
        assert cases[name]["samples"] == 3
        assert 1 <= cases[name]["fragments"] <= FEW, name
        assert cases[name]["requests"] > 0
    assert cases["burst"]["notes"] == {"changes": 50}
    assert cases["burst"]["fragments"] >= 10
    assert cases["cold start"]["cpu_s"] > 0.1
    measured = [(one["name"], one["kind"], one["n"]) for one in figures["whole"] if one["seconds"] > one["check_s"] > 0]
    assert measured == ([] if whole else WHOLE)
    if profile:
        assert_steps(cases["endpoint change"])
        for name in ("api-10-start.svg", "api-10.svg"):
            assert_graph(graphs / name)
            (graphs / name).unlink()
        graphs.rmdir()
    assert not live_haproxies(tmp_path)
    assert not list(tmp_path.iterdir())


def assert_steps(case: dict[str, Any]) -> None:
    steps = [step["name"] for step in case["timeline"]]
    expected = [
        "reconciliation triggered",
        "configuration rendered",
        "deployment scheduled",
        "instance updated without reload",
    ]
    assert [name for name in steps if name in expected] == expected
    assert "the client has the right answer" in steps
    times = [step["at_ms"] for step in case["timeline"]]
    assert times == sorted(times)
    assert times[0] > 0


def assert_graph(path: Path) -> None:
    drawn = {title.text or "" for title in ET.parse(path).iter("{http://www.w3.org/2000/svg}title")}
    assert any("cli/serve" in title for title in drawn), path


@contextmanager
def api_server(kubeconfig: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.support.api_server.server", str(kubeconfig)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_binary")
def test_a_users_cluster_is_measured_in_a_namespace_of_its_own(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    with api_server(kubeconfig):
        cases = run(
            USERS_BENCH,
            tmp_path,
            *SMALL,
            "--samples",
            "1",
            "--burst",
            "10",
            "--kubeconfig",
            str(kubeconfig),
            "--address",
            "127.0.0.1",
        )

    assert {case["cluster"] for case in cases} == {"api"}
    assert sum(case["errors"] for case in cases) == 0
    assert not live_haproxies(tmp_path)


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_binary")
def test_an_interrupted_bench_ends_what_it_started(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*USERS_BENCH, "--sizes", "2", "--cold-starts", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as bench:
        assert bench.stderr is not None
        while "cold start" not in bench.stderr.readline():
            assert bench.poll() is None
        bench.send_signal(signal.SIGTERM)
        bench.stderr.read()

    assert bench.returncode == 130
    assert not live_haproxies(tmp_path)
    assert not list(tmp_path.iterdir())
