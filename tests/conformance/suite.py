"""Runs the suite's program in the network of a cluster, and keeps what it reports."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

import msgspec
import trio

from haptic_trio import __version__
from tests.cluster.workloads.client import Cluster
from tests.conformance.addresses import STATIC, UNUSABLE
from tests.conformance.programs import Programs
from tests.conformance.site import GATEWAY_CLASS
from tests.conformance.suite_log import ROOT, Log, Outcome, read_log, read_outcomes

RUN_LIMIT: Final = "60m"
"""The program ends itself after this, as Go writes it."""
PROGRESS_INTERVAL: Final = 1.0
# Seconds. Stricter than the suite's own 60 to 300: what is not there by then does not come, and every failure waits.
LIMITS: Final = {
    **dict.fromkeys(("GatewayMustHaveAddress", "GatewayMustHaveCondition", "GWCMustBeAccepted"), 20),
    **dict.fromkeys(("GatewayStatusMustHaveListeners", "GatewayListenersMustHaveConditions"), 20),
    **dict.fromkeys(("ListenerSetMustHaveCondition", "ListenerSetListenersMustHaveConditions"), 20),
    **dict.fromkeys(("HTTPRouteMustNotHaveParents", "HTTPRouteMustHaveCondition", "RouteMustHaveParents"), 20),
    **dict.fromkeys(("TLSRouteMustHaveCondition", "TCPRouteMustHaveCondition", "LatestObservedGenerationSet"), 20),
    "NamespacesMustBeReady": 90,
}
_PROJECT: Final = {
    "organization": "haptic-trio",
    "project": "haptic-trio",
    # There must be one: a name that is reserved for examples (RFC 2606).
    "url": "https://haptic-trio.example",
    "contact": "SECURITY.md",
    "version": f"v{__version__}",
}


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to run."""

    profiles: Sequence[str]
    only: Sequence[str] = ()
    """Patterns of the tests to run; all that the declared features allow without any."""
    features: Sequence[str] = ()
    """Declared instead of those in the status of the GatewayClass."""
    parallel: int = 4
    """How many of the tests that allow it run at the same time."""


class Run(msgspec.Struct, frozen=True):
    """A run that ended."""

    status: int
    outcomes: list[Outcome]
    log: Log
    report: str
    """The official report; empty if there is none."""
    crashes: int = 0
    """How often a container of what is tested ended by itself."""


async def run_suite(cluster: Cluster, programs: Programs, wanted: Wanted, directory: Path) -> Run:
    """Run the suite in the cluster's network until it ends; its files are left in *directory*, which is there.

    Every test that ends is a line on standard error.
    """
    outcomes, report, log_path = (directory / name for name in ("outcomes.jsonl", "report.yaml", "suite.log"))
    for left in (outcomes, report):
        await trio.Path(left).unlink(missing_ok=True)
    command = [
        *("nsenter", f"--target={cluster.state.init_pid}", "--net", "--", os.fspath(programs.suite)),
        *suite_arguments(wanted, outcomes, report),
    ]
    environment = {**os.environ, "KUBECONFIG": os.fspath(cluster.state.inner_kubeconfig)}
    with log_path.open("wb") as log:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_report_progress, outcomes)
            done = await trio.run_process(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False, env=environment
            )
            nursery.cancel_scope.cancel(reason="the suite ended")
    return Run(done.returncode, _outcomes_in(outcomes), read_log(_text_of(log_path)), _text_of(report))


def suite_arguments(wanted: Wanted, outcomes: Path, report: Path) -> list[str]:
    """Return the arguments of the program."""
    options = {
        "gateway-class": GATEWAY_CLASS,
        "conformance-profiles": ",".join(wanted.profiles),
        "usable-address": STATIC,
        "unusable-address": UNUSABLE,
        "outcomes": os.fspath(outcomes),
        "report-output": os.fspath(report),
        "timeout-config-overrides": ";".join(f"{name}:{seconds}" for name, seconds in LIMITS.items()),
        **_PROJECT,
    }
    if wanted.only:
        options["only"] = ",".join(wanted.only)
    if wanted.features:
        options["supported-features"] = ",".join(wanted.features)
    return [
        *("-test.run", f"^{ROOT}$", "-test.v", f"-test.timeout={RUN_LIMIT}", f"-test.parallel={wanted.parallel}"),
        *(f"--{name}={value}" for name, value in options.items()),
    ]


async def _report_progress(path: Path) -> NoReturn:
    reported: set[str] = set()
    while True:
        await trio.sleep(PROGRESS_INTERVAL)
        for one in _outcomes_in(path):
            if one.test not in reported and one.outcome != "skipped":
                sys.stderr.write(f"{one.outcome}  {one.test}\n")
            reported.add(one.test)


def _outcomes_in(path: Path) -> list[Outcome]:
    return read_outcomes(_text_of(path))


def _text_of(path: Path) -> str:
    """Return what is in the file, which need not be there."""
    return path.read_text(errors="replace") if path.exists() else ""
