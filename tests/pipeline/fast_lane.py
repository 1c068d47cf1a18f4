"""A coordinator with its fast lane at work, over a pipeline whose results the test sets."""

from functools import partial

import trio
from trio.testing import wait_all_tasks_blocked

from haptic_trio.channels import CycleEvent, EventBuffer, Latest
from haptic_trio.haproxy.model import Generation, make_files
from haptic_trio.heartbeat import Heartbeat
from haptic_trio.messages import (
    ConfigPrepared,
    ConfigValidated,
    DeploymentCompleted,
    DeploymentState,
    Phases,
    Reason,
    ReconcileTriggered,
    ValidationFailed,
)
from haptic_trio.pipeline.coordinator import FastLane, run_coordinator
from haptic_trio.pipeline.cycle import Pipeline, Prepared
from haptic_trio.pipeline.rejection.errors import RejectedError, UndecidedError
from haptic_trio.pipeline.render import Rendered
from tests.support.components.endpoints import generation
from tests.support.messages import PROBLEM

RENDERED = Rendered(files=make_files(()), texts={}, produced={}, rejections=())
INTERVAL = 2.0
CHECK = 0.5


class LanePipeline(Pipeline):
    """Prepares at once and checks in half a second; the test says which configurations are rejected."""

    def __init__(self) -> None:
        self.checks: list[tuple[str, float, bool]] = []
        self.parts: list[str] = []
        """Configurations with the data of a rejected one that were checked."""
        self.rejected: dict[str, bool] = {}
        """Correlation ids that phase 2 rejects, and whether the rejection leads to an object."""
        self.undecided: set[str] = set()
        """Those that phase 2 has no verdict on."""
        self.broken: set[str] = set()
        self.same: dict[str, str] = {}
        """Correlation ids of cycles that make the configuration of another cycle again."""
        self.accepted: list[Rendered] = []
        self.waiting = 0
        """How many cycles it takes until no changes wait."""
        self.seconds = 0.0
        self.prepared: list[tuple[str, Reason]] = []

    @property
    def is_behind(self) -> bool:
        return self.waiting > 0

    async def render_ahead(self) -> bool:
        await trio.lowlevel.checkpoint()
        return True

    async def prepare(self, correlation: str, reason: Reason = Reason.CHANGED) -> Prepared:
        self.prepared.append((correlation, reason))
        self.waiting = max(0, self.waiting - 1)
        await trio.sleep(self.seconds)
        if correlation in self.broken:
            raise RejectedError("render", (PROBLEM,))
        message = ConfigPrepared(
            correlation=correlation,
            reason=reason,
            generation=generation(self.same.get(correlation, correlation)),
            phases=Phases(),
            started=trio.current_time(),
        )
        return Prepared(message=message, rendered=RENDERED)

    def accept(self, rendered: Rendered) -> None:
        self.accepted.append(rendered)

    async def check_part(self, prepared: Prepared, generation: Generation) -> ConfigValidated:
        self.parts.append(generation.text.strip("# \n"))
        await trio.sleep(CHECK)
        if self.parts[-1] in self.rejected:
            raise RejectedError("check", (PROBLEM,))
        message = prepared.message
        return ConfigValidated(
            correlation=message.correlation, reason=message.reason, generation=generation, phases=Phases()
        )

    async def check(self, prepared: Prepared, *, idle: bool, **_more: object) -> ConfigValidated:
        message = prepared.message
        self.checks.append((message.correlation, trio.current_time(), idle))
        await trio.sleep(CHECK)
        if message.correlation in self.undecided:
            raise UndecidedError("check", (PROBLEM,))
        blocked = self.rejected.get(message.correlation)
        if blocked is not None:
            error = RejectedError("check", (PROBLEM,))
            error.is_quarantined = blocked
            raise error
        return ConfigValidated(
            correlation=message.correlation,
            reason=message.reason,
            generation=message.generation,
            phases=Phases(check=CHECK),
            started=message.started,
        )


class Rig:
    """A running fast lane with the test at all its ends."""

    def __init__(self) -> None:
        self.triggers, self._triggers_out = trio.open_memory_channel[ReconcileTriggered](50)
        self._cycles_in, self.cycles = trio.open_memory_channel[CycleEvent](500)
        self.prepared = Latest[ConfigPrepared]()
        self.validated = Latest[ConfigValidated]()
        self.rejected = Latest[ValidationFailed]()
        self.completed = Latest[DeploymentCompleted]()
        self.pipeline = LanePipeline()
        self.structural: set[str] = set()
        self.data: dict[str, Generation] = {}
        """The valid configuration with the data of a correlation id."""
        self.servers: dict[str, tuple[Generation, ...]] = {}
        """The valid configuration with the present servers of a correlation id, and without those that are gone."""
        self.retries = 0

    def _next(self) -> str:
        self.retries += 1
        return f"r{self.retries}"

    async def _only_data(self, _valid: Generation, prepared: Generation) -> bool:
        return prepared.text.strip("# \n") not in self.structural

    async def _add_data(self, valid: Generation, prepared: Generation) -> Generation:
        return self.data.get(prepared.text.strip("# \n"), valid)

    async def _keep_servers(
        self, _valid: Generation, rejected: Generation, _part: Generation, _output: str
    ) -> tuple[Generation, ...]:
        return self.servers.get(rejected.text.strip("# \n"), ())

    async def start(self, nursery: trio.Nursery) -> None:
        await nursery.start(
            partial(
                run_coordinator,
                self._triggers_out,
                self._cycles_in,
                self.validated,
                self.rejected,
                pipeline=self.pipeline,
                fast_lane=FastLane(
                    prepared=self.prepared,
                    completed=self.completed,
                    interval=INTERVAL,
                    only_data=self._only_data,
                    add_data=self._add_data,
                    keep_servers=self._keep_servers,
                    next_correlation=self._next,
                    heartbeat=Heartbeat("checker", 10),
                ),
                events=EventBuffer(),
                heartbeat=Heartbeat("coordinator", 10),
            )
        )

    async def trigger(self, name: str, reason: Reason = Reason.CHANGED) -> None:
        self.triggers.send_nowait(ReconcileTriggered(correlation=name, reason=reason, changes=1))
        await wait_all_tasks_blocked()

    def complete(
        self, name: str, *, held: tuple[str, ...] = (), failed: tuple[str, ...] = (), generation: str = ""
    ) -> None:
        self.completed.put(
            DeploymentCompleted(
                correlation=name,
                generation=generation,
                results=(),
                failed=failed,
                seconds=0,
                state=DeploymentState(held=held),
            )
        )
