"""`diff`: shows what a change would change in HAProxy, whether it would reload, and why."""

import difflib
import re
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import click
import msgspec
import trio
from rich.console import Console

from haptic_trio.cli.inputs.choices import output_option
from haptic_trio.cli.inputs.oneshot import Snapshot, read_overlaid, read_snapshot, render_snapshot
from haptic_trio.cli.inputs.options import InputOptions, input_options
from haptic_trio.cli.inputs.source_map import placed
from haptic_trio.cli.output.failures import print_failures
from haptic_trio.cli.output.findings import (
    Finding,
    count_errors,
    findings_to_json,
    make_console,
    print_findings,
    visible,
)
from haptic_trio.dataplane.binary import find_haproxy, probe_version
from haptic_trio.explain.site import MAIN, Site, shown_text
from haptic_trio.haproxy.model import AuxFile, Generation
from haptic_trio.haproxy.plan.capabilities import capabilities_of
from haptic_trio.haproxy.plan.diff import diff_files
from haptic_trio.haproxy.plan.operations import Operation
from haptic_trio.haproxy.plan.split import split_plan
from haptic_trio.httpstore.entry import ContentMemory

EXIT_DIFFERENT = 1
EXIT_UNUSABLE = 2
_NAMING = ("backend", "server", "map", "key", "path", "certificate", "crt_list", "name")
"""Fields of operations that say what is concerned; others may hold what is secret."""
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


class FileDiff(msgspec.Struct, frozen=True, kw_only=True):
    """A file that would differ."""

    path: str
    lines: tuple[str, ...]
    """As `diff -u` has them; what derives from a Secret by its digest alone."""


class Made(msgspec.Struct, frozen=True):
    """What one of the two clusters gives."""

    generation: Generation
    site: Site
    """What tells which of it derives from Secrets."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What would change."""

    files: tuple[FileDiff, ...]
    operations: tuple[str, ...]
    """What HAProxy would be told at runtime."""
    reasons: tuple[str, ...]
    """Why HAProxy would have to reload; empty if it would not."""
    haproxy: str
    """The version that this holds for."""


@click.command()
@input_options
@click.option(
    "--to",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    metavar="DIR",
    help="Directory of manifests with the change.",
)
@click.option("--overlay", is_flag=True, help="DIR holds only what changes: put it on top of what the cluster has.")
@click.option(
    "--check/--no-check",
    default=True,
    show_default=True,
    help="Have HAProxy check both results: what it refuses changes nothing.",
)
@output_option
def diff(*, source: InputOptions, to: Path, overlay: bool, check: bool, output_format: str) -> None:
    """Show what would change in HAProxy if the cluster was what is in DIR: lines, runtime commands, reload or not.

    \b
      haptic-trio diff --manifests now --to next                 between two directories
      haptic-trio diff --kubeconfig FILE --to DIR                between a cluster and a directory
      haptic-trio diff --kubeconfig FILE --to DIR --overlay      if DIR was applied to the cluster

    No HAProxy is touched. Whether a change needs a reload depends on the
    version; that of the binary in use counts.

    Exit codes: 0 nothing would change, 1 something would, 2 one of the two
    gives no valid configuration, or the command could not do its work.
    """
    before = trio.run(read_snapshot, source)
    after = trio.run(partial(read_overlaid, source, to)) if overlay else trio.run(read_snapshot, _moved(source, to))
    console = make_console(sys.stderr)
    # Fetched once for both: what differs is what the change is to blame for.
    memory = ContentMemory()
    old, said = _render(before, haproxy=source.haproxy, check=check, memory=memory)
    new, found = _render(after, haproxy=source.haproxy, check=check, memory=memory)
    said = list(placed(said, source))
    # A ConfigMap that DIR has not is that of the cluster.
    found = list(placed(placed(found, _moved(source, to)), source))
    # What was wrong before is not news.
    known = {_within(finding, source.manifests) for finding in said}
    fresh = [finding for finding in found if _within(finding, to) not in known]
    if old is None or new is None:
        unusable = said if old is None else fresh
        if output_format == "json":
            print_failures(findings_to_json(unusable))
        else:
            print_findings(console, unusable)
        sys.exit(EXIT_UNUSABLE)
    version = probe_version(find_haproxy(source.haproxy))
    difference = compare(old, new, version.number, version.text)
    if output_format == "json":
        document = {
            "haproxy": difference.haproxy,
            "reload": bool(difference.reasons),
            "reasons": difference.reasons,
            "operations": difference.operations,
            "files": [{"path": file.path, "diff": file.lines} for file in difference.files],
            "problems": findings_to_json(fresh),
        }
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
    else:
        print_findings(console, fresh)
        _print(make_console(sys.stdout), difference)
    sys.exit(EXIT_DIFFERENT if difference.files or count_errors(fresh) else 0)


def _within(finding: Finding, directory: Path | None) -> Finding:
    """Return *finding* with its file named as within *directory*."""
    problem = finding.problem
    place = problem.source.removeprefix(f"{directory}/")
    return msgspec.structs.replace(finding, problem=msgspec.structs.replace(problem, source=place))


def _moved(source: InputOptions, to: Path) -> InputOptions:
    return msgspec.structs.replace(source, manifests=to, kubeconfig=None, context=None)


def _render(
    snapshot: Snapshot, *, haproxy: str | None, check: bool, memory: ContentMemory
) -> tuple[Made | None, list[Finding]]:
    findings = list(snapshot.findings)
    if snapshot.loaded is None:
        return None, findings
    outcome = trio.run(partial(render_snapshot, snapshot, haproxy=haproxy, check=check, memory=memory))
    made = None
    if outcome.generation is not None and outcome.site is not None:
        made = Made(outcome.generation, outcome.site)
    return made, [*findings, *outcome.findings]


def compare(old: Made, new: Made, number: tuple[int, ...], version: str) -> Difference:
    """Return what it takes to bring an HAProxy of *version*, whose digits are *number*, from *old* to *new*."""
    split = split_plan(old.generation, new.generation, capabilities_of(number))
    texts = shown_text(old.site, MAIN), shown_text(new.site, MAIN)
    files = [FileDiff(path=MAIN, lines=tuple(_unified(*texts, MAIN)))]
    for change in diff_files(old.generation.files, new.generation.files):
        texts = _shown(old, change.running), _shown(new, change.desired)
        files.append(FileDiff(path=change.path, lines=tuple(_unified(*texts, change.path))))
    return Difference(
        files=tuple(file for file in files if file.lines),
        operations=tuple(map(describe, split.operations)),
        reasons=split.reasons,
        haproxy=version,
    )


def _shown(made: Made, file: AuxFile | None) -> str:
    return "" if file is None else shown_text(made.site, file.path)


def _unified(old: str, new: str, path: str) -> Iterator[str]:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), f"now/{path}", f"then/{path}", lineterm="", n=2)
    return iter(list(lines))


def describe(operation: Operation) -> str:
    """Return what *operation* does to what, in words and without any content."""
    words = re.sub("(?<!^)([A-Z])", lambda match: f" {match[1]}", type(operation).__name__).lower()
    names = [value for field in _NAMING if isinstance(value := getattr(operation, field, None), str)]
    return " ".join([words, *names])


def _print(console: Console, difference: Difference) -> None:
    for file in difference.files:
        for line in file.lines:
            console.print(visible(line), style=_COLOURS.get(line[:1], ""))
    if not difference.files:
        console.print("nothing would change")
        return
    haproxy = f"HAProxy {difference.haproxy}"
    _print_list(console, f"{haproxy} would be told at runtime:", difference.operations)
    if difference.reasons:
        lead = "and would reload" if difference.operations else f"{haproxy} would reload"
        _print_list(console, f"{lead}, because of:", difference.reasons)
    else:
        console.print("no reload" if difference.operations else "no reload: only what HAProxy does not read differs")


def _print_list(console: Console, title: str, lines: Sequence[str]) -> None:
    if lines:
        console.print(f"\n{title}", style="bold")
    for line in lines:
        console.print(f"  {visible(line)}")
