"""Measurements of a whole cluster at once: `render` of Ingresses and of HTTPRoutes, and a start with HTTPRoutes."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from haptic_trio.dataplane.binary import clean_environment
from haptic_trio.errors import HapticError
from haptic_trio.k8s.resource import Resource
from tools.bench.figures.report import WholeFigures, plural_of
from tools.bench.requests.cases import GATEWAY, INGRESS
from tools.bench.requests.sites import OBJECTS_OF_FILE, Ports, site_objects
from tools.bench.rig.backends import reserve_ports, run_backends
from tools.bench.rig.clusters import Column
from tools.bench.rig.controller import run_controller
from tools.bench.rig.objects import Place, app_name, host_of, split_docs
from tools.bench.rig.traffic import LOOPBACK, ask, wait_for

RENDER: Final = "render"
START: Final = "cold start"
KINDS: Final = {"Ingress": INGRESS, "HTTPRoute": GATEWAY}
GROUP: Final = 10
"""Objects that are written together."""
UPSTREAM: Final = 9
"""Port of the endpoints where no request is sent."""
LONGEST_OUTPUT: Final = 1 << 16

Say = Callable[[str], None]


class RenderFailedError(HapticError):
    """`render` has found problems or has failed; its output is in the message."""


def measure_whole(haproxy: Path, column: Column, size: int, say: Say) -> Iterator[WholeFigures]:
    """Measure both kinds of objects at one *size*; blocks for up to a minute."""
    with (
        tempfile.TemporaryDirectory(prefix="haptic-trio-bench-") as name,
        reserve_ports(LOOPBACK, 4) as numbers,
    ):
        scratch, ports = Path(name), Ports(*numbers)
        for kind, site in KINDS.items():
            objects = list(site_objects(site, ports, size, UPSTREAM))
            rendered = time_render(haproxy, kind, objects, size, scratch / kind)
            say(_described(rendered))
            yield rendered
        started = time_start(haproxy, column, ports, size, scratch)
        say(_described(started))
        # The same configuration, checked while nothing else was at work.
        yield msgspec.structs.replace(started, check_s=rendered.check_s)


def _described(figures: WholeFigures) -> str:
    return (
        f"{figures.name}, {figures.n:,} {plural_of(figures.kind)}: {figures.seconds:.2f} s, "
        f"CPU {figures.cpu_s:.2f} s, at most {figures.peak_mib:,.0f} MiB"
    )


def time_render(haproxy: Path, kind: str, objects: Sequence[Resource], size: int, folder: Path) -> WholeFigures:
    """Time one `render` of *objects*, and `haproxy -c` on its output; raises RenderFailedError."""
    manifests, output, log = folder / "manifests", folder / "output", folder / "render.log"
    manifests.mkdir(parents=True)
    for first in range(0, len(objects), OBJECTS_OF_FILE):
        (manifests / f"{first}.yaml").write_text(split_docs(objects[first : first + OBJECTS_OF_FILE]))
    command = [sys.executable, "-m", "haptic_trio", "render", "--haproxy", str(haproxy)]
    command += ["--manifests", str(manifests), "--output-dir", str(output)]
    with log.open("wb") as words:
        since = time.monotonic()
        process = subprocess.Popen(command, stdout=words, stderr=words)
        # Not `wait`: the usage of this process alone is needed.
        _pid, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - since
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RenderFailedError(log.read_text(errors="replace")[-LONGEST_OUTPUT:])
    return WholeFigures(
        name=RENDER,
        kind=kind,
        n=size,
        seconds=seconds,
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_mib=usage.ru_maxrss / 1024,
        check_s=_time_check(haproxy, output),
        load=os.getloadavg()[0],
    )


def _time_check(haproxy: Path, folder: Path) -> float:
    since = time.monotonic()
    subprocess.run(
        [haproxy, "-c", "-f", "haproxy.cfg"], cwd=folder, env=clean_environment(), capture_output=True, check=True
    )
    return time.monotonic() - since


def time_start(haproxy: Path, column: Column, ports: Ports, size: int, scratch: Path) -> WholeFigures:
    """Time `serve` from its start, without a running HAProxy, to the first 200 of the last of *size* HTTPRoutes."""
    with (
        column.open(Place(http_port=ports.http, https_port=ports.https), scratch) as cluster,
        run_backends(haproxy, cluster.place.address, scratch) as backends,
    ):
        objects = list(site_objects(GATEWAY, ports, size, backends[0]))
        cluster.load([objects[first : first + GROUP] for first in range(0, len(objects), GROUP)])
        since = time.monotonic()
        with run_controller(cluster.arguments(), scratch / "state", haproxy, level="info") as controller:
            host = host_of(app_name(size - 1))
            seconds = wait_for(
                lambda: ask(ports.http, host),
                lambda answer: answer.status == 200,
                since=since,
                check=controller.check_alive,
            )
            usage = controller.usage()
    return WholeFigures(
        name=START,
        kind="HTTPRoute",
        n=size,
        seconds=seconds,
        cpu_s=usage.cpu_s,
        peak_mib=usage.peak_mib,
        load=os.getloadavg()[0],
    )
