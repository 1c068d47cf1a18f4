"""A controller over a fleet of real HAProxy processes, with someone who counts how many are ready."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from haptic_trio.cli.fleet import ask_controller
from haptic_trio.demo.event_log import EventLog
from haptic_trio.fleet.model import InstanceRecord, InstanceState
from haptic_trio.fleet.owner import FleetOwner
from haptic_trio.messages import FleetChanged, InstanceDraining
from tests.features.harness import Running, Site, controller
from tests.support.processes.haproxy import live_haproxies
from tests.support.processes.scripts import script

TEMPLATE = """\
global
    maxconn 2000

defaults
    mode http
    timeout client 30s
    timeout server 30s
    timeout connect 5s

frontend web
    bind 127.0.0.1:{port}
    use_backend slow if {{{{ path /slow }}}}
    http-request return status 200 content-type text/plain string "{answer}" unless {{{{ path /slow }}}}

backend slow
    server one 127.0.0.1:{slow}
"""
NEVER = 1
"""A port on which no process listens."""


def write_site(site: Site, *, answer: str = "one", slow: int = NEVER, **instances: Any) -> None:
    """Write a configuration that answers by itself, and leaves `/slow` to a server; *instances* as in it."""
    site.write_config(
        instances={"healthInterval": "500ms", "missed": 2, **instances},
        templating={"libraries": []},
        watchedResources={"services": {"apiVersion": "v1", "resources": "services"}},
        haproxyConfig={"template": template(site.port, answer, slow)},
    )


def template(port: int, answer: str, slow: int) -> str:
    """Return the template of haproxy.cfg."""
    # Braces of HAProxy's own conditions are none of Jinja's.
    return TEMPLATE.format(port=port, answer=answer, slow=slow).replace("{{", "{").replace("}}", "}")


class Story:
    """What happens to the fleet of a running controller."""

    def __init__(self, site: Site, running: Running) -> None:
        self.site = site
        self.running = running
        self.floor = 0
        """Fewer ready instances than this are a fault; of the beginning, until they are all there."""
        self.fewest = 1_000

    @property
    def events(self) -> EventLog:
        return self.running.events

    @property
    def owner(self) -> FleetOwner:
        owner = self.running.serving.process.fleet.owner
        assert owner is not None
        return owner

    @property
    def records(self) -> list[InstanceRecord]:
        if not self.owner.is_leading:
            return []
        return [record for group in self.owner.snapshot().groups for record in group.records]

    @property
    def ready(self) -> list[str]:
        return [record.id for record in self.records if record.state is InstanceState.READY]

    @property
    def reasons(self) -> list[str]:
        """Why instances were drained, in order."""
        return [event.reason for event in self.events.all(InstanceDraining)]

    async def count(self) -> None:
        """Count, again and again; asserts that there are enough."""
        while True:
            if self.records and self.floor:
                self.fewest = min(self.fewest, len(self.ready))
                assert len(self.ready) >= self.floor, f"too few: {self.records}"
            await trio.sleep(0.02)

    async def wait(self, is_so: Callable[[], bool], *, within: float = 40.0) -> None:
        """Return once *is_so*."""
        with trio.move_on_after(within):
            # It waits for other processes.
            while not is_so():  # noqa: ASYNC110
                await trio.sleep(0.02)
            return
        raise AssertionError(f"it did not come to pass: {self.records} {self.events.all(FleetChanged)[-3:]}")

    async def settled(self, size: int) -> list[str]:
        """Return the instances once exactly *size* are ready, made from what they should be, and no other is there."""
        await self.wait(lambda: self.is_settled(size))
        self.floor = size
        return self.ready

    def is_settled(self, size: int) -> bool:
        """Whether *size* instances are ready, as they should be, and nothing else is there."""
        spec = self.owner.desired.spec()
        return (
            spec is not None
            and spec.size == size
            and len(self.ready) == len(self.records) == size
            and all(record.config_hash == spec.config_hash for record in self.records)
            and sorted(endpoint.name for endpoint in self.running.serving.process.endpoints.value or ())
            == sorted(self.ready)
        )

    async def rotated(self, former: list[str], size: int) -> list[str]:
        """Return the instances once none of *former* is among them any more."""
        await self.wait(lambda: self.is_settled(size) and not set(former) & set(self.ready))
        return self.ready

    async def ask(self, method: str, path: str, content: Any = None) -> Any:
        """Ask the controller as `haptic-trio fleet` does."""
        return await ask_controller(self.site.state, method, path, content)

    def pids_of(self, instance_id: str) -> list[int]:
        """Return the live processes of an instance, master and worker."""
        return live_haproxies(self.site.state / "instances" / instance_id, within=0)


@asynccontextmanager
async def running_story(site: Site, binary: Path, *, size: int = 1, on_exit: str = "stop") -> AsyncIterator[Story]:
    """Run a controller over *site* and count, for as long as the block lasts."""
    async with controller(site, binary, instances=size, on_exit=on_exit) as running, trio.open_nursery() as nursery:
        story = Story(site, running)
        nursery.start_soon(story.count)
        yield story
        nursery.cancel_scope.cancel()


def replaceable(path: Path, binary: Path, version: int = 1) -> Path:
    """Return a program that is *binary* by another name; another *version* of it is another binary."""
    fresh = script(path.with_suffix(f".{version}"), f'# {version}\nexec {binary} "$@"')
    fresh.replace(path)
    return path
