"""The whole controller over a directory of manifests, with real HAProxy processes, for feature tests."""

import json
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import trio
import trustme
import yaml

from haptic_trio.cli.inputs.options import InputOptions, make_input
from haptic_trio.cli.serve import ServeOptions, Serving, run_serve
from haptic_trio.dataplane.endpoint import EndpointInfo
from haptic_trio.demo.event_log import EventLog
from haptic_trio.messages import InstanceDeployed, ReconcileCompleted, ReconcileFailed, ReconcileTriggered
from haptic_trio.stages.process import IterationState
from tests.support.kubernetes import tls_secret
from tests.support.processes.haproxy import backend
from tests.support.processes.ports import free_port

EventType = TypeVar("EventType", bound=msgspec.Struct)

LIMIT = 120.0
"""Seconds after which nothing will come any more, however busy the machine is."""


class Site:
    """A directory of manifests, and the port that HAProxy serves."""

    def __init__(self, root: Path, port: int) -> None:
        self.manifests = root / "manifests"
        self.state = root / "state"
        self.port = port
        self.manifests.mkdir()

    def input(self, binary: Path) -> InputOptions:
        """Return what names the manifests, and the HAProxy."""
        return make_input(self.manifests, None, "haptic-trio", "haptic-trio", os.fspath(binary))

    def write(self, name: str, *objects: Any) -> None:
        """Write objects (or raw text) to a file, as an editor does: completely, under another name first."""
        text = "---\n".join(item if isinstance(item, str) else yaml.safe_dump(item) for item in objects)
        temporary = self.manifests / f".{name}.new"
        temporary.write_text(text)
        temporary.replace(self.manifests / f"{name}.yaml")

    def remove(self, name: str) -> None:
        """Delete a file."""
        (self.manifests / f"{name}.yaml").unlink()

    def write_config(self, **fields: Any) -> None:
        """Write the ConfigMap: short intervals, any number of reloads, this site's port, and *fields* over that.

        A None within a field leaves out a default, for a version that does not know it.
        """
        config: dict[str, Any] = {
            "reconciler": {"debounceInterval": "20ms"},
            "dataplane": {"minDeploymentInterval": "20ms", "namespaceReloadInterval": "0s"},
            "templating": {"extraContext": {"httpPort": self.port, "bindAddress": "127.0.0.1"}},
        }
        for key, value in fields.items():
            merged = {**config.get(key, {}), **value} if isinstance(value, dict) else value
            if isinstance(merged, dict):
                merged = {name: field for name, field in merged.items() if field is not None}
            config[key] = merged
        self.write_raw_config(json.dumps(config))

    def write_tls_config(self) -> None:
        """Write the ConfigMap with the library `ssl` and a port for HTTPS."""
        context = {"httpPort": self.port, "httpsPort": free_port(), "bindAddress": "127.0.0.1"}
        self.write_config(templating={"libraries": ["base", "ssl", "ingress"], "extraContext": context})

    def write_raw_config(self, text: str) -> None:
        """Write the ConfigMap with *text* as its configuration."""
        self.write(
            "config",
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "haptic-trio", "namespace": "default"},
                "data": {"config": text},
            },
        )

    def write_class(self) -> None:
        """Write the IngressClass."""
        self.write(
            "class",
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "IngressClass",
                "metadata": {"name": "haptic"},
                "spec": {"controller": "haptic-trio/ingress-controller"},
            },
        )

    def write_service(self, name: str, *ports: int) -> None:
        """Write a Service and its endpoints on the loopback interface."""
        self.write(f"service-{name}", *service(name, *ports))

    def write_ingress(self, name: str, host: str, backend: str, path: str = "/") -> None:
        """Write an Ingress with one rule."""
        self.write(f"ingress-{name}", ingress(name, host, backend, path))

    async def get(self, host: str, path: str = "/", **headers: str) -> tuple[int, str]:
        """Send one request on a new connection; in names of *headers*, `_` is `-`."""
        return await request(self.port, host, path, **headers)


async def request(port: int, host: str, path: str = "/", **headers: str) -> tuple[int, str]:
    """Send one request on a new connection; return status and body. In names of *headers*, `_` is `-`."""
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n".encode())
        answer = b"".join([chunk async for chunk in stream])
    head, _, body = answer.decode().partition("\r\n\r\n")
    return int(head.split()[1]), body


def service(name: str, *ports: int) -> Iterator[dict[str, Any]]:
    """Yield a Service and an EndpointSlice for each port."""
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    }
    for number, port in enumerate(ports):
        yield {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{name}-{number}",
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": "IPv4",
            "ports": [{"name": "http", "protocol": "TCP", "port": port}],
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
        }


def ingress(name: str, host: str, backend: str, path: str = "/") -> dict[str, Any]:
    """Return an Ingress with one rule."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "ingressClassName": "haptic",
            "rules": [
                {
                    "host": host,
                    "http": {
                        "paths": [
                            {
                                "path": path,
                                "pathType": "Prefix",
                                "backend": {"service": {"name": backend, "port": {"name": "http"}}},
                            }
                        ]
                    },
                }
            ],
        },
    }


def tls_ingress(name: str, host: str, backend: str, days: int) -> Iterator[dict[str, Any]]:
    """Yield a Secret with a certificate that expires in *days*, and an Ingress that uses it."""
    issued = trustme.CA().issue_cert(host, not_after=datetime.now(UTC) + timedelta(days=days))
    chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    yield tls_secret(name, chain, issued.private_key_pem.bytes())
    made = ingress(name, host, backend)
    made["spec"]["tls"] = [{"secretName": name, "hosts": [host]}]
    yield made


class Running:
    """A controller at work."""

    def __init__(self, serving: Serving, events: EventLog) -> None:
        self.serving = serving
        self.events = events

    @property
    def iteration(self) -> IterationState | None:
        """The iteration that runs; None between two."""
        return self.serving.process.running.value

    async def wait(
        self, kind: type[EventType], where: Callable[[EventType], bool] = lambda _event: True, *, since: int = 0
    ) -> EventType:
        """Return the first matching event after the first *since* events."""
        with trio.fail_after(LIMIT):
            return await self.events.wait_for(kind, where, since=since)

    async def settled(self, *, since: int = 0, iteration: int | None = None) -> ReconcileCompleted:
        """Return the first reconciliation, of *iteration* if it is given, that ended after the first *since* events."""
        of = "" if iteration is None else f"{iteration}-"
        return await self.wait(ReconcileCompleted, lambda event: event.correlation.startswith(of), since=since)

    async def serves(self, site: Site, host: str, body: str, path: str = "/") -> None:
        """Return once a request is answered with *body*."""
        await self._until(site, host, path, lambda answer: answer == (200, body))

    async def answers(self, site: Site, host: str, status: int, path: str = "/") -> None:
        """Return once a request is answered with *status*."""
        await self._until(site, host, path, lambda answer: answer[0] == status)

    async def _until(self, site: Site, host: str, path: str, done: Callable[[tuple[int, str]], bool]) -> None:
        with trio.fail_after(LIMIT):
            while True:
                try:
                    # A new instance answers a moment before it can be deployed to.
                    if done(await site.get(host, path)) and self.serving.process.endpoints.value:
                        return
                except (OSError, trio.BrokenResourceError, IndexError):
                    # Not listening yet.
                    pass
                await trio.sleep(0.01)

    async def quiet(self) -> None:
        """Return once every reconciliation that was triggered has ended."""
        with trio.fail_after(LIMIT):
            while True:
                ended = {event.correlation for event in self.events.all(ReconcileCompleted)}
                ended |= {event.correlation for event in self.events.all(ReconcileFailed)}
                if all(event.correlation in ended for event in self.events.all(ReconcileTriggered)):
                    return
                await trio.sleep(0.01)

    async def instances(self, number: int) -> tuple[EndpointInfo, ...]:
        """Return what the instances are once there are so many, and all of them run."""
        with trio.fail_after(LIMIT):
            while True:
                infos = await self.describe()
                if len(infos) == number and all(info.pid for info in infos):
                    return infos
                await trio.sleep(0.01)

    async def all_deployed(self, names: Collection[str]) -> None:
        """Return once each of these instances has had a configuration, and no reconciliation is open."""
        for name in names:
            await self.wait(InstanceDeployed, partial(_is_of, name))
        await self.quiet()

    async def describe(self) -> tuple[EndpointInfo, ...]:
        """Ask every instance what it is."""
        return tuple([await endpoint.describe() for endpoint in self.serving.process.endpoints.value or ()])

    async def reloads(self) -> int:
        """Return how often the HAProxy processes were reloaded, as they count it themselves."""
        return sum(info.reloads for info in await self.describe())


def _is_of(name: str, event: InstanceDeployed) -> bool:
    return event.result.endpoint == name


@asynccontextmanager
async def controller(site: Site, binary: Path, *, on_exit: str = "stop", **options: Any) -> AsyncIterator[Running]:
    """Run the controller over *site* with *options*; HAProxy is stopped at the end unless *options* keep it."""
    options.setdefault("listen", "127.0.0.1:0")
    serve = ServeOptions(input=site.input(binary), state_dir=site.state, on_exit=on_exit, **options)
    events = EventLog()
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(partial(run_serve, serve, observe=events.take))
        yield Running(serving, events)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def serving_web(site: Site, binary: Path, **options: Any) -> AsyncIterator[Running]:
    """Run the controller over *site*, with an Ingress for `web.localhost` whose backend answers `one`, to its rest."""
    async with backend("one") as port:
        # All that is there is there from the start: HAProxy begins with it, and has not been reloaded.
        site.write_service("web", port)
        site.write_ingress("web", "web.localhost", "web")
        async with controller(site, binary, **options) as running:
            await running.serves(site, "web.localhost", "one")
            await running.quiet()
            yield running


class Traffic:
    """A client that never rests: one request after another, each on a new connection."""

    def __init__(self) -> None:
        self.answered = 0
        self.failures: list[str] = []
        self._answer = trio.Event()

    async def run(self, site: Site, host: str) -> None:
        """Send requests until cancelled; anything but 200 is a failure."""
        while True:
            try:
                status, body = await request(site.port, host)
            except (OSError, trio.BrokenResourceError, IndexError) as exc:
                self.failures.append(repr(exc))
            else:
                if status == 200:
                    self.answered += 1
                    self._answer.set()
                    self._answer = trio.Event()
                else:
                    self.failures.append(f"{status} {body[:60]}")

    async def wait_for(self, number: int) -> None:
        """Return after *number* more answers."""
        goal = self.answered + number
        with trio.fail_after(LIMIT):
            while self.answered < goal:
                await self._answer.wait()
