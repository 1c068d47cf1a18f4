"""`diff`: shows the effect of a change on HAProxy, and whether and why HAProxy would reload."""

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
from haptic_trio.cli.output.progress import Steps, showing_steps
from haptic_trio.dataplane.binary import find_haproxy, need_supported
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
"""Fields of operations that may be printed; the others may hold secrets."""
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


class FileDiff(msgspec.Struct, frozen=True, kw_only=True):
    """Differences of one file."""

    path: str
    lines: tuple[str, ...]
    """As in the output of `diff -u`; text that derives from a Secret is replaced by its digest."""


class Made(msgspec.Struct, frozen=True):
    """Rendered configuration of one of the two clusters."""

    generation: Generation
    site: Site
    """Knows which text derives from Secrets."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Effect of the change."""

    files: tuple[FileDiff, ...]
    operations: tuple[str, ...]
    """Runtime operations that HAProxy would get."""
    reasons: tuple[str, ...]
    """Why HAProxy would have to reload; empty if it would not."""
    haproxy: str
    """Version of HAProxy for which the plan was made."""


@click.command()
@input_options
@click.option(
    "--to",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    metavar="DIR",
    help="Directory of manifests to compare with.",
)
@click.option(
    "--overlay", is_flag=True, help="DIR holds only the changed objects; all others are taken from the cluster."
)
@click.option(
    "--check/--no-check",
    default=True,
    show_default=True,
    help="Check both configurations with `haproxy -c`.",
)
@output_option
def diff(*, source: InputOptions, to: Path, overlay: bool, check: bool, output_format: str) -> None:
    """Show what would change in HAProxy if the cluster had the manifests in DIR: lines, runtime operations, reload.

    \b
      haptic-trio diff --manifests now --to next                 compare two directories
      haptic-trio diff --kubeconfig FILE --to DIR                compare a cluster with a directory
      haptic-trio diff --kubeconfig FILE --to DIR --overlay      as if DIR was applied to the cluster

    Nothing is deployed. Whether a change needs a reload depends on the version
    of HAProxy; the version of the binary in use counts.

    Exit codes: 0 no difference, 1 differences, 2 one of the two has no valid
    configuration, or the command failed.
    """
    with showing_steps(sys.stderr) as steps:
        before = trio.run(read_snapshot, source, steps)
        if overlay:
            after = trio.run(read_overlaid, source, to, steps)
        else:
            after = trio.run(read_snapshot, _moved(source, to), steps)
        # Contents are fetched once for both, so that only the change can cause a difference.
        rendering = partial(_render, haproxy=source.haproxy, check=check, memory=ContentMemory(), steps=steps)
        (old, former), (new, found) = rendering(before), rendering(after)
    console = make_console(sys.stderr)
    former = list(placed(former, source))
    # A ConfigMap that is missing in DIR comes from the cluster.
    found = list(placed(placed(found, _moved(source, to)), source))
    # Report only problems that the change introduces.
    known = {_within(finding, source.manifests) for finding in former}
    fresh = [finding for finding in found if _within(finding, to) not in known]
    if old is None or new is None:
        unusable = former if old is None else fresh
        if output_format == "json":
            print_failures(findings_to_json(unusable))
        else:
            print_findings(console, unusable)
        sys.exit(EXIT_UNUSABLE)
    version = need_supported(find_haproxy(source.haproxy))
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
    """Return *finding* with its file relative to *directory*."""
    problem = finding.problem
    place = problem.source.removeprefix(f"{directory}/")
    return msgspec.structs.replace(finding, problem=msgspec.structs.replace(problem, source=place))


def _moved(source: InputOptions, to: Path) -> InputOptions:
    return msgspec.structs.replace(source, manifests=to, kubeconfig=None, context=None)


def _render(
    snapshot: Snapshot, *, haproxy: str | None, check: bool, memory: ContentMemory, steps: Steps
) -> tuple[Made | None, list[Finding]]:
    findings = list(snapshot.findings)
    if snapshot.loaded is None:
        return None, findings
    outcome = trio.run(partial(render_snapshot, snapshot, haproxy=haproxy, check=check, memory=memory, steps=steps))
    made = None
    if outcome.generation is not None and outcome.site is not None:
        made = Made(outcome.generation, outcome.site)
    return made, [*findings, *outcome.findings]


def compare(old: Made, new: Made, number: tuple[int, ...], version: str) -> Difference:
    """Return the steps from *old* to *new* for an HAProxy of *version*, whose parsed version is *number*."""
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
    """Return *operation* as words, without contents."""
    words = re.sub("(?<!^)([A-Z])", lambda match: f" {match[1]}", type(operation).__name__).lower()
    names = [value for field in _NAMING if isinstance(value := getattr(operation, field, None), str)]
    return " ".join([words, *names])


def _print(console: Console, difference: Difference) -> None:
    for file in difference.files:
        for line in file.lines:
            console.print(visible(line), style=_COLOURS.get(line[:1], ""))
    if not difference.files:
        console.print("no changes")
        return
    haproxy = f"HAProxy {difference.haproxy}"
    _print_list(console, f"{haproxy} would get these runtime operations:", difference.operations)
    if difference.reasons:
        lead = "and would reload" if difference.operations else f"{haproxy} would reload"
        _print_list(console, f"{lead}, because of:", difference.reasons)
    else:
        console.print("no reload" if difference.operations else "no reload: HAProxy does not read the differing lines")


def _print_list(console: Console, title: str, lines: Sequence[str]) -> None:
    if lines:
        console.print(f"\n{title}", style="bold")
    for line in lines:
        console.print(f"  {visible(line)}")
