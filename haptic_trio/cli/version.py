"""`version`: shows the versions of haptic-trio, Python and HAProxy."""

import platform

import click
import msgspec

from haptic_trio import __version__
from haptic_trio.cli.inputs.choices import output_option
from haptic_trio.dataplane.binary import (
    HaproxyNotFoundError,
    UnsupportedHaproxyError,
    find_haproxy,
    need_supported,
    probe_version,
)


@click.command()
@click.option(
    "--haproxy",
    metavar="PATH",
    envvar="HAPTIC_HAPROXY",
    help="HAProxy binary. Default: the one on PATH, else that of the `haproxy` extra.",
)
@output_option
def version(*, haproxy: str | None, output_format: str) -> None:
    """Show the versions of haptic-trio, Python and the HAProxy binary in use."""
    found: dict[str, str] | None = None
    problem = unsupported = ""
    try:
        binary = find_haproxy(haproxy)
        found = {"version": probe_version(binary).text, "path": str(binary)}
        need_supported(binary)
    except UnsupportedHaproxyError as exc:
        unsupported = str(exc)
    except HaproxyNotFoundError as exc:
        if haproxy is not None:
            raise
        problem = str(exc)
    if output_format == "json":
        document = {"haptic-trio": __version__, "python": platform.python_version(), "haproxy": found}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
        return
    click.echo(f"haptic-trio  {__version__}")
    click.echo(f"Python       {platform.python_version()}")
    click.echo(f"HAProxy      {found['version']} ({found['path']})" if found else f"HAProxy      none: {problem}")
    if unsupported:
        click.echo(f"warning: {unsupported}", err=True)
