"""Everything that is measured: for each size and each cluster a controller, and one case after another."""

import datetime
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from haptic_trio.dataplane.binary import probe_version
from haptic_trio.k8s.resource import Resource
from tools.bench.changes import PATH_NAME, TLS_NAME
from tools.bench.figures.report import (
    Case,
    Measured,
    Settings,
    WholeFigures,
    count_processors,
    describe_system,
)
from tools.bench.rig.backends import reserve_ports, run_backends
from tools.bench.rig.clusters import Column
from tools.bench.rig.objects import (
    AT_ONCE,
    Place,
    app_name,
    host_of,
    make_app,
    make_config,
    make_ingress,
    make_secret,
    make_service,
    make_slice,
    make_structure,
)
from tools.bench.rig.traffic import LOOPBACK
from tools.bench.session import Options, Session
from tools.bench.whole import measure_whole

Say = Callable[[str], None]


def run_suite(options: Options, columns: Sequence[Column], say: Say) -> Measured:
    """Measure everything, the smallest size first; blocks for minutes."""
    python, system = describe_system()
    settings = Settings(
        sizes=options.sizes,
        clusters=tuple(column.name for column in columns),
        samples=options.samples,
        case_seconds=options.case_seconds,
        rate=options.rate,
        is_profiled=options.profile is not None,
        processors=count_processors(),
        python=python,
        system=system,
        haproxy=probe_version(options.haproxy).text,
        load=os.getloadavg()[0],
        day=datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
    )
    whole: list[WholeFigures] = []
    cases: list[Case] = []
    for size in sorted(options.sizes):
        for column in columns:
            cases += _measure_column(options, column, size, say)
        if options.whole:
            whole += measure_whole(options.haproxy, columns[0], size, say)
    return Measured(settings, cases, whole)


def _measure_column(options: Options, column: Column, size: int, say: Say) -> list[Case]:
    with (
        tempfile.TemporaryDirectory(prefix="haptic-trio-bench-") as name,
        reserve_ports(LOOPBACK, 2) as (http_port, https_port),
    ):
        scratch = Path(name)
        with (
            column.open(Place(http_port=http_port, https_port=https_port), scratch) as cluster,
            run_backends(options.haproxy, cluster.place.address, scratch) as ports,
        ):
            say(f"{column.name}, {size:,}: writing objects")
            cluster.load(list(_make_all(cluster.place, size, ports[0])))
            session = Session(
                options, name=column.name, cluster=cluster, scratch=scratch, ports=ports, size=size, say=say
            )
            return session.measure()


def _make_all(place: Place, size: int, port: int) -> Iterator[list[Resource]]:
    yield [make_config(place, AT_ONCE, "v0"), make_structure(place, "v0")]
    for number in range(size):
        yield make_app(place, app_name(number), port)
    yield [make_ingress(place, PATH_NAME, app_name(0), path="/v0/")]
    secret, _der = make_secret(place, TLS_NAME, host_of(TLS_NAME))
    yield [
        secret,
        make_service(place, TLS_NAME),
        make_slice(place, TLS_NAME, port),
        make_ingress(place, TLS_NAME, TLS_NAME, secret=TLS_NAME),
    ]
