"""One scrape queries the state of the process once."""

from pathlib import Path

import pytest
from prometheus_client import generate_latest

from haptic_trio.cli.serving import probes
from haptic_trio.cli.serving.probes import Scrapes, health_of
from haptic_trio.health import HealthReport
from haptic_trio.metrics import Metrics
from haptic_trio.stages.process import Process
from tests.support.components.controller import ControllerRig


async def test_a_scrape_asks_for_the_state_of_the_process_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig, metrics = ControllerRig(tmp_path), Metrics()
    Scrapes(metrics.families, rig.process, rig.cluster)
    asked: list[Process] = []

    def ask(process: Process) -> HealthReport:
        asked.append(process)
        return health_of(process)

    monkeypatch.setattr(probes, "health_of", ask)
    text = generate_latest(metrics.registry).decode()

    assert asked == [rig.process]
    assert {"haptic_ready 0.0", "haptic_iteration_number 0.0", "haptic_iteration_stage 0.0"} <= set(text.splitlines())
