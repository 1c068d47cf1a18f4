"""Whatever certificates and keys a tenant writes: the tenant's own object is rejected, and nothing else changes."""

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haptic_trio.config.model import Duration
from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.validation_tests.fixtures import make_stores
from tests.attacks.inputs.credentials import armored, der_of, good_pair, malformed_certificates, malformed_pairs
from tests.attacks.inputs.shapes import sections
from tests.attacks.site import check, texts_of
from tests.bad_inputs.world import LIBRARIES, stores_of
from tests.gateway.objects import gateway_class, made
from tests.support.components.rendering import library_config
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service, tls_secret

pytestmark = pytest.mark.haproxy

ATTACKER: Final = "attacker"
VICTIM: Final = "victim"
PORT, OWN_PORT, CA_PORT = 20_443, 20_444, 20_445


def _listener(name: str, port: int, secret: str) -> dict[str, Any]:
    tls = {"certificateRefs": [{"name": secret}]}
    routes = {"namespaces": {"from": "All"}}
    return {
        "name": name,
        "port": port,
        "protocol": "HTTPS",
        "hostname": f"{name}.test",
        "tls": tls,
        "allowedRoutes": routes,
    }


def _gateway(name: str, *listeners: dict[str, Any], namespace: str = ATTACKER, **more: Any) -> Resource:
    spec = {"gatewayClassName": "haptic", "listeners": list(listeners), **more}
    return made("Gateway", name, namespace=namespace, spec=spec)


def _route(name: str, parent: str, *rules: dict[str, Any], namespace: str = ATTACKER) -> Resource:
    to = [{"name": "web", "port": 80}]
    own = list(rules) or [{"backendRefs": to}]
    return made("HTTPRoute", name, namespace=namespace, spec={"parentRefs": [{"name": parent}], "rules": own})


def _applications() -> Iterator[Resource]:
    for number, namespace in enumerate((VICTIM, ATTACKER)):
        for name in ("web", "secure"):
            yield service(name, namespace=namespace)
            yield endpoint_slice(name, endpoint(f"10.0.{number}.1"), ports=8080, namespace=namespace)


def cluster() -> list[Resource]:
    """Return the victim's objects; a shared Gateway, and a route to a Service of the attacker, are among them."""
    shared = {"allowedListeners": {"namespaces": {"from": "All"}}}
    far = {
        "matches": [{"path": {"type": "PathPrefix", "value": "/far"}}],
        "backendRefs": [{"name": "secure", "namespace": ATTACKER, "port": 80}],
    }
    near = {"backendRefs": [{"name": "web", "port": 80}]}
    grant = {
        "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": VICTIM}],
        "to": [{"group": "", "kind": "Service"}],
    }
    return [
        gateway_class(),
        *_applications(),
        tls_secret("pair", *good_pair("shop.victim.test"), namespace=VICTIM),
        ingress(
            "shop",
            rule("shop.victim.test", path("/", "web")),
            namespace=VICTIM,
            tls=[{"hosts": ["shop.victim.test"], "secretName": "pair"}],
        ),
        _gateway("shared", _listener("victim", PORT, "pair"), namespace=VICTIM, **shared),
        _route("shop", "shared", near, far, namespace=VICTIM),
        made("ReferenceGrant", "all", namespace=ATTACKER, spec=grant),
    ]


def _at_gateway(secret: Resource) -> list[Resource]:
    return [secret, _gateway("own", _listener("own", OWN_PORT, "pair")), _route("own", "own")]


def _at_listener_set(secret: Resource) -> list[Resource]:
    listeners = [_listener("same", PORT, "pair"), _listener("other", OWN_PORT, "pair")]
    parent = {"name": "shared", "namespace": VICTIM}
    return [secret, made("ListenerSet", "set", namespace=ATTACKER, spec={"parentRef": parent, "listeners": listeners})]


def _at_ingress(secret: Resource) -> list[Resource]:
    tls = [{"hosts": ["evil.attacker.test"], "secretName": "pair"}]
    return [secret, ingress("evil", rule("evil.attacker.test", path("/", "web")), namespace=ATTACKER, tls=tls)]


def _authorities(text: str) -> Resource:
    return made("ConfigMap", "ca", namespace=ATTACKER, version="v1", data={"ca.crt": text})


def _at_clients(text: str) -> list[Resource]:
    references = [{"group": "", "kind": "ConfigMap", "name": "ca"}]
    tls = {"frontend": {"default": {"validation": {"caCertificateRefs": references}}}}
    own = tls_secret("pair", *good_pair(), namespace=ATTACKER)
    return [_authorities(text), own, _gateway("own", _listener("own", CA_PORT, "pair"), tls=tls), _route("own", "own")]


def _at_policy(text: str) -> list[Resource]:
    references = [{"group": "", "kind": "ConfigMap", "name": "ca"}]
    target = [{"group": "", "kind": "Service", "name": "secure"}]
    validation = {"hostname": "in.test", "caCertificateRefs": references}
    spec = {"targetRefs": target, "validation": validation}
    return [_authorities(text), made("BackendTLSPolicy", "secure", namespace=ATTACKER, spec=spec)]


PAIRS: Final[Mapping[str, Callable[[Resource], list[Resource]]]] = {
    "Gateway": _at_gateway,
    "ListenerSet": _at_listener_set,
    "Ingress": _at_ingress,
}
CERTIFICATES: Final[Mapping[str, Callable[[str], list[Resource]]]] = {
    "clients of a Gateway": _at_clients,
    "BackendTLSPolicy": _at_policy,
}


class Site:
    """The victim's objects, and those of the attacker for one render each."""

    def __init__(self) -> None:
        config = library_config(*LIBRARIES, sslRedirect=True)
        patient = msgspec.structs.replace(config.templating, render_timeout=Duration(60.0))
        self._config = msgspec.structs.replace(config, templating=patient)
        self._stores = make_stores(self._config)
        self._renderer = Renderer(self._config)
        self._put(cluster())

    def _put(self, objects: list[Resource]) -> None:
        for one in objects:
            for store in stores_of(self._config, self._stores, one):
                store.upsert(one)

    def render(self, objects: list[Resource]) -> Rendered:
        self._put(objects)
        return self._renderer.render_here(self._stores)


@pytest.fixture(scope="module", params=[*PAIRS, *CERTIFICATES])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def site(place: str) -> Site:
    return Site()


@pytest.fixture(scope="module")
def benign(site: Site, place: str) -> dict[str, str]:
    """The victim's part of the output beside a benign value."""
    pair = good_pair()
    rendered = site.render(_objects(place, pair))
    assert rendered.rejections == ()
    return _of_victim(rendered)


def _objects(place: str, pair: tuple[str, str]) -> list[Resource]:
    if place in PAIRS:
        return PAIRS[place](tls_secret("pair", *pair, namespace=ATTACKER))
    return CERTIFICATES[place](pair[0])


def _of_victim(rendered: Rendered) -> dict[str, str]:
    """Return all files without the lines that name the attacker, and without files and sections of attackers."""
    found = {f"{name}\n": "\n".join(lines) for name, lines in sections(rendered.text).items()} | texts_of(rendered)
    return {
        name: "\n".join(line for line in text.split("\n") if line and not _is_attackers(line))
        for name, text in found.items()
        if not _is_attackers(name) and (name.endswith(("\n", ".lua")) or VICTIM in text)
    }


def _is_attackers(text: str) -> bool:
    return ATTACKER in text or str(OWN_PORT) in text or str(CA_PORT) in text


def _check(site: Site, place: str, benign: dict[str, str], objects: list[Resource], directory: Path) -> None:
    rendered = site.render(objects)

    assert {one.subject.namespace for one in rendered.rejections} <= {ATTACKER}, rendered.rejections
    assert {one.subject.kind for one in rendered.rejections} <= {"Ingress", "Secret"}, place
    found = _of_victim(rendered)
    assert {name: (text, benign.get(name)) for name, text in found.items() if text != benign.get(name)} == {}
    assert found.keys() == benign.keys()
    assert check(directory, rendered.text, texts_of(rendered)) == ""


def test_malformed_input_costs_its_owner_alone(site: Site, place: str, benign: dict[str, str], tmp_path: Path) -> None:
    only = {name: (text, "") for name, text in malformed_certificates().items()}
    for number, (name, pair) in enumerate((malformed_pairs() if place in PAIRS else only).items()):
        try:
            _check(site, place, benign, _objects(place, pair), tmp_path / str(number))
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


@pytest.mark.parametrize("field", ["tls.crt", "tls.key"])
@pytest.mark.parametrize("text", ["***", "QUJD*", "QQ", "", "\u00e4", "\ud800", "\0"])
def test_broken_base64_costs_its_owner_alone(
    site: Site, place: str, benign: dict[str, str], tmp_path: Path, field: str, text: str
) -> None:
    if place in CERTIFICATES:
        objects = CERTIFICATES[place](text)
    else:
        secret = tls_secret("pair", *good_pair(), namespace=ATTACKER)
        secret["data"][field] = text
        objects = PAIRS[place](secret)
    _check(site, place, benign, objects, tmp_path / "check")


def _changed(der: bytes, seed: int) -> bytes:
    """Return *der* with a few bytes changed, added, or removed."""
    chance, found = random.Random(seed), bytearray(der)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at, size = chance.randrange(len(found)), chance.randrange(9)
        match chance.randrange(4):
            case 0:
                found[at] = chance.randrange(256)
            case 1:
                found[at] ^= 1 << chance.randrange(8)
            case 2:
                found[at:at] = chance.randbytes(size)
            case _:
                del found[at : at + size]
    return bytes(found)


# Hypothesis shows the site, a fixture, when examples take long.
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    max_examples=settings.default.max_examples // 10 if settings.default else 10,
    deadline=None,
)
@given(seeds=st.tuples(*[st.integers(0, 2**32)] * 2), which=st.sampled_from(["certificate", "key", "both"]))
def test_any_der_costs_its_owner_alone(
    site: Site,
    place: str,
    benign: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    seeds: tuple[int, int],
    which: str,
) -> None:
    certificate, key = map(der_of, good_pair())
    certificate = certificate if which == "key" else _changed(certificate, seeds[0])
    key = key if which == "certificate" else _changed(key, seeds[1])
    pair = armored("CERTIFICATE", certificate), armored("EC PRIVATE KEY", key)
    _check(site, place, benign, _objects(place, pair), tmp_path_factory.mktemp("der") / "check")
