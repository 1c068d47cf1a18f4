"""Random changes and faultless traffic for minutes, and a report of what grows.

    python -m tests.chaos.soak --minutes 60      writes build/soak.md

Exits with 1 if a request was lost or answered wrongly, or if the state at the
end is not that of a fresh start.
"""

import argparse
import random
import sys
import tempfile
from pathlib import Path
from typing import Final

import trio

from haptic_trio.dataplane.binary import find_haproxy, probe_version
from tests.chaos.experiments.registry import choose_seed
from tests.chaos.processes import count_tasks, descriptors_of, megabytes_of
from tests.chaos.report import markdown
from tests.chaos.world import Setup, World, running
from tests.support.traffic.scrape import scrape

REPORT: Final = Path("build/soak.md")
ROWS: Final = 20
"""Rows of the report."""
CHANGE_INTERVAL: Final = 0.2
RELOAD_INTERVAL: Final = 30.0
HEADINGS: Final = (
    "minute",
    "changes",
    "requests",
    "cut",
    "lost",
    "wrong",
    "controller MB",
    "descriptors",
    "tasks",
    "HAProxy MB",
    "master descriptors",
    "old workers",
    "reloads",
    "files",
)


async def _soak(world: World, minutes: float, rows: list[list[str]]) -> None:
    """Change things until the time is over; add a row to *rows* now and then."""
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_change, world)
        for number in range(ROWS + 1):
            await trio.sleep_until(began + number * minutes * 60 / ROWS)
            rows.append(await _sample(world, number * minutes / ROWS))
            print("  ".join(cell.rjust(len(name)) for name, cell in zip(HEADINGS, rows[-1], strict=True)), flush=True)  # noqa: T201
        nursery.cancel_scope.cancel(reason="the time is over")


async def _change(world: World) -> None:
    next_reload = trio.current_time() + RELOAD_INTERVAL
    while True:
        await trio.sleep(world.rng.uniform(0, 2 * CHANGE_INTERVAL))
        if trio.current_time() >= next_reload:
            next_reload += RELOAD_INTERVAL
            world.desired.reload()
        else:
            world.desired.change()


async def _sample(world: World, minute: float) -> list[str]:
    clients, controller, instances = world.clients, world.controller.pid, world.instances
    metrics = await scrape(f"http://127.0.0.1:{world.admin}")
    files = sum(path.is_file() for path in world.site.state.rglob("*"))
    return [
        f"{minute:.1f}",
        f"{world.desired.changes:,}",
        f"{clients.requests:,}",
        str(clients.closed),
        str(len(clients.lost)),
        str(len(clients.wrong)),
        f"{megabytes_of(controller):.0f}",
        str(descriptors_of(controller)),
        str(await count_tasks(world.site.state)),
        f"{sum(megabytes_of(pid) for instance in instances for pid in instance.pids):.0f}",
        str(sum(descriptors_of(instance.master) for instance in instances)),
        str(sum(len(instance.workers) - 1 for instance in instances)),
        f"{metrics('haptic_haproxy_reloads_total') or 0:.0f}",
        str(files),
    ]


async def _run(minutes: float, instances: int, apps: int, seed: int, report: Path) -> bool:
    binary, rows, fault = find_haproxy(), list[list[str]](), ""
    setup = Setup(instances=instances, apps=apps)
    world: World | None = None
    with tempfile.TemporaryDirectory() as root:
        try:
            async with running(setup, Path(root), binary, random.Random(seed)) as world:
                await _soak(world, minutes, rows)
        except* AssertionError as group:
            fault = "; ".join(map(str, group.exceptions))
    faults = [fault] if fault else []
    if world is not None:
        faults += [f"wrong: {text}" for text in world.clients.wrong] + [f"lost: {loss}" for loss in world.clients.lost]
    version = ".".join(map(str, probe_version(binary).number))
    title = f"# Soak: {minutes:g} minutes, HAProxy {version}"
    _write_report(report, title, f"{apps} hosts, {instances} instances, seed {seed}.", rows, faults)
    return not faults


def _write_report(report: Path, title: str, setup: str, rows: list[list[str]], faults: list[str]) -> None:
    result = faults or ["Nothing was lost or wrong. The state at the end was that of a fresh start."]
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text("\n".join([title, "", setup, "", markdown(HEADINGS, rows), "", *result]) + "\n")
    print("\n".join(result), f"report: {report}", sep="\n")  # noqa: T201


def _main() -> int:
    parser = argparse.ArgumentParser(description="Make random changes with traffic, and report what grows.")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--apps", type=int, default=20)
    parser.add_argument("--report", type=Path, default=REPORT)
    found = parser.parse_args()
    seed = choose_seed()
    print(f"HAPTIC_CHAOS_SEED={seed}")  # noqa: T201
    print("  ".join(HEADINGS))  # noqa: T201
    return 0 if trio.run(_run, found.minutes, found.instances, found.apps, seed, found.report) else 1


if __name__ == "__main__":
    sys.exit(_main())
