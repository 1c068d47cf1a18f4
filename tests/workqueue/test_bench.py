"""The bench and the example of the documentation run."""

import json
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_example_prints_the_output_in_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "workqueue.py"), run_name="__main__")
    printed = capsys.readouterr().out
    documentation = (ROOT / "docs" / "workqueue.md").read_text()
    assert printed.strip()
    assert printed in documentation


@pytest.mark.slow
def test_the_bench_reports_speed_lateness_and_bytes_as_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--keys", "500", "--spread", "0.1", "--json"])
    runpy.run_path(str(ROOT / "tools" / "bench" / "workqueue.py"), run_name="__main__")
    results = json.loads(capsys.readouterr().out)
    assert results["keys"] == 500
    assert results["fired_in_order"] == 1
    assert results["operations_per_second"] > 0
    assert {"bytes_idle", "bytes_ready", "bytes_in_hand", "bytes_deferred", "bytes_failing"} <= set(results)
    assert results["bytes_idle"] < 50 < results["bytes_deferred"] < 1000
