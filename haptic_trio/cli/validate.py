"""`validate`: reports every problem of a directory of manifests at once."""

import sys
from functools import partial
from pathlib import Path

import click
import msgspec
import trio

from haptic_trio.cli.inputs.choices import output_option
from haptic_trio.cli.inputs.oneshot import Outcome, Snapshot, count_objects, read_snapshot, render_snapshot
from haptic_trio.cli.inputs.options import InputOptions, input_options
from haptic_trio.cli.inputs.source_map import placed
from haptic_trio.cli.inputs.unserved import find_unserved, with_types_of_secrets
from haptic_trio.cli.inputs.unused import find_unused
from haptic_trio.cli.output.findings import (
    Area,
    Finding,
    count_errors,
    find,
    findings_to_json,
    make_console,
    print_findings,
    quantity,
)
from haptic_trio.cli.output.progress import Steps, showing_steps
from haptic_trio.config.load import LoadedConfig
from haptic_trio.dataplane.binary import find_haproxy
from haptic_trio.errors import Problem
from haptic_trio.k8s.manifests.schemas import check_manifests
from haptic_trio.validation_tests.cases import find_cases
from haptic_trio.validation_tests.gate import run_gate, suite_of


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `validate`."""

    snapshot: Snapshot
    outcome: Outcome | None
    """None if there is no valid configuration to render."""
    findings: tuple[Finding, ...]
    """All problems and warnings."""

    @property
    def is_valid(self) -> bool:
        """Whether there are no errors."""
        return not count_errors(self.findings)


@click.command()
@input_options
@output_option
def validate(
    *,
    source: InputOptions,
    output_format: str,
) -> None:
    """Check a cluster or a directory of manifests as `serve` does, and report all problems at once.

    \b
    Checks, in this order:
      manifests       each YAML document is a Kubernetes object, with the fields and values of its kind
      configuration   fields, durations, JSONPaths, templates
      tests           its own tests pass (`haptic-trio test` also runs those that send requests)
      objects         each object can be rendered; warnings about objects that are not served as they say
      output          the parser and `haproxy -c` accept the result

    Exit codes: 0 valid, 1 there are problems, 2 the command failed.
    """
    with showing_steps(sys.stderr) as steps:
        report = make_report(source, steps)
    if output_format == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(to_json(report)), indent=2))
    else:
        _print_report(report)
    sys.exit(0 if report.is_valid else 1)


def make_report(source: InputOptions, steps: Steps) -> Report:
    """Check all of *source*."""
    snapshot = trio.run(read_snapshot, source, steps)
    outcome = None
    tests: tuple[Problem, ...] = ()
    unused: tuple[Problem, ...] = ()
    if snapshot.loaded is not None:
        outcome = trio.run(partial(render_snapshot, snapshot, haproxy=source.haproxy, check=True, steps=steps))
        steps.begin("running the tests of the configuration")
        tests = trio.run(_run_tests, snapshot.loaded, find_haproxy(source.haproxy))
        unused = find_unused(snapshot.loaded)
    rendered = outcome.findings if outcome is not None else ()
    if source.manifests is not None:
        rendered = tuple(with_types_of_secrets(rendered, snapshot.manifests))
    steps.begin(f"checking the fields of {len(snapshot.manifests):,} objects")
    schemas = find(Area.MANIFESTS, check_manifests(snapshot.manifests))
    warnings = find(Area.CONFIGURATION, unused, is_warning=True)
    unserved = find(Area.OBJECT, find_unserved(snapshot), is_warning=True)
    findings = placed((*schemas, *snapshot.findings, *warnings, *find(Area.TESTS, tests), *rendered, *unserved), source)
    return Report(snapshot=snapshot, outcome=outcome, findings=findings)


async def _run_tests(loaded: LoadedConfig, binary: Path) -> tuple[Problem, ...]:
    return await trio.to_thread.run_sync(lambda: tuple(run_gate(suite_of(loaded), binary)))


def to_json(report: Report) -> dict[str, object]:
    """Return *report* as plain data."""
    generation = report.outcome.generation if report.outcome is not None else None
    return {
        "valid": report.is_valid,
        "objects": {name: len(store) for name, store in report.snapshot.stores.items()},
        "generation": generation.id if generation is not None else None,
        "problems": findings_to_json(report.findings),
    }


def _print_report(report: Report) -> None:
    console = make_console(sys.stdout)
    print_findings(console, report.findings)
    for area in Area:
        found = [finding for finding in report.findings if finding.area is area]
        console.print(f"{area.value + ':':<15}{_verdict(report, area, found)}", style=_style(report, area, found))


def _was_reached(report: Report, area: Area) -> bool:
    return report.outcome is not None or area in {Area.MANIFESTS, Area.CONFIGURATION}


def _style(report: Report, area: Area, found: list[Finding]) -> str:
    if not _was_reached(report, area):
        return "yellow"
    return "bold red" if count_errors(found) else "green"


def _verdict(report: Report, area: Area, found: list[Finding]) -> str:
    if not _was_reached(report, area):
        return "not checked: the configuration is invalid"
    if errors := count_errors(found):
        return quantity(errors, "problem")
    if area is Area.OBJECT:
        return f"ok ({count_objects(report.snapshot.stores)} watched)"
    if area is Area.TESTS and report.snapshot.loaded is not None:
        cases = find_cases([suite_of(report.snapshot.loaded)])
        return f"ok ({quantity(len(cases), 'test')})" if cases else "none"
    if area is Area.OUTPUT and report.outcome is not None and report.outcome.generation is not None:
        generation = report.outcome.generation
        return f"ok ({len(generation.config.sections)} sections, {len(generation.files)} files)"
    return "ok"
