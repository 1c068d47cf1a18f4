"""`version`: what is running, and which HAProxy it would run."""

import platform

import click

from haptic_trio import __version__
from haptic_trio.dataplane.binary import HaproxyNotFoundError, find_haproxy, probe_version


@click.command()
@click.option(
    "--haproxy",
    metavar="PATH",
    envvar="HAPTIC_HAPROXY",
    help="HAProxy binary; by default the one on PATH, else that of the `haproxy` extra.",
)
def version(haproxy: str | None) -> None:
    """Show the version of haptic-trio, Python and the HAProxy that it would use."""
    click.echo(f"haptic-trio  {__version__}")
    click.echo(f"Python       {platform.python_version()}")
    try:
        binary = find_haproxy(haproxy)
        click.echo(f"HAProxy      {probe_version(binary).text} ({binary})")
    except HaproxyNotFoundError as exc:
        if haproxy is not None:
            raise
        click.echo(f"HAProxy      none: {exc}")
