"""`render`: writes the HAProxy configuration of a cluster or a directory."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import click
import msgspec
import trio

from haptic_trio.cli.inputs.choices import output_option
from haptic_trio.cli.inputs.files import write_generation
from haptic_trio.cli.inputs.oneshot import read_snapshot, render_snapshot
from haptic_trio.cli.inputs.options import InputOptions, input_options
from haptic_trio.cli.inputs.source_map import placed
from haptic_trio.cli.output.findings import (
    Finding,
    count_errors,
    findings_to_json,
    make_console,
    print_findings,
    visible,
)
from haptic_trio.cli.output.progress import showing_steps
from haptic_trio.explain.site import MAIN, Site, shown_text
from haptic_trio.haproxy.model import AuxFile, Generation


@click.command()
@input_options
@output_option
@click.option(
    "--output-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write haproxy.cfg and all other files below DIR. Default: haproxy.cfg on standard output.",
)
@click.option("--with-files", is_flag=True, help="On standard output, also show maps, certificates and other files.")
@click.option(
    "--show-secrets",
    is_flag=True,
    help="On standard output, show text that derives from Secrets, such as keys and passwords, not its digest.",
)
@click.option("--check", is_flag=True, help="Also check the result with `haproxy -c`.")
@click.option("--strict", is_flag=True, help="Write nothing if there is any problem. Implies --check.")
def render(
    *,
    source: InputOptions,
    output_format: str,
    output_dir: Path | None,
    with_files: bool,
    show_secrets: bool,
    check: bool,
    strict: bool,
) -> None:
    """Render a cluster or a directory of manifests once; nothing is deployed.

    Rejected objects are reported on standard error; all others are rendered
    without them, as in `serve`. Files get the text of Secrets; standard output
    gets digests instead, unless --show-secrets is given.

    \b
      haptic-trio render --manifests DIR                    haproxy.cfg on standard output
      haptic-trio render --manifests DIR --output-dir OUT   all files below OUT
      haptic-trio render --manifests DIR --strict > x       only if there are no problems

    Exit codes: 0 success, 1 there are problems (on standard error), 2 the
    command failed.
    """
    generation, site = None, None
    with showing_steps(sys.stderr) as steps:
        snapshot = trio.run(read_snapshot, source, steps)
        findings = list(snapshot.findings)
        if snapshot.loaded is not None:
            rendering = partial(render_snapshot, snapshot, haproxy=source.haproxy, check=check or strict, steps=steps)
            outcome = trio.run(rendering)
            generation, site = outcome.generation, outcome.site
            findings += outcome.findings
        findings = list(placed(findings, source))
    errors = count_errors(findings)
    is_wanted = generation is not None and not (strict and errors)
    if generation is not None and is_wanted and output_dir is not None:
        assert snapshot.loaded is not None
        write_generation(output_dir, generation, config_file=snapshot.loaded.config.dataplane.config_file)
    if output_format == "json":
        shown = Shown(generation, None if show_secrets else site) if generation is not None and is_wanted else None
        document = to_json(shown, findings, with_files=with_files)
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
    else:
        print_findings(make_console(sys.stderr), findings)
        if generation is not None and is_wanted:
            _print(Shown(generation, None if show_secrets else site), output_dir, with_files=with_files)
    sys.exit(1 if errors else 0)


class Shown(msgspec.Struct, frozen=True):
    """A generation with its secrets hidden, if there is a *site*."""

    generation: Generation
    site: Site | None
    """Knows which text derives from Secrets; None: show everything."""

    @property
    def config(self) -> str:
        """haproxy.cfg."""
        return self.generation.text if self.site is None else shown_text(self.site, MAIN)

    def file(self, file: AuxFile) -> str:
        """Return the content of *file*, as lines."""
        if self.site is not None:
            return shown_text(self.site, file.path)
        text = file.content.decode(errors="replace")
        return text if text.endswith("\n") else f"{text}\n"


def to_json(shown: Shown | None, findings: Sequence[Finding], *, with_files: bool) -> dict[str, object]:
    """Return the result as plain data; *shown* is None if there is no valid configuration."""
    return {
        "valid": not count_errors(findings),
        "generation": shown.generation.id if shown is not None else None,
        "config": shown.config if shown is not None else None,
        "files": [
            {"path": file.path, "secret": file.secret, "digest": file.digest, "bytes": len(file.content)}
            | ({"content": shown.file(file)} if with_files else {})
            for file in (shown.generation.files.values() if shown is not None else ())
            if shown is not None
        ],
        "problems": findings_to_json(findings),
    }


def _print(shown: Shown, output_dir: Path | None, *, with_files: bool) -> None:
    if output_dir is not None:
        click.echo(f"{len(shown.generation.files) + 1} files written to {output_dir}", err=True)
        return
    is_terminal = sys.stdout.isatty()
    for text in _listing(shown, with_files=with_files):
        click.echo(visible(text) if is_terminal else text, nl=False)


def _listing(shown: Shown, *, with_files: bool) -> Iterator[str]:
    yield shown.config
    for file in shown.generation.files.values() if with_files else ():
        yield f"\n# ---- {file.path} ----\n"
        yield shown.file(file)
