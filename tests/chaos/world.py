"""A controller, HAProxy processes, agents and clients, which experiments disturb, and the checks after that."""

import random
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import httpx
import msgspec
import trio
import trustme

from haptic_trio.dataplane.endpoint import EndpointError
from tests.chaos.clients import Clients, Loss, Span
from tests.chaos.comparison import differences, facts_of, fresh_haproxy, servers_of
from tests.chaos.desired import SERVERS, App, Desired
from tests.chaos.network import Network, network_to
from tests.chaos.processes import Instance, Limits, Program, gone, living_instances, send
from tests.chaos.usage import Usage, measure
from tests.features.harness import Site
from tests.features.server_site import ServerSite
from tests.support.api_server.server import ApiServer
from tests.support.api_server.server import serving as serving_api
from tests.support.components.agents import Authority
from tests.support.processes.haproxy import live_haproxies
from tests.support.processes.ports import free_port
from tests.support.scenarios.witness import start_answering

RECOVERY_LIMIT: Final = 120.0
"""Seconds after which a fault counts as not recovered from, however busy the machine is."""
REQUESTS: Final = 100
"""Requests at least that an experiment sends."""
LOOK_INTERVAL: Final = 0.05
GENERATIONS: Final = 5
"""Generations that an instance keeps: four, and the one that is being written."""
LOG_SHOWN: Final = 30_000
"""Characters of each log that are shown with a failure."""

Source = Literal["directory", "API server"]


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What an experiment disturbs."""

    instances: int = 2
    """Of HAProxy, each with an agent or all of them with the controller."""
    agents: bool = False
    source: Source = "directory"
    apps: int = 4
    limits: Limits = Limits()


class World:
    """What runs, and what was found; made by `running`."""

    def __init__(
        self,
        setup: Setup,
        root: Path,
        binary: Path,
        site: Site,
        https: int,
        desired: Desired,
        clients: Clients,
        rng: random.Random,
    ) -> None:
        self.setup = setup
        self.root = root
        self.site = site
        self.desired = desired
        self.clients = clients
        self.rng = rng
        self.controller: Program
        self.agents: list[Program] = []
        self.networks: list[Network] = []
        self.api: ApiServer | None = site.server if isinstance(site, ServerSite) else None
        self.recoveries: list[float] = []
        """Seconds from the end of each fault until everything was as wanted."""
        self.outages: list[Span] = []
        """From the first signal until the killed processes were gone."""
        self.deaths: list[Span] = []
        """From a signal until the processes to which it was sent were gone: connections to them are rejected then."""
        self.dark: list[Span] = []
        """When no HAProxy was alive."""
        self.is_quick = False
        self.is_writable = True
        """Whether files can be written below the state directory."""
        self.admin = free_port()
        self.binary = binary
        self._https = https
        self._first: Usage | None = None
        self._fresh = 0

    @property
    def programs(self) -> list[Program]:
        """The controller, and the agents if there are any."""
        return [self.controller, *self.agents]

    @property
    def lost(self) -> list[Loss]:
        """The requests that an instance could have answered."""
        return self.clients.lost_without_reason(self.outages, [*self.dark, *self.deaths])

    @property
    def source(self) -> list[str]:
        """The options that name the cluster."""
        if isinstance(self.site, ServerSite):
            return ["--kubeconfig", str(self.site.kubeconfig)]
        return ["--manifests", str(self.site.manifests)]

    @property
    def directories(self) -> list[Path]:
        """The directories of the instances."""
        if self.agents:
            return [self.root / agent.name for agent in self.agents]
        folder = self.site.state / "instances"
        return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.exists() else []

    @property
    def instances(self) -> list[Instance]:
        """The HAProxy processes that are alive."""
        return living_instances(self.directories)

    async def pause(self, longest: float = 1.0) -> None:
        """Wait until a random moment."""
        await trio.sleep(self.rng.uniform(0.0, longest))

    async def kill(self, *pids: int) -> None:
        """Kill processes of HAProxy, and return when their instances are gone or work again.

        Connections to them are cut meanwhile: master and workers end with
        each other, and a reload may have been under way.
        """
        began = trio.current_time()
        if not self.is_writable:
            # Neither the last changes nor the record of the next process can be on the disk.
            self.desired.unsettle()
            masters = [instance.master for instance in self.instances if not {*pids}.isdisjoint(instance.pids)]
            send(signal.SIGKILL, *pids)
            await gone([*pids, *masters])
            self.deaths.append((began, trio.current_time()))
            self.outages.append((began, trio.current_time()))
            return
        left = {instance.directory for instance in self.instances if not {*pids}.isdisjoint(instance.pids)}
        victims = {*pids, *(pid for directory in left for pid in live_haproxies(directory, within=0))}
        send(signal.SIGKILL, *pids)
        await gone(pids)
        self.deaths.append((began, trio.current_time()))
        with trio.fail_after(RECOVERY_LIMIT):
            while True:
                victims |= {pid for directory in left for pid in live_haproxies(directory, within=0)}
                left = {directory for directory in left if not self._is_gone_or_back(directory, pids)}
                if not left:
                    break
                await trio.sleep(LOOK_INTERVAL)
            # A process that is exiting has no command line, and closes its sockets after that.
            await gone(victims - {pid for instance in self.instances for pid in instance.pids})
        self.outages.append((began, trio.current_time()))

    def _is_gone_or_back(self, directory: Path, killed: Sequence[int]) -> bool:
        found = living_instances([directory])
        if not found:
            return not live_haproxies(directory, within=0)
        return len(found[0].workers) == 1 and not {*killed}.intersection(found[0].pids)

    async def restart(self, program: Program) -> None:
        """Kill a program and start it again."""
        await program.kill()
        await self.pause(0.3)
        program.start()

    async def recover(self) -> None:
        """Change something, and return once every instance has that."""
        began = trio.current_time()
        self.desired.change_endpoints(self.rng.choice(self.desired.apps))
        self.desired.change()
        await self.converge()
        self.recoveries.append(trio.current_time() - began)

    async def converge(self) -> None:
        """Return once the controller is ready, and each instance has the wanted endpoints and one worker."""
        missing = ""
        with trio.move_on_after(RECOVERY_LIMIT) as limit:
            while True:
                missing = await self._missing()
                if not missing:
                    break
                await trio.sleep(LOOK_INTERVAL)
        assert not limit.cancelled_caught, f"not as wanted after {RECOVERY_LIMIT:g} s: {missing}"
        self.desired.settle_servers()
        if self._first is None:
            self._first = await self._measure()

    async def _missing(self) -> str:
        instances = self.instances
        if len(instances) != self.setup.instances or len(self.directories) != self.setup.instances:
            return f"{len(instances)} instances in {len(self.directories)} directories"
        others = {*live_haproxies(self.root, within=0)} - {pid for instance in instances for pid in instance.pids}
        if others:
            return f"{len(others)} more HAProxy processes"
        if any(len(instance.workers) != 1 for instance in instances):
            return f"workers {[instance.workers for instance in instances]}"
        return await self._missing_servers(instances) or await self._read_readiness()

    async def _missing_servers(self, instances: Sequence[Instance]) -> str:
        wanted = {f"default_{app.name}_80": app.desired_ports for app in self.desired.apps}
        for instance in instances:
            try:
                found = await servers_of(instance.sockets / "admin.sock")
            except EndpointError as exc:
                return str(exc)
            if {name: ports for name, ports in found.items() if name in wanted} != wanted:
                return f"{instance.directory.name}: {found}, wanted {wanted}"
        return ""

    async def _read_readiness(self) -> str:
        """Return why the controller is not ready; empty if it is."""
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=5) as http:
                answer = await http.get(f"http://127.0.0.1:{self.admin}/readyz?verbose")
        except httpx.HTTPError as exc:
            return f"readiness: {exc!r}"
        return "" if answer.status_code == 200 else answer.text

    async def compare(self) -> None:
        """Assert that each instance is as a new HAProxy with a fresh rendering."""
        self._fresh += 1
        root = self.root / f"fresh-{self._fresh}"
        root.mkdir()
        async with fresh_haproxy(root, self.source, self.binary, [self.site.port, self._https]) as socket:
            fresh = await facts_of(socket)
            found = ["nothing was compared"]
            with trio.move_on_after(RECOVERY_LIMIT):
                while found:
                    found = []
                    try:
                        for instance in self.instances:
                            found += differences(await facts_of(instance.sockets / "admin.sock"), fresh)
                    except EndpointError as exc:
                        found = [str(exc)]
                    if found:
                        await trio.sleep(LOOK_INTERVAL)
        assert not found, "not as a fresh start: " + "\n".join(found)

    def check_requests(self) -> None:
        """Assert that no answer was wrong, and that no request was lost which an instance could have answered."""
        assert self.clients.requests > REQUESTS
        assert self.clients.wrong == []
        assert self.lost == []

    def findings(self) -> str:
        """Return what was wrong, and when; times are those of the event loop, *now* is the last one."""
        return "\n".join(
            [
                *(f"wrong: {text}" for text in self.clients.wrong),
                *(f"lost: {loss}" for loss in self.lost),
                f"outages: {self.outages}; without instance: {self.dark}",
                f"now: {trio.current_time()}, {datetime.now(UTC)}",
            ]
        )

    async def check_leaks(self) -> None:
        """Assert that processes, descriptors, memory, tasks and files are as after the start."""
        assert self._first is not None
        expected = {pid for instance in self.instances for pid in instance.pids}
        found: list[str] = []
        with trio.move_on_after(RECOVERY_LIMIT):
            while True:
                found = (await self._measure()).leaked_since(self._first)
                checks = {pid for pid in live_haproxies(self.root, within=0) if pid not in expected}
                # The fresh HAProxy processes have ended; `haproxy -c` may run at any time, for a moment.
                found += [f"haproxy {pid} is left" for pid in checks]
                found += self._left_files()
                if not found:
                    return
                await trio.sleep(LOOK_INTERVAL)
        raise AssertionError(f"leaked: {found}")

    def _left_files(self) -> list[str]:
        found = []
        for directory in self.directories:
            generations = len(list((directory / "generations").iterdir()))
            if generations > GENERATIONS:
                found.append(f"{directory.name}: {generations} generations")
        scratch = self.site.state / "scratch"
        if scratch.exists() and len(list(scratch.iterdir())) > 1:
            found.append(f"scratch directories: {[path.name for path in scratch.iterdir()]}")
        return found

    async def _measure(self) -> Usage:
        return await measure(self.programs, self.instances, self.site.state)


@asynccontextmanager
async def running(setup: Setup, root: Path, binary: Path, rng: random.Random) -> AsyncIterator[World]:
    """Run everything, and yield it once all is as wanted; afterwards the state is compared with a fresh start."""
    async with AsyncExitStack() as stack:
        site: Site
        if setup.source == "API server":
            api = await stack.enter_async_context(serving_api())
            server_site = ServerSite(root, free_port(), api)
            api.write_kubeconfig(server_site.kubeconfig)
            site = server_site
        else:
            site = Site(root, free_port())
        backends = await stack.enter_async_context(trio.open_nursery())
        stack.callback(backends.cancel_scope.cancel)
        authority, https = trustme.CA(), free_port()
        apps = []
        for number in range(setup.apps):
            bodies = [f"app-{number}/{server}" for server in range(SERVERS)]
            apps.append(App(number, [await start_answering(backends, body) for body in bodies], authority))
        context = {"httpPort": site.port, "httpsPort": https, "bindAddress": "127.0.0.1"}
        config: dict[str, Any] = {
            "templating": {"extraContext": context},
            "validation": {"interval": "100ms"},
            "dataplane": {"driftPreventionInterval": "5s"},
            "instances": {"drainTimeout": "2s"},
        }
        desired = Desired(apps, site, config, rng)
        desired.write()
        world = World(setup, root, binary, site, https, desired, Clients(desired, site.port, https), rng)
        await _make_programs(world, stack)
        async with _programs(world), trio.open_nursery() as nursery:
            await world.converge()
            nursery.start_soon(world.clients.run)
            yield world
            await world.converge()
            await world.compare()
            desired.settle_certificates()
            await world.clients.some(50)
            await world.check_leaks()
            world.check_requests()
            nursery.cancel_scope.cancel(reason="the experiment is over")


async def _make_programs(world: World, stack: AsyncExitStack) -> None:
    setup, root, binary = world.setup, world.root, world.binary
    command = ["serve", *world.source, "--state-dir", str(world.site.state), "--haproxy", str(binary)]
    command += ["--listen", f"127.0.0.1:{world.admin}", "--on-exit", "stop"]
    if setup.agents:
        authority = Authority(root / "tls")
        for number in range(setup.instances):
            name, port = f"agent-{number}", free_port()
            network = await stack.enter_async_context(network_to(port, world.rng))
            world.networks.append(network)
            files = authority.issue("127.0.0.1")
            options = ["--state-dir", str(root / name), "--listen", f"127.0.0.1:{port}", "--haproxy", str(binary)]
            options += ["--tls-cert", str(files.certificate), "--tls-key", str(files.key), "--on-exit", "stop"]
            options += ["--client-ca", str(files.authorities)]
            world.agents.append(Program(name, root, ["agent", *options], setup.limits))
            command += ["--agent", f"{name}=https://127.0.0.1:{network.port}"]
        files = authority.issue("controller")
        command += ["--agent-ca", str(files.authorities), "--agent-cert", str(files.certificate)]
        command += ["--agent-key", str(files.key)]
    else:
        command += ["--instances", str(setup.instances)]
    world.controller = Program("controller", root, command, setup.limits)


@asynccontextmanager
async def _programs(world: World) -> AsyncIterator[None]:
    try:
        for program in world.programs:
            program.start()
        yield
        for program in world.programs:
            assert await program.end() == 0, f"{program.name} ended with an error"
        assert not live_haproxies(world.root), "an haproxy was left behind"
    except BaseException:
        print(world.findings())  # noqa: T201 - shown with the failure
        for program in world.programs:
            print(f"--- {program.name}\n{program.output[-LOG_SHOWN:]}")  # noqa: T201
        raise
    finally:
        with trio.CancelScope(shield=True):
            for instance in world.instances:
                send(signal.SIGCONT, *instance.pids)
            for program in world.programs:
                await program.end()
