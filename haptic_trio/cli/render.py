"""`render`: writes the configuration that HAProxy would get."""

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
from haptic_trio.explain.site import MAIN, Site, shown_text
from haptic_trio.haproxy.model import AuxFile, Generation


@click.command()
@input_options
@output_option
@click.option(
    "--output-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write haproxy.cfg and the files it names below DIR; without it, haproxy.cfg goes to standard output.",
)
@click.option("--with-files", is_flag=True, help="On standard output, show maps, certificates and other files, too.")
@click.option(
    "--show-secrets",
    is_flag=True,
    help="On standard output, show what derives from Secrets, such as keys and passwords, instead of its digest.",
)
@click.option("--check", is_flag=True, help="Have HAProxy check the result (`haproxy -c`), too.")
@click.option("--strict", is_flag=True, help="Write nothing if anything is wrong; HAProxy is asked as by --check.")
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
    """Render a cluster or a directory of manifests once, without touching any HAProxy.

    Objects that cannot be served are left out and reported on standard
    error; everything else is rendered as if they were not there, as `serve`
    would do it. What derives from Secrets is written to files as it is; on
    standard output its digest stands for it, unless --show-secrets is given.

    \b
      haptic-trio render --manifests DIR                    haproxy.cfg on standard output
      haptic-trio render --manifests DIR --output-dir OUT   all files below OUT
      haptic-trio render --manifests DIR --strict > x       only if nothing is wrong

    Exit codes: 0 all is well, 1 something is wrong (standard error says
    what), 2 the command could not do its work.
    """
    snapshot = trio.run(read_snapshot, source)
    findings = list(snapshot.findings)
    generation, site = None, None
    if snapshot.loaded is not None:
        outcome = trio.run(partial(render_snapshot, snapshot, haproxy=source.haproxy, check=check or strict))
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
    """A generation in a form that may be shown."""

    generation: Generation
    site: Site | None
    """What tells which of it derives from Secrets; None where everything may be shown."""

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
    """Return what was rendered as plain data; None stands for nothing that could be used."""
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
