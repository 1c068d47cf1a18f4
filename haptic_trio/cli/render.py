"""`render`: what HAProxy would get, as files or on standard output."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click
import trio

from haptic_trio.cli.files import write_generation
from haptic_trio.cli.findings import count_errors, make_console, print_findings, visible
from haptic_trio.cli.oneshot import read_snapshot, render_snapshot
from haptic_trio.cli.options import InputOptions, input_options
from haptic_trio.haproxy.model import AuxFile, Generation


@click.command()
@input_options
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write haproxy.cfg and the files it names below DIR; without it, haproxy.cfg goes to standard output.",
)
@click.option("--with-files", is_flag=True, help="On standard output, show maps, certificates and other files, too.")
@click.option("--show-secrets", is_flag=True, help="On standard output, show private keys instead of their digest.")
@click.option("--check", is_flag=True, help="Have HAProxy check the result (`haproxy -c`), too.")
@click.option("--strict", is_flag=True, help="Write nothing if anything is wrong.")
def render(
    *,
    source: InputOptions,
    output: Path | None,
    with_files: bool,
    show_secrets: bool,
    check: bool,
    strict: bool,
) -> None:
    """Render a cluster or a directory of manifests once, without touching any HAProxy.

    Objects that cannot be served are left out and reported on standard
    error; everything else is rendered as if they were not there, as `serve`
    would do it.

    \b
      haptic-trio render --manifests DIR                 haproxy.cfg on standard output
      haptic-trio render --manifests DIR --output OUT    all files below OUT
      haptic-trio render --manifests DIR --strict > x    only if nothing is wrong

    Exit codes: 0 all is well, 1 something is wrong (standard error says
    what), 2 the command could not do its work.
    """
    snapshot = trio.run(read_snapshot, source)
    findings = list(snapshot.findings)
    generation = None
    if snapshot.loaded is not None:
        outcome = trio.run(partial(render_snapshot, snapshot, haproxy=source.haproxy, check=check))
        generation = outcome.generation
        findings += outcome.findings
    errors = count_errors(findings)
    print_findings(make_console(sys.stderr), findings)
    if generation is not None and not (strict and errors):
        if output is None:
            texts = _listing(generation, with_files=with_files, show_secrets=show_secrets)
            is_terminal = sys.stdout.isatty()
            for text in texts:
                click.echo(visible(text) if is_terminal else text, nl=False)
        else:
            assert snapshot.loaded is not None
            write_generation(output, generation, config_file=snapshot.loaded.config.dataplane.config_file)
            click.echo(f"{len(generation.files) + 1} files written to {output}", err=True)
    sys.exit(1 if errors else 0)


def _listing(generation: Generation, *, with_files: bool, show_secrets: bool) -> Iterator[str]:
    yield generation.text
    for file in generation.files.values() if with_files else ():
        yield f"\n# ---- {file.path} ----\n"
        yield _content(file, show_secrets=show_secrets)


def _content(file: AuxFile, *, show_secrets: bool) -> str:
    if file.secret and not show_secrets:
        return f"# secret, {len(file.content)} bytes, digest {file.digest}\n"
    text = file.content.decode(errors="replace")
    return text if text.endswith("\n") else f"{text}\n"
