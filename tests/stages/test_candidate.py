"""A changed configuration is rendered and checked completely while the running iteration goes on."""

import gc
import json
import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.config.load import LoadedConfig, load_config
from haptic_trio.k8s.resource import Resource, ResourceType
from haptic_trio.messages import (
    ConfigInvalid,
    ConfigRendered,
    ConfigValidated,
    IndexSynchronized,
    IterationEnded,
    ProblemsReported,
    Quarantined,
    ReconcileCompleted,
    StageReached,
)
from tests.support.components.controller import SERVICES, ControllerRig, config_map
from tests.support.kubernetes import service
from tests.support.processes.scripts import script

pytestmark = pytest.mark.process

HANGING = ResourceType("v2", "services")

TEMPLATE = """\
global
    maxconn {number}
{more}
{{% for service in resources.services.list() %}}
{{% fragment "backend" for service %}}
backend {{{{ ident(service.metadata.name) }}}}
    mode http
    server one 127.0.0.1:{{{{ service.spec.port | default(80) | int }}}}
{{% endfragment %}}
{{% endfor %}}
"""


def serving(number: int, more: str = "", **fields: Any) -> Resource:
    """Return a ConfigMap whose backends have a server each."""
    return config_map(haproxyConfig={"template": TEMPLATE.format(number=number, more=more)}, **fields)


class Checks:
    """A program in place of HAProxy that counts its checks, rejects `rejected`, and waits at `maxconn 20`."""

    def __init__(self, folder: Path) -> None:
        self._log, self._gate = folder / "checks", folder / "gate"
        self._log.touch()
        self.binary = script(
            folder / "haproxy",
            f"""\
[ "$1" = -c ] || exit 0
for file; do [ -f "$file" ] && config=$file; done
while read -r line; do
    case "$line" in
        maxconn*) echo "$line" >> {self._log} ;;
    esac
    case "$line" in
        "maxconn 20") while [ -e {self._gate} ]; do read -r _ < {self._gate}; done ;;
        *rejected*) echo "[ALERT] (1) : config : parsing [$config:3] : no" >&2; exit 1 ;;
    esac
done < "$config"
exit 0""",
        )

    def hold(self) -> None:
        """Let checks of `maxconn 20` wait."""
        os.mkfifo(self._gate)

    async def release(self) -> None:
        """End the wait."""
        gate = self._gate.rename(self._gate.with_name("opened"))
        await trio.to_thread.run_sync(gate.write_text, "go\n", abandon_on_cancel=True)

    @property
    def made(self) -> list[str]:
        """The `maxconn` lines of the checked configurations."""
        return self._log.read_text().splitlines()


@pytest.fixture
def checks(tmp_path: Path) -> Checks:
    (tmp_path / "bin").mkdir()
    return Checks(tmp_path / "bin")


@pytest.fixture
def without_collections() -> Iterator[None]:
    """Collect the garbage of other tests, and none of this one."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def loads() -> list[str]:
    return []


@pytest.fixture
def rig(tmp_path: Path, checks: Checks, loads: list[str]) -> ControllerRig:
    def load(config_map: Resource, secret: Resource | None) -> LoadedConfig:
        loaded = load_config(config_map, secret)
        loads.append(loaded.version)
        return loaded

    rig = ControllerRig(tmp_path, load=load)
    rig.process = replace(rig.process, haproxy=checks.binary)
    rig.cluster.put(serving(10), service("web"))
    return rig


async def ready(rig: ControllerRig) -> None:
    await rig.deployed("maxconn 10")
    await rig.wait(ReconcileCompleted)
    assert rig.iteration is not None
    assert rig.iteration.is_ready


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{{ fail('never') }}", "never"),
        ("    nonsense here", "nonsense"),
        ("    # rejected", "no"),
    ],
    ids=["render", "parse", "check"],
)
async def test_rejected_configuration_changes_nothing_but_is_reported(
    rig: ControllerRig, line: str, message: str
) -> None:
    async with rig.running():
        await ready(rig)
        rig.cluster.put(serving(30, line))
        invalid = await rig.wait(ConfigInvalid)
        for port in (81, 82):
            rig.cluster.put(service("web", port=port))
            await rig.deployed(f"127.0.0.1:{port}")
        await rig.wait(ReconcileCompleted, since=len(rig.events.all(msgspec.Struct)) - 1)
        assert rig.iteration is not None
        assert (rig.iteration.number, rig.iteration.is_ready) == (1, True)
        assert "127.0.0.1:82" in rig.endpoint.text

        rig.cluster.put(serving(40))
        await rig.deployed("maxconn 40")

    assert message in str(invalid.problems[0])
    assert [event.reason for event in rig.events.all(IterationEnded)] == ["configuration changed"]
    assert rig.events.all(Quarantined) == []


async def test_endpoints_change_while_a_good_configuration_is_checked(rig: ControllerRig, checks: Checks) -> None:
    async with rig.running():
        await ready(rig)
        checks.hold()
        rig.cluster.put(serving(20))
        await until(lambda: "maxconn 20" in checks.made)
        for port in (81, 82, 83):
            rig.cluster.put(service("web", port=port))
            await rig.deployed(f"127.0.0.1:{port}")
            assert "maxconn 10" in rig.endpoint.text
        assert rig.events.all(IterationEnded) == []
        taken = len(rig.endpoint.taken)
        await checks.release()
        await rig.deployed("maxconn 20")

        # Never a server that was there when the check began.
        assert "127.0.0.1:83" in rig.endpoint.text
        assert len(rig.endpoint.taken) == taken + 1


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not condition():  # noqa: ASYNC110  a file changes
            await trio.sleep(0.005)


async def test_new_object_of_the_time_of_the_check_is_part_of_what_is_deployed_first(
    rig: ControllerRig, checks: Checks
) -> None:
    async with rig.running():
        await ready(rig)
        checks.hold()
        rig.cluster.put(serving(20))
        await until(lambda: "maxconn 20" in checks.made)
        rig.cluster.put(service("api"))
        await rig.deployed("backend api")
        await checks.release()
        await rig.deployed("maxconn 20")
        assert "backend api" in rig.endpoint.text
    assert checks.made.count("maxconn 20") == 2


async def test_kinds_that_both_configurations_watch_are_listed_once(rig: ControllerRig) -> None:
    async with rig.running():
        await ready(rig)
        opened = rig.cluster.opened
        services = {"apiVersion": "v1", "resources": "services"}
        rig.cluster.put(
            serving(30, watchedResources={"services": services, "more": {**services, "indexBy": ["metadata.name"]}})
        )
        await rig.deployed("maxconn 30")
        assert rig.cluster.opened == opened
        rig.cluster.put(service("web", port=81))
        await rig.deployed("127.0.0.1:81")

        pods = {"apiVersion": "v1", "resources": "pods"}
        rig.cluster.put(serving(40, watchedResources={"services": services, "pods": pods}))
        await rig.deployed("maxconn 40")
        assert rig.cluster.opened == opened + 1
        rig.cluster.put(serving(50))
        await rig.deployed("maxconn 50")
        await wait_all_tasks_blocked(0.01)
        # Of the ConfigMap, of the Secret, and of Services.
        assert rig.cluster.watches == 3

    assert [event.counts for event in rig.events.all(IndexSynchronized)][1] == {"services": 1, "more": 1}


async def test_accepted_configuration_is_loaded_rendered_and_checked_once(
    rig: ControllerRig, checks: Checks, loads: list[str]
) -> None:
    async with rig.running():
        await ready(rig)
        rig.cluster.put(serving(30))
        await rig.deployed("maxconn 30")
        await rig.wait(ReconcileCompleted, lambda event: event.correlation == "2-1")
        assert rig.iteration is not None
        assert rig.iteration.is_ready

    assert len(loads) == len(set(loads)) == 2
    assert checks.made.count("maxconn 30") == 1
    assert sum(event.fragments_rendered for event in rig.events.all(ConfigRendered)) == 2
    assert [event.correlation for event in rig.events.all(ConfigValidated)] == ["1-1", "2-1"]
    assert rig.stages(2) == [1, 2, 3, 4, 5]
    assert len(rig.endpoint.taken) == 2


async def test_rejected_configuration_is_tried_again_with_the_objects_that_arrive_after_it(
    mock_clock: MockClock, rig: ControllerRig, loads: list[str]
) -> None:
    needy = "{{ '' if resources.services.get('default', 'late') else fail('not yet') }}"
    async with rig.running():
        await ready(rig)
        rig.cluster.put(serving(30, needy))
        await rig.wait(ConfigInvalid)
        rig.cluster.put(service("late"))
        await rig.deployed("backend late")
        await wait_all_tasks_blocked(0.01)
        mock_clock.jump(1)
        await rig.deployed("maxconn 30")

    assert len(rig.events.all(ConfigInvalid)) == 1
    assert len(loads) == 2


async def test_kind_that_is_not_listed_holds_up_nothing(mock_clock: MockClock, rig: ControllerRig) -> None:
    watched = {"apiVersion": HANGING.api_version, "resources": HANGING.plural}
    rig.cluster.silence(HANGING)
    async with rig.running():
        await ready(rig)
        services = {"apiVersion": "v1", "resources": "services"}
        rig.cluster.put(serving(30, watchedResources={"services": services, "other": watched}))
        await until_blocked()
        mock_clock.jump(59)
        rig.cluster.put(service("web", port=81))
        await rig.deployed("127.0.0.1:81")
        mock_clock.jump(1)
        invalid = await rig.wait(ConfigInvalid)
        rig.cluster.put(service("web", port=82))
        await rig.deployed("127.0.0.1:82")
        assert rig.events.all(IterationEnded) == []

        rig.cluster.answer(HANGING)
        await until_blocked()
        mock_clock.jump(1)
        await rig.deployed("maxconn 30")

    assert invalid.problems[0].message == "no list of other within 60 s"


async def until_blocked() -> None:
    await wait_all_tasks_blocked(0.05)


async def test_corrected_configuration_replaces_one_that_is_still_checked(rig: ControllerRig, checks: Checks) -> None:
    async with rig.running():
        await ready(rig)
        checks.hold()
        rig.cluster.put(serving(20))
        await until(lambda: "maxconn 20" in checks.made)
        rig.cluster.put(serving(30))
        await rig.deployed("maxconn 30")

    assert [event.iteration for event in rig.events.all(StageReached) if event.stage == 5] == [1, 2]


async def test_rejected_configuration_does_not_run_after_a_failure(mock_clock: MockClock, rig: ControllerRig) -> None:
    async with rig.running():
        await ready(rig)
        rig.cluster.put(serving(30, "    # rejected"))
        await rig.wait(ConfigInvalid)
        rig.cluster.break_watches(SERVICES, OSError("cut off"))
        await rig.ended(1)
        await wait_all_tasks_blocked(0.01)
        mock_clock.jump(0.5)
        await rig.reached(5, 2)
        rig.cluster.put(service("web", port=81))
        await rig.deployed("127.0.0.1:81")
        assert "maxconn 10" in rig.endpoint.text

    assert [event.source for event in rig.events.all(ProblemsReported)] == ["iteration 1"]


async def test_strict_mode_starts_from_the_checked_configuration_as_well(rig: ControllerRig, checks: Checks) -> None:
    strict = {"mode": "strict"}
    async with rig.running():
        await ready(rig)
        rig.cluster.put(serving(30, validation=strict))
        await rig.deployed("maxconn 30")
        await rig.wait(ReconcileCompleted, lambda event: event.correlation == "2-1")

    assert checks.made.count("maxconn 30") == 1
    assert json.dumps(strict)


async def test_configuration_that_is_replaced_is_freed_without_a_collection_of_garbage(
    rig: ControllerRig, without_collections: None
) -> None:
    former: list[weakref.ref[Any]] = []
    async with rig.running():
        await ready(rig)
        for number in (30, 40, 50):
            assert rig.iteration is not None
            components = rig.iteration.components
            assert components is not None
            store = components.stores["services"]
            former += [weakref.ref(components.pipeline), weakref.ref(store)]
            del components, store
            rig.cluster.put(serving(number))
            await rig.deployed(f"maxconn {number}")
        await until(lambda: [one() for one in former] == [None] * 6)


TURNS = """\
global
    maxconn {{ connections }}
{% each service in resources.services %}
backend {{ ident(service.metadata.name) }}
    mode http
    server one 127.0.0.1:{{ service.spec.port | default(80) | int }}
{% endeach %}
"""


def with_turns(connections: int) -> Resource:
    """Return a ConfigMap in which only the global section depends on *connections*."""
    context = {"connections": connections}
    return config_map(haproxyConfig={"template": TURNS}, templating={"extraContext": context})


async def test_fragments_that_depend_on_no_difference_are_taken_over(
    rig: ControllerRig, without_collections: None
) -> None:
    former: list[weakref.ref[Any]] = []
    rig.cluster.put(with_turns(20))
    async with rig.running():
        await rig.deployed("maxconn 20")
        for number in (30, 40):
            assert rig.iteration is not None
            components = rig.iteration.components
            assert components is not None
            former += [weakref.ref(components.pipeline), weakref.ref(components.stores["services"])]
            del components
            rig.cluster.put(with_turns(number))
            await rig.deployed(f"maxconn {number}")
            assert "backend web" in rig.endpoint.text
            # An object that comes afterwards is followed by the stores and watches that were taken over.
            rig.cluster.put(service(f"app{number}", port=number))
            await rig.deployed(f"127.0.0.1:{number}")
        await until(lambda: [one() for one in former] == [None] * 4)

    # The first object, and each that came.
    assert sum(event.fragments_rendered for event in rig.events.all(ConfigRendered)) == 3
