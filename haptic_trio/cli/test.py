"""`test`: runs the tests of a configuration, of test files, or of the shipped libraries."""

import fnmatch
import os
import sys
from pathlib import Path

import click
import msgspec
import trio
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from haptic_trio.cli.inputs.choices import MANIFESTS
from haptic_trio.cli.inputs.files import replace_file
from haptic_trio.cli.inputs.options import InputOptions, make_input
from haptic_trio.cli.inputs.source_map import placed, placed_cases
from haptic_trio.cli.inputs.suite_sources import Input, NoTestsError, read_input
from haptic_trio.cli.inputs.suite_update import update_files
from haptic_trio.cli.output.failures import failures_of, print_failures, words_of
from haptic_trio.cli.output.findings import Area, find, findings_to_json, make_console, print_findings
from haptic_trio.cli.output.junit import to_junit
from haptic_trio.cli.output.suite_report import Report, print_report, report_to_json
from haptic_trio.dataplane.binary import HaproxyNotFoundError, find_haproxy, need_supported
from haptic_trio.errors import HapticError, leaves_of
from haptic_trio.validation_tests.cases import Case, find_cases
from haptic_trio.validation_tests.coverage import measure
from haptic_trio.validation_tests.results import CaseResult
from haptic_trio.validation_tests.runner import Runner, RunOptions
from haptic_trio.validation_tests.tracing import TemplateTracer, slowest_of

EXIT_FAILED_TESTS = 1
EXIT_UNUSABLE = 2


class SuiteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `test`."""

    input: InputOptions | None
    tests: tuple[Path, ...]
    libraries: tuple[str, ...]
    binary: Path | None
    jobs: int
    filters: tuple[str, ...]
    update: bool
    coverage: bool
    slowest: int
    progress: bool
    """Show a progress bar on standard error."""


@click.command()
@click.option(
    "--manifests",
    type=MANIFESTS,
    envvar="HAPTIC_MANIFESTS",
    help="Directory of Kubernetes manifests with the ConfigMap that has the tests.",
)
@click.option("--namespace", envvar="HAPTIC_NAMESPACE", show_default="`default`", help="Namespace of the ConfigMap.")
@click.option(
    "--config-map",
    default="haptic-trio",
    show_default=True,
    envvar="HAPTIC_CONFIG_MAP",
    help="Name of the ConfigMap whose `data.config` is the configuration.",
)
@click.option(
    "--tests",
    type=click.Path(exists=True, path_type=Path),
    multiple=True,
    metavar="PATH",
    help="Additional tests for that configuration: a YAML file, or a directory of YAML files; may be repeated.",
)
@click.option(
    "--library",
    "libraries",
    multiple=True,
    metavar="NAME",
    help="Run the tests of a shipped library, or of `all`; may be repeated.",
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="PATTERN",
    help="Only tests whose name contains PATTERN, or matches it if it has *, ? or [; may be repeated (any matches).",
)
@click.option(
    "--haproxy",
    metavar="PATH",
    envvar="HAPTIC_HAPROXY",
    help="HAProxy binary. Default: the one on PATH, else that of the `haproxy` extra. Without HAProxy, assertions that"
    " need it are skipped.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    default=max(2, os.cpu_count() or 1),
    show_default="processors",
    help="Number of tests that run at once.",
)
@click.option("--update", is_flag=True, help="Replace the expected texts of `equals` in the files by the actual texts.")
@click.option("--coverage", is_flag=True, help="Show lines and branches of templates that no test renders.")
@click.option("--slowest", type=click.IntRange(1), metavar="N", help="Show the N slowest templates.")
@click.option("--verbose", "-v", is_flag=True, help="Show every assertion, not only failed ones.")
@click.option(
    "--output",
    "output_format",
    type=click.Choice(["text", "json", "junit"]),
    default="text",
    show_default=True,
    help="Format of standard output: a tree, a JSON document or a JUnit XML document.",
)
@click.option(
    "--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write JUnit XML to FILE."
)
def test(
    *,
    manifests: Path | None,
    namespace: str | None,
    config_map: str,
    tests: tuple[Path, ...],
    libraries: tuple[str, ...],
    filters: tuple[str, ...],
    haproxy: str | None,
    jobs: int,
    update: bool,
    coverage: bool,
    slowest: int | None,
    verbose: bool,
    output_format: str,
    junit: Path | None,
) -> None:
    """Run the tests of a configuration: render fixtures, check the output, and send requests to a real HAProxy.

    \b
      haptic-trio test --manifests DIR                    the tests in DIR's ConfigMap
      haptic-trio test --manifests DIR --tests TESTS      also the tests in files outside of DIR
      haptic-trio test --library all                      the tests of the shipped libraries
      haptic-trio test --manifests DIR --update           accept the rendered output as expected

    Exit codes: 0 all tests passed, 1 a test failed, 2 the tests or the
    configuration are invalid, or the command failed.
    """
    if manifests is None and not libraries:
        raise click.UsageError("give --manifests DIR or --library NAME")
    if manifests is None and tests:
        raise click.UsageError("--tests needs --manifests")
    if update and (coverage or slowest):
        raise click.UsageError("--update excludes --coverage and --slowest")
    source = make_input(manifests, namespace, config_map, "haptic-trio", haproxy) if manifests else None
    try:
        options = SuiteOptions(
            input=source,
            tests=tests,
            libraries=libraries,
            binary=_find_binary(haproxy),
            jobs=jobs,
            filters=filters,
            update=update,
            coverage=coverage,
            slowest=slowest or 0,
            progress=sys.stderr.isatty(),
        )
        report = trio.run(_run, options)
    except* (HapticError, OSError) as group:
        sys.exit(_explain(group, source, as_json=output_format == "json"))
    report = msgspec.structs.replace(report, cases=placed_cases(report.cases, source))
    _write(report, output_format, verbose=verbose, junit=junit)
    sys.exit(0 if report.passed else EXIT_FAILED_TESTS)


def _find_binary(explicit: str | None) -> Path | None:
    """Return the HAProxy binary; None if none was given and none is found."""
    try:
        binary = find_haproxy(explicit)
    except HaproxyNotFoundError:
        if explicit is not None:
            raise
        return None
    # Reject other programs: one that always exits with 0 would pass every check.
    need_supported(binary)
    return binary


async def _run(options: SuiteOptions) -> Report:
    given = await read_input(options.input, options.tests, options.libraries)
    cases = find_cases(given.suites, lambda name: _is_wanted(name, options.filters))
    if not cases:
        raise NoTestsError(f"no test matches {', '.join(options.filters)}" if options.filters else "no tests found")
    # Rendering threads share the interpreter with tasks that wait for HAProxy.
    sys.setswitchinterval(0.0005)
    tracer = TemplateTracer(lines=options.coverage) if options.coverage or options.slowest else None
    began = trio.current_time()
    results = await _run_cases(cases, options, tracer)
    updated = await _update(results, given, options) if options.update else 0
    if updated:
        # Read the updated files.
        given = await read_input(options.input, options.tests, options.libraries)
        cases = find_cases(given.suites, lambda name: _is_wanted(name, options.filters))
        results = await _run_cases(cases, options, None)
    return Report(
        cases=tuple(results),
        seconds=trio.current_time() - began,
        coverage=tuple(measure(tracer)) if tracer is not None and options.coverage else None,
        own=given.own_templates,
        slowest=tuple(slowest_of(tracer, options.slowest)) if tracer is not None and options.slowest else None,
        updated=updated,
    )


async def _run_cases(cases: list[Case], options: SuiteOptions, tracer: TemplateTracer | None) -> list[CaseResult]:
    runner = Runner(
        RunOptions(binary=options.binary, jobs=options.jobs), tracing=tracer.tracing if tracer is not None else None
    )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=make_console(sys.stderr), transient=True, disable=not options.progress)
    with progress:
        task = progress.add_task("tests", total=len(cases))
        failed = 0

        def show_result(result: CaseResult) -> None:
            nonlocal failed
            failed += result.failed
            progress.update(task, advance=1, description=f"tests, {failed} failed" if failed else "tests")

        return await runner.run(cases, show_result)


async def _update(results: list[CaseResult], given: Input, options: SuiteOptions) -> int:
    manifests = options.input.manifests if options.input is not None else None
    source = options.input.source if options.input is not None else None
    return await trio.to_thread.run_sync(update_files, results, given, manifests, source)


def _is_wanted(name: str, filters: tuple[str, ...]) -> bool:
    own = name.rpartition("/")[2]
    return not filters or any(
        fnmatch.fnmatchcase(own, pattern) if set(pattern) & set("*?[") else pattern in name for pattern in filters
    )


def _write(report: Report, output_format: str, *, verbose: bool, junit: Path | None) -> None:
    if junit is not None:
        replace_file(junit, to_junit(report.cases))
    if output_format == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report_to_json(report)), indent=2))
    elif output_format == "junit":
        click.echo(to_junit(report.cases), nl=False)
    else:
        print_report(sys.stdout, report, verbose=verbose)


def _explain(group: BaseExceptionGroup[BaseException], source: InputOptions | None, *, as_json: bool) -> int:
    console = make_console(sys.stderr)
    failures: list[dict[str, object]] = []
    for error in leaves_of(group):
        findings = placed(find(Area.CONFIGURATION, getattr(error, "problems", ())), source)
        if as_json:
            failures += findings_to_json(findings) or failures_of(error)
        elif findings:
            print_findings(console, findings)
        else:
            click.secho(f"error: {words_of(error)}", fg="red", err=True)
    if as_json:
        print_failures(failures)
    return EXIT_UNUSABLE
