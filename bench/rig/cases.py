"""The kinds of change that are measured, each from the save to what a client sees of it."""

import time
from collections.abc import Awaitable, Callable

import msgspec
import trio

from rig.controller import Controller, Line
from rig.manifests import Site, app_name, host_of
from rig.phases import Phases, read_phases
from rig.report import Case, median_phases, percentile
from rig.traffic import Answer, Background, wait_for


class Backends(msgspec.Struct, frozen=True):
    """Ports of the two backends that apps are moved between."""

    one: int
    two: int


class Trial(msgspec.Struct, frozen=True):
    """One change."""

    seconds: dict[str, float]
    """How long it took, by the name of what was waited for."""
    phases: Phases


Change = Callable[[int], Awaitable[dict[str, float]]]
Progress = Callable[[str], None]

ENDPOINT = "endpoint moves"
MAP_ONLY = "new Ingress, known Service"
NEW_BACKEND = "new Ingress, new Service"
CONFIG_TRAFFIC = "ConfigMap, to traffic"
CONFIG_DEPLOYED = "ConfigMap, to deployment"
COLD_START = "cold start"


class Rig:
    """A controller over *size* apps, and the clients; changes are made one after another."""

    def __init__(self, site: Site, backends: Backends, controller: Controller, background: Background, size: int):
        self._site = site
        self._backends = backends
        self._controller = controller
        self._background = background
        self._size = size
        self._ports: dict[str, int] = {}
        self._added: list[str] = []

    async def move_endpoint(self, number: int) -> dict[str, float]:
        """Move the endpoint of an app to the other backend."""
        name = app_name(number * 7 % self._size)
        to_two = self._ports.get(name, self._backends.one) == self._backends.one
        port, backend = (self._backends.two, "two") if to_two else (self._backends.one, "one")
        self._ports[name] = port
        since = trio.current_time()
        self._site.write_app(name, port)
        return {ENDPOINT: await self._wait(name, lambda answer: answer.backend == backend, since)}

    async def add_ingress(self, number: int) -> dict[str, float]:
        """Add an Ingress with a host of its own to a Service that another Ingress names already."""
        name = f"extra-{number:05d}"
        self._added.append(name)
        since = trio.current_time()
        self._site.write_ingress(name, app_name(number * 7 % self._size))
        return {MAP_ONLY: await self._wait(name, lambda answer: answer.status == 200, since)}

    async def add_app(self, number: int) -> dict[str, float]:
        """Add a Service with its EndpointSlice and an Ingress."""
        name = f"fresh-{number:05d}"
        self._added.append(name)
        since = trio.current_time()
        self._site.write_app(name, self._backends.one)
        return {NEW_BACKEND: await self._wait(name, lambda answer: answer.status == 200, since)}

    async def change_config(self, number: int) -> dict[str, float]:
        """Change a variable that becomes a header of all responses."""
        greeting = f"v{number + 1}"
        heard = len(self._controller.log.lines)
        since, saved = trio.current_time(), time.time()
        self._site.write_config(greeting)
        seen = await self._wait(app_name(0), lambda answer: answer.greeting == greeting, since)
        opened = await self._controller.log.wait(lambda line: line.event == "stage reached", since=heard)
        prefix = f"{opened.fields['iteration']}-"

        def is_deployment(line: Line) -> bool:
            return line.event == "deployment completed" and line.correlation.startswith(prefix)

        deployed = await self._controller.log.wait(is_deployment, since=heard)
        return {CONFIG_TRAFFIC: seen, CONFIG_DEPLOYED: deployed.at - saved}

    async def clear(self) -> None:
        """Remove what was added, and wait until that is done."""
        for name in self._added:
            self._site.remove(name)
        if self._added:
            await trio.sleep(0.5)
        self._added.clear()
        await self._controller.log.wait_quiet()

    def changes(self) -> tuple[Change, ...]:
        """Return every kind of change."""
        return self.move_endpoint, self.add_ingress, self.add_app, self.change_config

    async def measure(self, change: Change, repeats: int, progress: Progress) -> list[Case]:
        """Make *change* once to warm up and *repeats* times to measure it."""
        await self._try(change, repeats)
        sent, errors = self._background.sent, self._background.errors
        reloads, cpu = await self._controller.count_reloads(), self._controller.usage().cpu_s
        trials: list[Trial] = []
        for number in range(repeats):
            trials.append(await self._try(change, number))
            took = ", ".join(f"{name} {1000 * value:,.0f} ms" for name, value in trials[-1].seconds.items())
            progress(f"{self._size:,} Ingresses: {took}")
        usage = self._controller.usage()
        after = await self._controller.count_reloads()
        return [
            Case(
                size=self._size,
                name=name,
                n=repeats,
                **summarize([trial.seconds[name] for trial in trials]),
                reloads=after - reloads,
                errors=self._background.errors - errors,
                requests=self._background.sent - sent,
                rss_mib=usage.rss_mib,
                cpu_s=(usage.cpu_s - cpu) / repeats,
                phases=median_phases([trial.phases for trial in trials]),
            )
            for name in trials[0].seconds
        ]

    async def _try(self, change: Change, number: int) -> Trial:
        log = self._controller.log
        await log.wait_quiet()
        heard, saved = len(log.lines), time.time()
        seconds = await change(number)
        await log.wait_quiet()
        return Trial(seconds, read_phases(log.lines[heard:], saved))

    async def _wait(self, name: str, accept: Callable[[Answer], bool], since: float) -> float:
        return await wait_for(self._site.port, host_of(name), accept, since=since)


async def measure_start(site: Site, controller: Controller, since: float) -> Trial:
    """Wait for the first answer of a controller that was started at *since*."""
    saved = time.time() - (trio.current_time() - since)
    seen = await wait_for(site.port, host_of(app_name(0)), lambda answer: answer.status == 200, since=since)
    await controller.log.wait_quiet()
    return Trial({COLD_START: seen}, read_phases(controller.log.lines, saved))


def summarize(seconds: list[float]) -> dict[str, float]:
    """Return the statistics of a case."""
    milliseconds = [1000 * value for value in seconds]
    return {
        "p50_ms": percentile(milliseconds, 0.5),
        "p99_ms": percentile(milliseconds, 0.99),
        "max_ms": max(milliseconds),
    }
