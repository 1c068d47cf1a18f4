"""Instructions of HAProxy for one request of each case, counted by callgrind: the same on a busy machine.

    python -m tools.bench.requests.instructions [--version 3.4] [--hosts 10]

Needs valgrind. Instructions of the kernel are not among them: they are about the same for every case.
"""

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from haptic_trio.cli.exits import EXIT_INTERRUPTED
from haptic_trio.dataplane.binary import find_haproxy
from haptic_trio.errors import HapticError
from tests.support.processes.haproxy_versions import VersionUnavailableError, provide
from tools.bench.requests.cases import CASES, FLOOR_CASE
from tools.bench.requests.measure import CONNECTIONS, Client, open_site
from tools.bench.requests.sites import SITES, Site
from tools.bench.rig.backends import run_backends
from tools.bench.rig.traffic import LOOPBACK
from tools.bench.steps import announcing

_DUMPS: Final = "callgrind"
_TOTAL: Final = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


class CountError(HapticError):
    """Instructions cannot be counted here; the reason is in the message."""


def count_instructions(haproxy: Path, hosts: int, requests: int, scratch: Path) -> Iterator[tuple[str, float]]:
    """Yield the name of each case and its instructions for one request; blocks for about a minute."""
    traced = scratch / "traced-haproxy"
    # The program of a version may be a script that starts HAProxy with libraries of its own.
    traced.write_text(
        "#!/bin/sh\n"
        "exec valgrind --quiet --tool=callgrind --trace-children=yes --smc-check=all "
        f"--callgrind-out-file='{scratch}/{_DUMPS}.%p' '{haproxy}' \"$@\"\n"
    )
    traced.chmod(0o700)
    with run_backends(haproxy, LOOPBACK, scratch) as ports:
        for name in SITES:
            with open_site(traced, name, scratch / name, hosts, ports[0]) as site:
                for case in (case for case in CASES if case.site == name):
                    client = Client(case, site)
                    client.batch(CONNECTIONS)
                    _dump(site, scratch)
                    client.batch(requests)
                    yield case.name, _dump(site, scratch) / (requests // CONNECTIONS * CONNECTIONS)
                    client.close()


def _dump(site: Site, scratch: Path) -> int:
    """Return the number of instructions since the last call."""
    asked = subprocess.run(["callgrind_control", "-d", str(site.pid)], capture_output=True, text=True, check=False)
    # Without a dump of this number the process has ended.
    dumps = scratch.glob(f"{_DUMPS}.{site.pid}.*")
    newest = max(dumps, key=lambda file: int(file.suffix[1:]), default=None)
    found = _TOTAL.search(newest.read_text()) if newest is not None else None
    if found is None:
        raise CountError(asked.stdout + asked.stderr)
    return int(found[1])


@click.command(help=__doc__)
@click.option("--hosts", type=click.IntRange(2), default=10, show_default=True, help="Each has a route and a Service.")
@click.option("--requests", type=click.IntRange(8), default=400, show_default=True, help="Requests of each case.")
@click.option("--haproxy", metavar="PATH", help="HAProxy binary; by default the one on PATH, else that of the wheel.")
@click.option("--version", metavar="VERSION", help="Fetch this HAProxy, such as 3.4, and take it.")
def main(*, hosts: int, requests: int, haproxy: str | None, version: str | None) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if shutil.which("valgrind") is None:
            raise CountError("install valgrind to count instructions")
        binary = find_haproxy(haproxy) if version is None else provide(version) / "haproxy"
        with tempfile.TemporaryDirectory(prefix="haptic-trio-bench-") as folder, announcing() as say:
            counts: dict[str, float] = {}
            for name, count in count_instructions(binary, hosts, requests, Path(folder)):
                counts[name] = count
                say(f"{name}: {count:,.0f}")
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except (HapticError, VersionUnavailableError) as error:
        click.secho(f"error: {error}", fg="red", err=True)
        sys.exit(2)
    click.echo("| Case | Instructions | Ratio to floor |\n|---|---:|---:|")
    for name, count in counts.items():
        click.echo(f"| {name} | {count:,.0f} | {count / counts[FLOOR_CASE]:.2f} |")


if __name__ == "__main__":
    main()
