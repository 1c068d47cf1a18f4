"""Metrics that are read when they are scraped."""

from pathlib import Path

import pytest
from prometheus_client import generate_latest

from haptic_trio.cli.serving import probes
from haptic_trio.cli.serving.probes import Scrapes, health_of
from haptic_trio.health import HealthReport
from haptic_trio.metrics import Metrics
from haptic_trio.stages.process import Process
from tests.support.components.controller import ControllerRig
from tests.support.components.endpoints import MemoryEndpoint


class OldWorkersEndpoint(MemoryEndpoint):
    """An endpoint with a number of old workers."""

    def __init__(self, name: str, old_workers: int | None) -> None:
        super().__init__(name)
        self.old_workers = old_workers


async def test_old_workers_are_scraped_from_each_endpoint_that_knows_them(tmp_path: Path) -> None:
    rig, metrics = ControllerRig(tmp_path), Metrics()
    Scrapes(metrics.families, rig.process, rig.cluster)
    rig.process.endpoints.put(
        (
            OldWorkersEndpoint("one", 2),
            OldWorkersEndpoint("two", 0),
            OldWorkersEndpoint("away", None),
            MemoryEndpoint("other"),
        )
    )
    lines = generate_latest(metrics.registry).decode().splitlines()

    assert [line for line in lines if line.startswith("haptic_haproxy_old_workers{")] == [
        'haptic_haproxy_old_workers{haproxy="one"} 2.0',
        'haptic_haproxy_old_workers{haproxy="two"} 0.0',
    ]


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
