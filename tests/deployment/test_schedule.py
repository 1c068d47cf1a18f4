"""Data passes at once, and reloads keep their distance, whatever comes in which order."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.dataplane.endpoint import SyncResult
from haptic_trio.deployment.schedule import PATIENCE, Compared, Schedule
from haptic_trio.haproxy.model import Generation
from haptic_trio.messages import (
    ConfigPrepared,
    ConfigValidated,
    DeploymentCompleted,
    DeploymentScheduled,
    DeploymentState,
    EndpointsDiscovered,
    Phases,
    Reason,
    ValidationFailed,
)
from tests.support.components.endpoints import MemoryEndpoint, generation

INTERVAL = 5.0


def built(structure: int, data: int) -> Generation:
    return generation(f"{structure} {data}")


def parts_of(made: Generation) -> tuple[int, int]:
    structure, data = made.text.strip("# \n").split()
    return int(structure), int(data)


def add_data(valid: Generation, prepared: Generation) -> Generation:
    return built(parts_of(valid)[0], parts_of(prepared)[1])


class World:
    """Endpoints that hold back structure on demand, and a schedule that is queried after each event."""

    def __init__(self, names: str = "ab", *, data_reloads: bool = False) -> None:
        self.now = 100.0
        self.data_reloads = data_reloads
        """Whether the endpoints' HAProxy is one that takes data, too, only by a reload."""
        self.schedule = Schedule(INTERVAL)
        self.running: dict[str, tuple[int, int]] = {}
        self.held: set[str] = set()
        self.reloads: list[float] = []
        self.whys: list[str] = []
        self.valid_structures: set[int] = set()
        self.newest = (0, 0)
        self.cycles = 0
        self.discover(names)

    def discover(self, names: str) -> None:
        self.running = {name: self.running[name] for name in names if name in self.running}
        self.held &= set(names)
        endpoints = getattr(self, "endpoints", {})
        self.endpoints = {name: endpoints.get(name) or MemoryEndpoint(name) for name in names}
        self.report(EndpointsDiscovered(endpoints=tuple(self.endpoints.values())))

    def prepare(self, structure: int, data: int) -> None:
        self.newest = (structure, data)
        self.cycles += 1
        self.report(
            ConfigPrepared(
                correlation=f"c{self.cycles}",
                reason=Reason.CHANGED,
                generation=built(structure, data),
                phases=Phases(),
            )
        )

    def validate(self, structure: int, data: int, cycle: int) -> None:
        self.valid_structures.add(structure)
        self.report(
            ConfigValidated(
                correlation=f"c{cycle}", reason=Reason.CHANGED, generation=built(structure, data), phases=Phases()
            )
        )

    def validate_newest(self) -> None:
        self.validate(*self.newest, self.cycles)

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.schedule.due()) is not None and due <= end:
            self.now = max(self.now, due)
            if (pair := self.schedule.comparison(self.now)) is not None:
                self.schedule.take(Compared(*pair, add_data(*pair)), self.now)
            else:
                self.deploy()
        self.now = end

    def report(self, message: ConfigPrepared | ConfigValidated | ValidationFailed | EndpointsDiscovered) -> None:
        self.schedule.take(message, self.now)
        self.wait(0)

    def deploy(self) -> None:
        deployment = self.schedule.start(self.now)
        self.whys.append(deployment.why)
        self.checked = deployment.checked
        results = [self.sync(endpoint.name, deployment) for endpoint in deployment.endpoints]
        if any(result.reloaded for result in results) and deployment.why != "endpoints":
            self.reloads.append(self.now)
        self.schedule.take(
            DeploymentCompleted(
                correlation=deployment.correlation,
                generation=deployment.generation.id,
                results=tuple(results),
                failed=(),
                seconds=0,
                state=DeploymentState(
                    held=tuple(sorted(self.held)), reloaded=max(self.reloads, default=-1e9), begun=deployment.scheduled
                ),
            ),
            self.now,
        )

    def sync(self, name: str, deployment: DeploymentScheduled) -> SyncResult:
        structure, data = parts_of(deployment.generation)
        running = self.running.get(name)
        wants = running is None or running[0] != structure or (self.data_reloads and running[1] != data)
        reloads = deployment.may_reload and wants
        self.held.discard(name)
        if reloads:
            assert structure in self.valid_structures
            self.running[name] = structure, data
        elif running is not None:
            if not self.data_reloads:
                self.running[name] = running[0], data
            if wants:
                self.held.add(name)
        else:
            self.held.add(name)
        return SyncResult(endpoint=name, changed=True, reloaded=reloads)


def test_nothing_is_deployed_before_a_configuration_is_valid() -> None:
    world = World()
    world.prepare(1, 1)
    assert world.running == {}

    world.validate_newest()

    assert world.running == {"a": (1, 1), "b": (1, 1)}


def test_data_is_deployed_before_it_is_checked() -> None:
    world = World()
    world.prepare(1, 1)
    world.validate_newest()

    world.prepare(1, 2)

    assert (world.running["a"], world.reloads) == ((1, 2), [])
    count = len(world.whys)
    world.validate_newest()
    assert len(world.whys) == count


def test_data_does_not_wait_behind_structure_that_is_held_back() -> None:
    world = World()
    world.prepare(1, 1)
    world.validate_newest()
    world.prepare(2, 1)
    world.validate_newest()
    assert world.reloads == [100.0]

    world.prepare(3, 1)
    world.validate_newest()
    world.prepare(3, 2)

    assert world.running["a"] == (2, 2)
    world.wait(5)
    assert world.running["a"] == (3, 2)
    assert world.reloads == [100.0, 105.0]


def test_reload_takes_along_the_data_that_came_after_the_check() -> None:
    world = World()
    world.prepare(1, 1)
    world.validate_newest()
    world.prepare(2, 1)
    structural = world.cycles
    world.prepare(3, 9)

    world.validate(2, 1, structural)

    assert (world.running["a"], world.checked) == ((2, 9), built(2, 1))


def test_new_endpoint_gets_what_is_valid_without_waiting_for_the_interval() -> None:
    world = World()
    world.prepare(1, 1)
    world.validate_newest()
    world.prepare(2, 1)
    world.validate_newest()

    world.discover("abc")

    assert world.running["c"] == (2, 1)
    assert world.reloads == [100.0]


def test_data_that_takes_a_reload_does_not_wait_for_a_check_of_its_own() -> None:
    world = World(data_reloads=True)
    world.prepare(1, 1)
    world.validate_newest()

    world.prepare(1, 2)
    world.wait(PATIENCE)

    assert world.running["a"] == (1, 2)
    assert len(world.reloads) == 1


@pytest.mark.parametrize("first", ["reported at once", "held back"])
def test_data_that_takes_a_reload_waits_for_structure_that_was_prepared_with_it(first: str) -> None:
    world = World(data_reloads=True)
    world.prepare(1, 1)
    world.validate_newest()
    if first == "held back":
        world.prepare(2, 2)
        world.validate_newest()
        world.wait(INTERVAL)
    before = len(world.reloads)

    world.prepare(3, 3)
    world.wait(INTERVAL)
    assert len(world.reloads) == before
    world.validate_newest()

    assert world.running["a"] == (3, 3)
    assert len(world.reloads) == before + 1


def test_valid_structure_does_not_wait_for_the_check_of_newer_structure() -> None:
    world = World(data_reloads=True)
    world.prepare(1, 1)
    world.validate_newest()
    world.prepare(2, 2)
    older = world.cycles
    world.prepare(3, 3)

    world.validate(2, 2, older)
    world.wait(INTERVAL)

    assert world.running["a"] == (2, 3)
    assert len(world.reloads) == 1


def test_rejected_data_gives_way_to_what_is_valid() -> None:
    world = World()
    world.prepare(1, 1)
    world.validate_newest()
    world.prepare(1, 666)

    world.report(ValidationFailed(correlation="c2", reason=Reason.CHANGED, phase="check", problems=()))

    assert world.running["a"] == (1, 1)
    assert world.whys[-1] == "rollback"


def test_check_without_a_verdict_leaves_the_data_that_is_deployed() -> None:
    world = World()
    world.prepare(1, 1)
    world.validate_newest()
    world.prepare(1, 2)

    world.report(
        ValidationFailed(correlation="c2", reason=Reason.CHANGED, phase="check", problems=(), is_verdict=False)
    )

    assert world.running["a"] == (1, 2)
    assert "rollback" not in world.whys


def test_failed_render_leaves_what_was_prepared_before_it() -> None:
    world = World()
    world.prepare(1, 1)
    world.validate_newest()
    world.prepare(1, 2)

    world.report(ValidationFailed(correlation="c3", reason=Reason.CHANGED, phase="render", problems=()))

    assert world.running["a"] == (1, 2)


def test_deployment_that_might_have_reloaded_counts_as_one_until_it_is_completed() -> None:
    schedule = Schedule(INTERVAL)
    schedule.take(EndpointsDiscovered(endpoints=(MemoryEndpoint("a"),)), 0)
    valid = ConfigValidated(correlation="c1", reason=Reason.CHANGED, generation=built(1, 1), phases=Phases())
    schedule.take(valid, 0)
    schedule.start(0)
    schedule.take(ConfigValidated(correlation="c2", reason=Reason.CHANGED, generation=built(2, 1), phases=Phases()), 1)
    assert schedule.start(1).may_reload
    schedule.take(ConfigValidated(correlation="c3", reason=Reason.CHANGED, generation=built(3, 1), phases=Phases()), 2)

    assert not schedule.start(2).may_reload


def test_preparation_that_was_overtaken_by_its_check_is_not_deployed() -> None:
    world = World()
    world.prepare(1, 1)
    world.validate_newest()
    deployments = len(world.whys)
    late = ConfigPrepared(correlation="c1", reason=Reason.CHANGED, generation=built(1, 1), phases=Phases())
    later = ConfigPrepared(
        correlation="c0", reason=Reason.CHANGED, generation=built(1, 0), phases=Phases(), started=-1.0
    )

    world.report(late)
    world.report(later)

    assert len(world.whys) == deployments


def test_endpoint_that_holds_back_is_asked_once_for_each_deployment_that_may_reload() -> None:
    schedule = Schedule(0)
    schedule.take(EndpointsDiscovered(endpoints=(MemoryEndpoint("a"),)), 0)
    valid = ConfigValidated(correlation="c1", reason=Reason.CHANGED, generation=built(1, 1), phases=Phases())
    schedule.take(valid, 0)
    schedule.start(0)
    prepared = ConfigPrepared(
        correlation="c2", reason=Reason.CHANGED, generation=built(2, 1), phases=Phases(), started=1
    )
    schedule.take(prepared, 1)
    first = schedule.start(1)
    held = DeploymentCompleted(
        correlation="c2",
        generation=first.generation.id,
        results=(),
        failed=(),
        seconds=0,
        state=DeploymentState(held=("a",), begun=1),
    )
    schedule.take(held, 2)
    assert (due := schedule.due()) is not None
    assert due <= 2
    assert schedule.comparison(2) == (valid.generation, prepared.generation)
    schedule.take(Compared(valid.generation, prepared.generation, prepared.generation), 2)
    schedule.start(2)

    assert (again := schedule.due()) is not None
    assert again > 2


STEPS = st.lists(
    st.one_of(
        st.just("data"),
        st.just("structure"),
        st.just("validate newest"),
        st.just("validate older"),
        st.just("reject"),
        st.sampled_from(["a", "b", "ab", "abc"]),
        st.floats(0, 7),
    ),
    max_size=40,
)


@given(STEPS, st.booleans())
def test_data_is_always_the_newest_and_reloads_keep_their_distance(
    steps: list[str | float], data_reloads: bool
) -> None:
    world = World(data_reloads=data_reloads)
    world.prepare(1, 1)
    world.validate_newest()
    history = [(1, 1, 1)]
    for number, step in enumerate(steps, start=2):
        structure = world.newest[0]
        match step:
            case "data" | "structure":
                world.prepare(structure + (step == "structure"), number)
                history.append((*world.newest, world.cycles))
            case "validate newest":
                world.validate(*history[-1])
            case "validate older":
                world.validate(*history[-2:][0])
            case "reject":
                world.report(ValidationFailed(correlation="x", reason=Reason.CHANGED, phase="check", problems=()))
            case str():
                world.discover(step)
            case _:
                world.wait(step)
        if step in {"data", "structure"} and not data_reloads:
            assert {data for _, data in world.running.values()} <= {number}
    # Sums of floats.
    assert all(later - earlier >= INTERVAL - 1e-9 for earlier, later in pairwise(world.reloads))

    world.prepare(world.newest[0], 1000)
    world.validate_newest()
    world.wait(INTERVAL)

    assert set(world.running.values()) == {world.newest}
    assert world.schedule.due() is None
