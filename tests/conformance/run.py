"""Runs the official conformance suite of the Gateway API against this checkout, on a cluster of its own.

    python -m tests.conformance.run [--profile NAME ...] [--run TEST ...] [--core] [--hold] [--output DIR]

A run of all profiles and tests is written to docs/conformance. Exits with 0 when nothing failed, 1 when something
did, and 3, with the reason, where the suite or a cluster cannot be had.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio

from haptic_trio import __version__
from haptic_trio.dataplane.binary import find_haproxy, probe_version
from tests.cluster.control_plane.binaries import UNAVAILABLE, BinaryUnavailableError, provide_binaries
from tests.cluster.node.images import CHECKOUT
from tests.cluster.node.namespaces import why_no_namespaces
from tests.cluster.rig import open_cluster
from tests.cluster.workloads.client import Cluster
from tests.conformance.programs import CHANNEL, VERSION, Programs, provide_programs
from tests.conformance.site import GatewaySite
from tests.conformance.suite import Run, Wanted, run_suite
from tests.conformance.suite_log import find_reasons
from tests.conformance.summary import CORE, is_good, markdown_summary, profile_lines, text_summary

DOCUMENTS: Final = CHECKOUT / "docs" / "conformance"
INSTALL_LIMIT: Final = 60.0
SAVE_LIMIT: Final = 30.0


class NotReadyError(Exception):
    """What is to be tested does not start; trying again seldom helps."""


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", action="append", choices=list(CORE), help="all, unless given")
    parser.add_argument("--run", action="append", default=[], help="names of tests, or patterns; commas separate them")
    parser.add_argument("--core", action="store_true", help="nothing but the core of the profiles")
    parser.add_argument("--parallel", type=int, default=Wanted(profiles=()).parallel)
    parser.add_argument("--hold", action="store_true", help="let the cluster run on until Ctrl-C")
    parser.add_argument("--output", type=Path, help="where logs and reports go; a new directory, unless given")
    return parser.parse_args(arguments)


def wanted_of(options: argparse.Namespace) -> Wanted:
    """Return what *options* ask for."""
    profiles = tuple(dict.fromkeys(options.profile or CORE))
    features = sorted(frozenset().union(*(CORE[name] for name in profiles))) if options.core else ()
    only = [name for one in options.run for name in one.split(",") if name]
    return Wanted(profiles=profiles, only=only, features=features, parallel=options.parallel)


def is_whole(wanted: Wanted) -> bool:
    """Whether *wanted* is everything, which is worth a place in the documents."""
    return set(wanted.profiles) == set(CORE) and not wanted.only and not wanted.features


async def run_on_cluster(programs: Programs, wanted: Wanted, output: Path, *, hold: bool) -> Run:
    """Run the suite on a cluster that is gone afterwards; what it said is in *output*."""
    async with open_cluster() as cluster:
        site = GatewaySite(cluster, output)
        try:
            try:
                with trio.fail_after(INSTALL_LIMIT):
                    await site.serve_gateways(programs)
            except trio.TooSlowError as exc:
                raise NotReadyError(f"the controller or HAProxy did not become ready: see {output / 'state'}") from exc
            run = await run_suite(cluster, programs, wanted, output)
            crashes = await site.restarts()
        finally:
            with trio.move_on_after(SAVE_LIMIT, shield=True):
                await site.save_state(output / "state")
        if hold:
            await _hold(cluster, run)
    return msgspec.structs.replace(run, crashes=crashes)


async def _hold(cluster: Cluster, run: Run) -> None:
    sys.stdout.write(f"{text_summary(run.outcomes, run.log)}\nthe cluster of {cluster.state.directory} runs on\n")
    sys.stdout.flush()
    await trio.sleep_forever()


def write_documents(run: Run, directory: Path, haproxy: str) -> None:
    """Write the official report and the summary of *run* to *directory*."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{CHANNEL}-v{__version__}-default-report.yaml").write_text(run.report)
    heading = {
        "Gateway API": f"v{VERSION}, {CHANNEL} channel",
        "haptic-trio": __version__,
        "HAProxy": haproxy,
        "date": datetime.now(UTC).date().isoformat(),
    }
    (directory / "README.md").write_text(markdown_summary(run.outcomes, run.log, heading))


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says."""
    options = parse_arguments(arguments)
    wanted = wanted_of(options)
    output = options.output or Path(tempfile.mkdtemp(prefix="haptic-conformance-"))
    output.mkdir(parents=True, exist_ok=True)
    if reason := why_no_namespaces():
        sys.stderr.write(f"{reason}\n")
        return UNAVAILABLE
    try:
        provide_binaries()
        programs = provide_programs()
    except BinaryUnavailableError as exc:
        sys.stderr.write(f"{exc}\n")
        return UNAVAILABLE
    try:
        run = trio.run(partial(run_on_cluster, programs, wanted, output, hold=options.hold))
    except NotReadyError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    sys.stdout.write(f"{text_summary(run.outcomes, run.log, wanted.profiles)}\n")
    if run.report:
        sys.stdout.write("\n".join(profile_lines(run.report)) + "\n")
    if not run.outcomes:
        sys.stdout.write("\n".join(["no test was run:", *find_reasons(run.log.lines.get("", []))]) + "\n")
    if is_whole(wanted) and run.report:
        write_documents(run, DOCUMENTS, probe_version(find_haproxy()).text)
    sys.stdout.write(f"logs and reports: {output}\n")
    if run.crashes:
        sys.stdout.write(f"the controller or HAProxy crashed {run.crashes} times\n")
    return 0 if run.status == 0 and is_good(run.outcomes) and not run.crashes else 1


if __name__ == "__main__":
    sys.exit(main())
