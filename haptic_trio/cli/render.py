"""`render`: what HAProxy would get, as files or on standard output."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import click
import msgspec
import trio

from haptic_trio.cli.choices import output_option
from haptic_trio.cli.files import write_generation
from haptic_trio.cli.findings import Finding, count_errors, findings_to_json, make_console, print_findings, visible
from haptic_trio.cli.oneshot import read_snapshot, render_snapshot
from haptic_trio.cli.options import InputOptions, input_options
from haptic_trio.cli.placing import placed
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
@click.option("--show-secrets", is_flag=True, help="On standard output, show private keys instead of their digest.")
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
    would do it.

    \b
      haptic-trio render --manifests DIR                    haproxy.cfg on standard output
      haptic-trio render --manifests DIR --output-dir OUT   all files below OUT
      haptic-trio render --manifests DIR --strict > x       only if nothing is wrong

    Exit codes: 0 all is well, 1 something is wrong (standard error says
    what), 2 the command could not do its work.
    """
    snapshot = trio.run(read_snapshot, source)
    findings = list(snapshot.findings)
    generation = None
    if snapshot.loaded is not None:
        outcome = trio.run(partial(render_snapshot, snapshot, haproxy=source.haproxy, check=check or strict))
        generation = outcome.generation
        findings += outcome.findings
    findings = list(placed(findings, source))
    errors = count_errors(findings)
    is_wanted = generation is not None and not (strict and errors)
    if generation is not None and is_wanted and output_dir is not None:
        assert snapshot.loaded is not None
        write_generation(output_dir, generation, config_file=snapshot.loaded.config.dataplane.config_file)
    if output_format == "json":
        shown = generation if is_wanted else None
        document = to_json(shown, findings, with_files=with_files, show_secrets=show_secrets)
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
    else:
        print_findings(make_console(sys.stderr), findings)
        if generation is not None and is_wanted:
            _print(generation, output_dir, with_files=with_files, show_secrets=show_secrets)
    sys.exit(1 if errors else 0)


def to_json(
    generation: Generation | None, findings: Sequence[Finding], *, with_files: bool, show_secrets: bool
) -> dict[str, object]:
    """Return what was rendered as plain data; None stands for nothing that could be used."""
    files = generation.files.values() if generation is not None else ()
    return {
        "valid": not count_errors(findings),
        "generation": generation.id if generation is not None else None,
        "config": generation.text if generation is not None else None,
        "files": [
            {"path": file.path, "secret": file.secret, "digest": file.digest, "bytes": len(file.content)}
            | ({"content": _content(file, show_secrets=show_secrets)} if with_files else {})
            for file in files
        ],
        "problems": findings_to_json(findings),
    }


def _print(generation: Generation, output_dir: Path | None, *, with_files: bool, show_secrets: bool) -> None:
    if output_dir is not None:
        click.echo(f"{len(generation.files) + 1} files written to {output_dir}", err=True)
        return
    is_terminal = sys.stdout.isatty()
    for text in _listing(generation, with_files=with_files, show_secrets=show_secrets):
        click.echo(visible(text) if is_terminal else text, nl=False)


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
