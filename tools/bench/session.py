"""Measurements of one cluster of one size."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from tools.bench.changes import Changes
from tools.bench.figures.meter import Meter, Trial
from tools.bench.figures.report import Case
from tools.bench.figures.timeline import Trace, read_trace
from tools.bench.floor import time_check, time_reload
from tools.bench.intervals import measure_classic, measure_defaults
from tools.bench.rig.clusters import Cluster
from tools.bench.rig.controller import Controller, Usage, run_controller
from tools.bench.rig.load import run_background
from tools.bench.rig.objects import AT_ONCE, app_name, host_of

BACKGROUND_HOSTS = 10
LARGE = 5000
"""From here on a cold start is made once."""
INTERVAL_SIZE = 1000
CLASSIC_ROUNDS = 3
BURST_ROUNDS = 3
FLOOR_ROUNDS = 5
FLOOR_QUIET = 0.5
"""Seconds without a log line before a floor is timed: on a loaded machine, cycles of the last case end late."""

COLD_START = "cold start"
ENDPOINT = "endpoint change"
NEW_INGRESS = "new Ingress"
KNOWN_SERVICE = "new Ingress, known Service"
DELETE = "delete"
DELETE_KNOWN = "delete, Service in use"
PATH = "path change"
CERTIFICATE = "certificate change"
BURST = "burst"
CONFIG_TRAFFIC = "ConfigMap change, to traffic"
CONFIG_DEPLOYED = "ConfigMap change, to deployment"
CONFIG_ENDPOINT = "endpoint change, new ConfigMap"
CHECK = "floor: haproxy -c"
RELOAD = "floor: reload"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    haproxy: Path
    sizes: tuple[int, ...] = (100, 1000, 5000, 10_000, 20_000)
    samples: int = 100
    """How often each change is made at most."""
    case_seconds: float = 20.0
    """How long one case may take; a few samples are taken in any case."""
    cold_starts: int = 3
    burst: int = 500
    configs: int = 5
    """How often the ConfigMap is changed."""
    interval_seconds: float = 20.0
    """How long the default settings are looked at; 0 leaves out everything that has to wait for intervals. It is done
    at one size only."""
    rate: float = 200.0
    whole: bool = False
    """Whether to measure `render`, and a start with HTTPRoutes, too."""
    profile: Path | None = None
    """Directory for flame graphs; enables the report of the steps of each change."""

    @property
    def interval_size(self) -> int:
        """The size at which intervals are looked at."""
        return INTERVAL_SIZE if INTERVAL_SIZE in self.sizes else min(self.sizes)


class Session:
    """A cluster that has been filled, and the controllers over it."""

    def __init__(
        self,
        options: Options,
        *,
        name: str,
        cluster: Cluster,
        scratch: Path,
        ports: Sequence[int],
        size: int,
        say: Callable[[str], None],
    ) -> None:
        self._options = options
        self._name = name
        self._cluster = cluster
        self._scratch = scratch
        self._ports = ports
        self._size = size
        self._say = say
        self._since = 0.0
        self._written = 0.0

    def measure(self) -> list[Case]:
        """Start the controller a few times, and measure all changes under the last one."""
        starts: list[Trial] = []
        usages: list[Usage] = []
        for number in range(1, 1 if self._size >= LARGE else self._options.cold_starts):
            with self._run_controller(f"state-{number}") as controller:
                starts.append(self._wait_started(controller))
                usages.append(controller.usage())
        with self._run_controller("state", is_last=True) as controller:
            starts.append(self._wait_started(controller))
            usages.append(controller.usage())
            controller.settle()
            hosts = [host_of(app_name(number)) for number in range(min(self._size, BACKGROUND_HOSTS))]
            with run_background(self._cluster.place.http_port, hosts, self._options.rate) as background:
                meter = Meter(
                    cluster=self._name,
                    size=self._size,
                    controller=controller,
                    background=background,
                    case_seconds=self._options.case_seconds,
                    traced=self._options.profile is not None,
                    say=self._say,
                )
                start = meter.summarize(
                    COLD_START,
                    [each.seconds for each in starts],
                    counts=meter.counts(),
                    cpu_s=sum(each.cpu_s for each in usages),
                    check_cpu_s=sum(each.check_cpu_s for each in usages),
                    traces=self._trace_start(controller, starts[-1]),
                )
                if self._options.profile is not None:
                    controller.cut_profile()
                changes = Changes(self._cluster, controller, self._ports, self._size)
                return [start, *self._measure_changes(meter, changes)]

    def _run_controller(self, state: str, *, is_last: bool = False) -> AbstractContextManager[Controller]:
        profile = self._options.profile
        self._since, self._written = time.monotonic(), time.time()
        # A state directory of its own each time, so that there is nothing to adopt.
        return run_controller(
            self._cluster.arguments(),
            self._scratch / state,
            self._options.haproxy,
            level="info" if profile is None else "debug",
            flame=profile / f"{self._name}-{self._size}.svg" if profile is not None and is_last else None,
        )

    def _wait_started(self, controller: Controller) -> Trial:
        changes = Changes(self._cluster, controller, self._ports, self._size)
        return Trial(changes.wait_started(self._since), self._written)

    def _trace_start(self, controller: Controller, start: Trial) -> list[Trace]:
        if self._options.profile is None:
            return []
        return [read_trace(controller.log.read(), written=start.written, seen=start.seconds)]

    def _measure_changes(self, meter: Meter, changes: Changes) -> list[Case]:
        samples = self._options.samples
        cases = [
            meter.measure(ENDPOINT, changes.move_endpoint, samples),
            fresh := meter.measure(NEW_INGRESS, changes.add_new, samples),
            known := meter.measure(KNOWN_SERVICE, changes.add_known, samples),
            meter.measure(PATH, changes.change_path, samples),
            meter.measure(CERTIFICATE, changes.change_certificate, samples),
            # No warm-up: each can be deleted once.
            meter.measure(DELETE, changes.delete_new, fresh.samples, warm_up=0),
            meter.measure(DELETE_KNOWN, changes.delete_known, known.samples, warm_up=0),
        ]
        for number in range(fresh.samples):
            changes.forget_new(number)
        burst = min(self._options.burst, self._size * (len(self._ports) - 1))
        case = meter.measure(BURST, lambda _number: changes.burst(burst), BURST_ROUNDS, warm_up=0)
        cases.append(msgspec.structs.replace(case, notes={"changes": burst}))
        cases += self._measure_configs(meter, changes)
        if self._options.interval_seconds and self._size == self._options.interval_size:
            cases.append(measure_defaults(meter, changes, self._options.interval_seconds))
            cases += measure_classic(meter, changes, CLASSIC_ROUNDS)
            changes.configure(AT_ONCE)
            meter.controller.settle()
        return cases + measure_floor(meter)

    def _measure_configs(self, meter: Meter, changes: Changes) -> list[Case]:
        deployed: list[float] = []

        def configure(_number: int) -> Trial:
            seen, until_deployed = changes.configure(AT_ONCE)
            deployed.append(until_deployed)
            return seen

        seen = meter.measure(CONFIG_TRAFFIC, configure, self._options.configs, warm_up=0)
        cases = [
            seen,
            meter.summarize(CONFIG_DEPLOYED, deployed, counts=meter.counts(), reloads=seen.reloads, cpu_s=seen.cpu_s),
        ]
        counts, moved = meter.counts(), list[float]()
        for _number in range(self._options.configs):
            moved += changes.move_during_configure(AT_ONCE)
            meter.controller.settle()
        return [*cases, meter.summarize(CONFIG_ENDPOINT, moved, counts=counts, cpu_s=0.0)]


def measure_floor(meter: Meter) -> list[Case]:
    """Time HAProxy alone: `haproxy -c`, and reloads, each while the controller has nothing to do."""
    cases = []
    for name, action in ((CHECK, time_check), (RELOAD, time_reload)):
        meter.controller.settle(FLOOR_QUIET)
        counts = meter.counts()
        seconds = [action(meter.controller) for _number in range(FLOOR_ROUNDS)]
        cases.append(meter.summarize(name, seconds, counts=counts, cpu_s=0.0))
    return cases
