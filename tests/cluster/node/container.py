"""The life of one container: started, probed, started again, ended."""

import math
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import trio

from tests.cluster.node.environment import SourceMissingError
from tests.cluster.node.probes import ask_once, ports_by_name, run_probe
from tests.cluster.node.sandbox import EXIT_LIMIT, ContainerProcess, Launch
from tests.cluster.node.status import ContainerState, Ended, timestamp

RETRY_INTERVAL: Final = 0.2
"""Seconds between two attempts to start what lacks an image or a source."""
RESTART_DELAY: Final = 1.0
"""Seconds before the second restart; doubles with every further one. The first is at once."""
RESTART_DELAY_LIMIT: Final = 30.0
GOOD_RUN: Final = 60.0
"""Seconds after which a run counts as good, and the delay restarts."""


class ImageMissingError(Exception):
    """No program stands for the image; one may be added."""


class PodNetwork:
    """How a Pod is reached and where its files go."""

    def __init__(
        self, address: str, namespace: int | None, layers: Path, logs: Path, probes: httpx.AsyncClient
    ) -> None:
        self.address = address
        self.namespace = namespace
        self.layers = layers
        self.logs = logs
        self.probes = probes


Prepare = Callable[[Mapping[str, Any]], Launch]
"""Returns how to start a container of that spec; raises SourceMissingError or ImageMissingError."""


class Container:
    """One container of a Pod; *changed* is called whenever its state did."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        network: PodNetwork,
        prepare: Prepare,
        changed: Callable[[], None],
        *,
        restart_policy: str,
        sidecar: bool = False,
    ) -> None:
        self.spec = spec
        self.state = ContainerState(name=spec["name"], image=spec["image"], sidecar=sidecar)
        self.done = trio.Event()
        """Set when nothing runs and nothing will."""
        self._network = network
        self._prepare = prepare
        self._changed = changed
        self._restart_policy = restart_policy
        self._process: ContainerProcess | None = None
        self._environment: Mapping[str, str] = {}
        self.begun = False
        self._stopping = trio.Event()
        self._started = trio.Event()

    @property
    def pid(self) -> int | None:
        """The first process of the container, while it runs."""
        return None if self._process is None else self._process.process.pid

    async def run(self) -> None:
        """Keep the container running as its Pod's restart policy says, until it is done or stopped."""
        row, self.begun = 0, True
        try:
            while not self._stopping.is_set():
                launch = await self._wait_launch()
                if launch is None:
                    break
                begun = trio.current_time()
                code = await self._run_once(launch)
                if not self._restarts_after(code):
                    break
                row = 0 if trio.current_time() - begun > GOOD_RUN else row + 1
                await self._wait_restart(row, code)
        finally:
            self.done.set()
            self._changed()

    async def wait_started(self) -> None:
        """Wait until the container runs and its startup probe passed, or it is done."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when, self.done, nursery.cancel_scope)
            await self._started.wait()
            nursery.cancel_scope.cancel()

    async def stop(self, deadline: float) -> None:
        """End the container: its preStop hook, SIGTERM, and at *deadline*, in Trio's time, SIGKILL."""
        self._stopping.set()
        with trio.move_on_at(deadline):
            await self._run_hook()
            self.kill(signal.SIGTERM)
            await self.done.wait()
        self.kill(signal.SIGKILL)
        await self.done.wait()

    def kill(self, number: signal.Signals) -> None:
        """Send a signal to the first process, as an accident does."""
        if self._process is not None:
            self._process.send_signal(number)

    async def execute(self, argv: Sequence[str], content: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        """Run a command in the container; raises RuntimeError when it does not run."""
        if self._process is None or self.state.running_since is None:
            raise RuntimeError(f"container {self.state.name} is not running")
        return await trio.run_process(
            self._process.inside(argv),
            stdin=content,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=dict(self._environment),
        )

    def log_of(self, *, previous: bool = False) -> Path | None:
        """Return the log of the current or of the previous run, if there was one."""
        run = self.state.restarts - previous
        return self._log(run) if run >= 0 else None

    def _log(self, run: int) -> Path:
        return self._network.logs / f"{self.state.name}-{run}.log"

    async def _wait_launch(self) -> Launch | None:
        while not self._stopping.is_set():
            try:
                return self._prepare(self.spec)
            except ImageMissingError as exc:
                self._wait_for("ErrImagePull", str(exc))
            except SourceMissingError as exc:
                self._wait_for("CreateContainerConfigError", str(exc))
            with trio.move_on_after(RETRY_INTERVAL):
                await self._stopping.wait()
        return None

    def _wait_for(self, reason: str, message: str) -> None:
        if self.state.waiting != (reason, message):
            self.state.waiting = (reason, message)
            self._changed()

    async def _run_once(self, launch: Launch) -> int:
        state = self.state
        run = f"{state.name}-{state.restarts}"
        self._environment = launch.environment
        process = await ContainerProcess.start(
            launch, self._network.namespace, self._network.layers / run, self._log(state.restarts)
        )
        self._process = process
        if self._stopping.is_set():
            process.send_signal(signal.SIGKILL)
        since = timestamp()
        try:
            await process.wait_launched()
            state.waiting, state.ended, state.running_since = None, None, since
            state.started = "startupProbe" not in self.spec
            state.probed_ready = "readinessProbe" not in self.spec
            self._changed()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._probe)
                code = await process.wait()
                nursery.cancel_scope.cancel(reason="the process ended")
        finally:
            with trio.move_on_after(EXIT_LIMIT, shield=True):
                await process.clean_up()
            self._process = None
        reason = "Completed" if code == 0 else "Error"
        state.running_since, state.ended = None, Ended(code, reason, since, timestamp())
        state.started = state.probed_ready = False
        self._changed()
        return code

    def _restarts_after(self, code: int) -> bool:
        if self._stopping.is_set() or self._restart_policy == "Never":
            return False
        return self._restart_policy == "Always" or code != 0

    async def _wait_restart(self, row: int, code: int) -> None:
        delay = 0.0 if row < 2 else min(RESTART_DELAY * 2 ** (row - 2), RESTART_DELAY_LIMIT)
        if delay:
            self.state.previous = self.state.ended
            self._wait_for("CrashLoopBackOff", f"ended with {code}; back-off {delay:g} s")
            with trio.move_on_after(delay):
                await self._stopping.wait()
        if not self._stopping.is_set():
            self.state.previous, self.state.restarts = self.state.ended, self.state.restarts + 1

    async def _probe(self) -> None:
        if probe := self.spec.get("startupProbe"):
            async with trio.open_nursery() as nursery:

                def judge_start(passed: bool) -> None:
                    self.state.started = passed
                    if passed:
                        nursery.cancel_scope.cancel(reason="started")
                    else:
                        self._end_unhealthy()

                await run_probe(probe, judge_start, partial(self._ask, probe))
        self.state.started = True
        self._started.set()
        self._changed()
        async with trio.open_nursery() as nursery:
            for kind, judge in (("readinessProbe", self._judge_ready), ("livenessProbe", self._judge_alive)):
                if probe := self.spec.get(kind):
                    nursery.start_soon(run_probe, probe, judge, partial(self._ask, probe))

    def _judge_ready(self, passed: bool) -> None:
        if self.state.probed_ready != passed:
            self.state.probed_ready = passed
            self._changed()

    def _judge_alive(self, passed: bool) -> None:
        if not passed and not self._stopping.is_set():
            self._end_unhealthy()

    def _end_unhealthy(self) -> None:
        # A kubelet grants the Pod's grace here; what does not answer is not worth the wait in a test.
        self.kill(signal.SIGKILL)

    async def _ask(self, probe: Mapping[str, Any]) -> bool:
        return await ask_once(
            probe,
            address=self._network.address,
            ports=ports_by_name(self.spec),
            client=self._network.probes,
            execute=self._exit_status,
        )

    async def _exit_status(self, argv: Sequence[str]) -> int:
        return (await self.execute(argv)).returncode

    async def _run_hook(self) -> None:
        hook: Mapping[str, Any] = (self.spec.get("lifecycle") or {}).get("preStop") or {}
        if "sleep" in hook:
            await trio.sleep(hook["sleep"]["seconds"])
        elif hook and self.state.running_since is not None:
            await self._ask({"timeoutSeconds": math.inf, **hook})

    @staticmethod
    async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
        await event.wait()
        scope.cancel(reason="the container is done")
