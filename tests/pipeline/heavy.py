"""A pipeline over stores of which each step takes in and renders as little as possible."""

from base64 import b64encode
from pathlib import Path
from typing import Any

import msgspec
import trustme

from haptic_trio.channels import EventBuffer
from haptic_trio.config.model import Config
from haptic_trio.k8s.intake import Intake
from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.messages import Reason
from haptic_trio.pipeline.cycle import Pipeline, Prepared
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.render import Renderer
from haptic_trio.pipeline.validate import Validator
from tests.support.components.rendering import library_config
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, ingress_class, path, rule, service

NAMES = range(6)
RESTRICTED = {"nginx.ingress.kubernetes.io/whitelist-source-range": "10.0.0.0/8"}
NONSENSE = {"nginx.ingress.kubernetes.io/proxy-read-timeout": "nonsense"}
BROKEN = {"nginx.ingress.kubernetes.io/whitelist-source-range": "nonsense"}
STORES = {
    "Ingress": ("ingresses", "ingressesByHost", "ingressesByService", "ingressesByTlsSecret", "nginxIngressesByPath"),
    "Service": ("services",),
    "EndpointSlice": ("endpointSlices",),
    "IngressClass": ("ingressClasses",),
    "Secret": ("nginxAuthSecrets",),
}
SHARED = {
    f"nginx.ingress.kubernetes.io/{name}": value
    for name, value in {
        "backend-protocol": "HTTPS",
        "proxy-ssl-verify": "on",
        "proxy-ssl-name": "web.test",
        "proxy-ssl-secret": "default/authorities",
    }.items()
}
"""With these, all Ingresses register the same file."""
PASSWORD = {
    "nginx.ingress.kubernetes.io/auth-type": "basic",
    "nginx.ingress.kubernetes.io/auth-secret": "users",
}
"""With these, all Ingresses hash passwords."""
AUTHORITIES = [trustme.CA().cert_pem.bytes() for _ in range(2)]


def config() -> Config:
    """Return a configuration of which each render is compared with a complete one."""
    found = library_config(
        "base", "ssl", "ingress", "nginx-annotations", bindAddress="127.0.0.1", httpPort=1, httpsPort=2
    )
    return msgspec.structs.replace(found, validation=msgspec.structs.replace(found.validation, paranoia_every=1))


CONFIG = config()


def web(port: int, name: str = "web", **fields: Any) -> Resource:
    return service(name, {"name": "http", "port": port, "protocol": "TCP"}, **fields)


def authorities(number: int) -> Resource:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "authorities", "namespace": "default"},
        "type": "Opaque",
        "data": {"ca.crt": b64encode(AUTHORITIES[number]).decode()},
    }


def users(rounds: int = 1000) -> Resource:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "users", "namespace": "default"},
        "type": "Opaque",
        "data": {"auth": b64encode(f"joe:$5$rounds={rounds}$abcdefgh${'x' * 43}\n".encode()).decode()},
    }


def site(number: int, *, host: int | None = None, where: str = "/", **fields: Any) -> Resource:
    host_name = f"h{number if host is None else host}.test"
    return ingress(f"i{number}", rule(host_name, path(where, "web", "http")), age=number + 2, **fields)


def foreign(number: int, where: str = "/") -> Resource:
    """Return an older Ingress of another namespace, which has the path of a host."""
    rules = rule(f"h{number}.test", path(where, "web"))
    return ingress(f"f{number}", rules, namespace="other", age=1)


class Bench:
    """A pipeline over stores of which each step takes in and renders as little as possible."""

    def __init__(self) -> None:
        self.stores = Stores(
            (Store(name, watched.index_by) for name, watched in CONFIG.watched_resources.items()), Intake(1e-9)
        )
        renderer = Renderer(CONFIG)
        validator = Validator(Path("/none"), check_timeout=1)
        self.quarantine = Quarantine()
        self.pipeline = Pipeline(self.stores, renderer, validator, self.quarantine, EventBuffer())
        self.put(ingress_class("haptic", "haptic-trio/ingress-controller"), web(80))
        self.put(endpoint_slice("web", endpoint("10.0.0.1"), ports={"http": 8080}))

    def put(self, *resources: Resource) -> None:
        for resource in resources:
            for name in STORES[resource["kind"]]:
                self.stores[name].upsert(resource)

    def delete(self, resource: Resource) -> None:
        for name in STORES[resource["kind"]]:
            self.stores[name].delete(ref_of(resource))

    async def cycle(self) -> Prepared:
        """Run a cycle; its output is that of a complete render of what the stores show."""
        prepared = await self.pipeline.prepare("c", Reason.WAITED)
        assert prepared.rendered.differing == ()
        return prepared

    async def catch_up(self) -> Prepared:
        """Run cycles and steps until nothing waits."""
        prepared = await self.cycle()
        for _turn in range(200):
            if not self.pipeline.is_behind:
                return prepared
            if await self.pipeline.render_ahead():
                prepared = await self.cycle()
        raise AssertionError("changes wait for ever")

    async def take_in_heavy(self) -> tuple[Prepared, int]:
        """Run the cycle that takes in the heavy change that waits; return also how many steps ahead it took."""
        await self.cycle()
        steps = 1
        while not await self.pipeline.render_ahead():
            await self.cycle()
            steps += 1
        return await self.cycle(), steps

    def targets(self, prepared: Prepared) -> set[str]:
        """Return the backends that requests for the Ingresses are led to."""
        text = prepared.rendered.texts["maps/path-prefix.map"].text
        return {line.split()[-1] for line in text.splitlines() if line.startswith("h")}

    def port(self) -> int:
        """Return the port of the Service that readers see."""
        (found,) = self.stores["services"].get("default", "web")
        return int(found["spec"]["ports"][0]["port"])
