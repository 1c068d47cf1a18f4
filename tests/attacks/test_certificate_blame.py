"""A certificate that passes here and that HAProxy rejects, as with another level of security, costs its owner alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from haptic_trio.channels import EventBuffer
from haptic_trio.k8s.resource import Resource
from haptic_trio.messages import ConfigValidated
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.render import Renderer
from haptic_trio.pipeline.validate import Validator
from haptic_trio.validation_tests.fixtures import make_stores
from haptic_trio.x509.bundles import bundle_of
from tests.attacks.inputs.credentials import good_pair
from tests.bad_inputs.world import stores_of
from tests.gateway.objects import gateway_class, made
from tests.support.components.rendering import library_config
from tests.support.kubernetes import endpoint, endpoint_slice, service, tls_secret
from tests.support.processes.haproxy import haproxy_binary

__all__ = ["haproxy_binary"]

pytestmark = pytest.mark.haproxy

PORT: Final = 20_443
OWN_PORT: Final = 20_444


def _listener(host: str, port: int, *secrets: str) -> dict[str, Any]:
    hostname = {"hostname": host} if host else {}
    tls = {"certificateRefs": [{"name": name} for name in secrets]}
    return {"name": f"l-{port}-{len(host)}", "port": port, "protocol": "HTTPS", "tls": tls, **hostname}


def _cluster() -> Iterator[Resource]:
    yield gateway_class()
    listeners = {"allowedListeners": {"namespaces": {"from": "All"}}, "listeners": [_listener("a.test", PORT, "pair")]}
    yield made("Gateway", "shared", namespace="victim", spec={"gatewayClassName": "haptic", **listeners})
    yield tls_secret("pair", *good_pair("a.test"), namespace="victim")
    for namespace, host in (("victim", "a.test"), ("other", "b.test"), ("attacker", "c.test")):
        yield service("web", namespace=namespace)
        yield endpoint_slice("web", endpoint("10.0.0.1"), ports=80, namespace=namespace)
        parent = {"name": "shared"} if namespace == "victim" else {"name": "set", "kind": "ListenerSet"}
        rules = [{"backendRefs": [{"name": "web", "port": 80}]}]
        yield made("HTTPRoute", "web", namespace=namespace, spec={"parentRefs": [parent], "rules": rules})
        if namespace != "victim":
            yield tls_secret("pair", *good_pair(host), namespace=namespace)
    yield _listener_set("other", _listener("b.test", PORT, "pair"))


def _listener_set(namespace: str, *listeners: dict[str, Any]) -> Resource:
    parent = {"name": "shared", "namespace": "victim"}
    return made("ListenerSet", "set", namespace=namespace, spec={"parentRef": parent, "listeners": list(listeners)})


class Site:
    """A pipeline over the libraries, with a Gateway of the victim that others add listeners to."""

    def __init__(self, binary: Path) -> None:
        self.config = library_config("base", "ssl", "ingress", "gateway")
        self.stores = make_stores(self.config)
        self.quarantine = Quarantine()
        validator = Validator(binary, check_timeout=60.0)
        self._pipeline = Pipeline(self.stores, Renderer(self.config), validator, self.quarantine, EventBuffer())
        self._cycles = 0
        self.put(*_cluster())

    def put(self, *objects: Resource) -> None:
        self._cycles += 1
        for one in objects:
            one["metadata"]["resourceVersion"] = str(self._cycles)
            for store in stores_of(self.config, self.stores, one):
                store.upsert(one)

    async def run(self) -> ConfigValidated:
        return await self._pipeline.run(f"c{self._cycles}")

    @property
    def quarantined(self) -> dict[str, bool]:
        """Whether each quarantined object has a fallback."""
        return {str(one.ref): one.has_fallback for one in self.quarantine.objects}


def _lines(found: ConfigValidated, port: int) -> list[str]:
    text = found.generation.files[f"ssl/gateway-port::victim_shared_{port}.list"].content.decode()
    return [line for line in text.splitlines() if line.strip()]


@pytest.fixture
def bad(monkeypatch: pytest.MonkeyPatch) -> Resource:
    """A Secret whose key is not that of its certificate, while the reader of bundles takes it for a good one."""
    monkeypatch.setattr("haptic_trio.x509.bundles._find_fault", lambda *_blocks: "")
    chain, _ = good_pair("c.test")
    _, key = good_pair("d.test")
    assert bundle_of(chain, key, is_pair=True)
    return tls_secret("bad", chain, key, namespace="attacker")


@pytest.mark.parametrize(
    ("host", "port"), [("c.test", PORT), ("c.test", OWN_PORT), ("", PORT), ("", OWN_PORT)], ids=str
)
async def test_the_listener_set_is_quarantined_and_not_its_gateway(
    haproxy_binary: Path, bad: Resource, host: str, port: int
) -> None:
    site = Site(haproxy_binary)
    site.put(bad, _listener_set("attacker", _listener(host, port, "bad")))

    found = await site.run()

    assert site.quarantined == {"ListenerSet attacker/set": False}
    assert len(_lines(found, PORT)) == 2


async def test_the_last_good_certificate_of_a_listener_set_is_served(haproxy_binary: Path, bad: Resource) -> None:
    site = Site(haproxy_binary)
    site.put(_listener_set("attacker", _listener("c.test", PORT, "pair")))
    before = await site.run()
    assert site.quarantined == {}

    site.put(bad, _listener_set("attacker", _listener("c.test", PORT, "bad")))
    found = await site.run()

    assert site.quarantined == {"ListenerSet attacker/set": True}
    assert _lines(found, PORT) == _lines(before, PORT)
    site.put(_listener_set("attacker", _listener("c.test", PORT, "pair")))
    await site.run()
    assert site.quarantined == {}
