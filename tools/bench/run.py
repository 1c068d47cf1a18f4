"""`make bench`: the benchmark with an API server over TLS, and with a directory of manifests, as the cluster.

    python -m tools.bench.run [--version 3.4] [--clusters api,directory] [options of tools.bench.command]

The API server is the one of the tests, in a process of its own.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import trio

from haptic_trio.dataplane.binary import find_haproxy
from haptic_trio.errors import HapticError, leaves_of
from haptic_trio.k8s.api.auth import load_kubeconfig
from haptic_trio.k8s.resource import Resource
from tests.support.api_server.server import objects_body
from tests.support.processes.haproxy_versions import VersionUnavailableError, provide
from tools.bench.command import bench_options, measure
from tools.bench.rig.clusters import ApiServer, Column, DirectoryColumn
from tools.bench.rig.objects import Place

ROOT = Path(__file__).parents[2]
BATCH = 1000


class TestApiServer(ApiServer):
    """The API server of the tests, which takes many objects at once."""

    def load(self, apps: Sequence[Sequence[Resource]]) -> None:
        """Create all objects."""
        for first in range(0, len(apps), BATCH):
            objects = [each for app in apps[first : first + BATCH] for each in app]
            self.send("POST", "/_control/objects", objects_body(objects))


class TestApiServerColumn:
    """The API server of the tests in a process of its own, empty at first."""

    name = "api"

    @contextmanager
    def open(self, place: Place, scratch: Path) -> Iterator[TestApiServer]:
        """Run one for the duration of the block."""
        kubeconfig = scratch / "kubeconfig"
        command = [sys.executable, "-m", "tests.support.api_server.server", str(kubeconfig)]
        with subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        ) as process:
            try:
                assert process.stdout is not None
                process.stdout.readline()
                yield TestApiServer(place, kubeconfig, None, trio.run(load_kubeconfig, kubeconfig))
            finally:
                process.terminate()


COLUMNS: dict[str, Column] = {"api": TestApiServerColumn(), "directory": DirectoryColumn()}


@click.command(help=__doc__)
@bench_options
@click.option("--haproxy", metavar="PATH", help="HAProxy binary; by default the one on PATH, else that of the wheel.")
@click.option("--version", metavar="VERSION", help="Fetch this HAProxy, such as 3.4, and take it.")
@click.option("--whole/--no-whole", default=True, show_default=True, help="Also `render`, and a start with HTTPRoutes.")
@click.option("--clusters", default="api,directory", show_default=True, help="What stands for the cluster.")
def main(*, haproxy: str | None, version: str | None, clusters: str, **how: Any) -> None:
    unknown = set(clusters.split(",")) - set(COLUMNS)
    if unknown:
        raise click.BadParameter(f"there are {', '.join(COLUMNS)}", param_hint="--clusters")
    try:
        binary = find_haproxy(haproxy) if version is None else provide(version) / "haproxy"
        measure([COLUMNS[name] for name in clusters.split(",")], binary, **how)
    except* VersionUnavailableError as group:
        _fail(group)
    except* HapticError as group:
        _fail(group)


def _fail(group: BaseExceptionGroup) -> None:
    for error in leaves_of(group):
        click.secho(f"error: {error}", fg="red", err=True)
    sys.exit(2)


if __name__ == "__main__":
    main()
