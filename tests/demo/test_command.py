"""The demo as a person starts it: a process of its own, with real HAProxy."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from haptic_trio.demo.check import find_processes
from tests.support.processes.haproxy import fetch

pytestmark = pytest.mark.haproxy

LIMIT = 120.0
STOP_LIMIT = 20.0


def test_the_story_holds_from_start_to_stop(tmp_path: Path, haproxy_binary: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "haptic_trio", "demo", "--check", "--haproxy", str(haproxy_binary)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )

    assert run.returncode == 0, f"{run.stdout}\n{run.stderr[-6000:]}"
    assert "FAILED" not in run.stdout
    for step in ("endpoint moves", "new Ingress", "broken YAML", "ConfigMap changes", "invalid ConfigMap", "stop"):
        assert step in run.stdout
    assert find_processes(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


async def test_the_demo_serves_until_it_is_interrupted(tmp_path: Path, haproxy_binary: Path) -> None:
    command = [sys.executable, "-m", "haptic_trio", "demo", "--dir", str(tmp_path), "--haproxy", str(haproxy_binary)]
    with trio.fail_after(LIMIT):
        process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            assert process.stdout is not None
            guide = ""
            async for chunk in process.stdout:
                guide += chunk.decode()
                if "Ctrl-C" in guide:
                    break
            port = int(guide.split("http://127.0.0.1:")[1].split("/")[0])
            assert await fetch(port, host="demo.localhost") == (200, "web-one answers GET / for demo.localhost\n")
            # The command line of a master is empty for a moment while it executes itself again.
            while True:
                if find_processes(tmp_path):
                    break
                await trio.sleep(0.02)
        finally:
            process.send_signal(signal.SIGINT)
            with trio.move_on_after(STOP_LIMIT, shield=True):
                await process.wait()
            assert process.stdout is not None
            with trio.move_on_after(STOP_LIMIT, shield=True):
                await process.stdout.aclose()

    assert process.returncode == 0
    assert find_processes(tmp_path) == []
    assert (tmp_path / "manifests" / "ingress.yaml").exists()
