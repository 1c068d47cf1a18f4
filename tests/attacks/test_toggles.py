"""An attacker creates, changes, spoils and deletes objects again and again: the victim has what it had after each step.

Whatever the controller remembers of former versions (fragments, claims, good versions that are served instead), it
keeps nothing from older objects of another namespace, and in the end nothing is left.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, Final

import pytest
import trustme
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of
from haptic_trio.pipeline.render import Rendered
from tests.attacks.inputs.shapes import sections
from tests.attacks.site import backend_for, certificates_for, entries, texts_of
from tests.attacks.test_objects import IS_DEEP
from tests.bad_inputs.world import HASH, secret
from tests.gateway.objects import gateway_class, made
from tests.support.components.succession import Succession
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, ingress_class, path, rule, service, tls_secret

SITES = 100 if IS_DEEP else 3
STEPS = 200 if IS_DEEP else 60
LIBRARIES: Final = ("base", "ssl", "ingress", "nginx-annotations", "gateway")
VICTIM: Final = "victim"
ATTACKERS: Final = ("evil-a", "evil-b")
NAMES: Final = ("x", "y", "z")
HOSTS: Final = ("shop.test", "*.wild.test", "x.wild.test")
BELOW: Final = "other.wild.test"
"""A host that nobody names."""
PATHS: Final = ("/", "/a", "/a/b")
PORT: Final = 8_100
ALL: Final = {"namespaces": {"from": "All"}}
NGINX: Final = "nginx.ingress.kubernetes.io/"
ANNOTATIONS: Final[tuple[dict[str, str], ...]] = (
    {},
    {},
    {f"{NGINX}whitelist-source-range": "10.0.0.0/8"},
    {f"{NGINX}whitelist-source-range": "nonsense"},
    {f"{NGINX}canary": "true", f"{NGINX}canary-weight": "20"},
    {f"{NGINX}server-alias": "shop.test"},
    {f"{NGINX}auth-type": "basic", f"{NGINX}auth-secret": "users"},
    {f"{NGINX}auth-type": "basic", f"{NGINX}auth-secret": "users"},
    {f"{NGINX}proxy-ssl-secret": "victim/tls"},
    {"unknown.example/x": "1"},
)
AUTHORITY: Final = trustme.CA()


def pair(host: str) -> tuple[bytes, bytes]:
    issued = AUTHORITY.issue_cert(host, key_type=trustme.KeyType.ECDSA)
    return issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()


PAIRS: Final = {host: pair(host) for host in HOSTS}


def aged(one: Resource, day: int) -> Resource:
    one["metadata"]["creationTimestamp"] = f"2026-01-{day:02}T00:00:00Z"
    return one


def victim() -> Iterator[Resource]:
    """Yield the victim's objects; all are older than those of an attacker."""
    yield service("app", namespace=VICTIM)
    yield endpoint_slice("app", endpoint("10.0.0.1"), ports=8080, namespace=VICTIM)
    for number, (host, credentials) in enumerate(PAIRS.items()):
        yield tls_secret(f"tls{number}", *credentials, namespace=VICTIM, age=1)
        yield ingress(
            f"web{number}",
            rule(host, path("/", "app"), path("/a", "app", kind="Exact")),
            tls=[{"hosts": [host], "secretName": f"tls{number}"}],
            namespace=VICTIM,
            age=1,
        )
    listeners = [{"name": "http", "port": PORT, "protocol": "HTTP", "hostname": "shop.test"}]
    spec = {"gatewayClassName": "haptic", "listeners": listeners, "allowedListeners": ALL}
    yield aged(made("Gateway", "gw", namespace=VICTIM, spec=spec), 1)
    rules = [
        {"matches": [{"path": {"type": "PathPrefix", "value": "/a"}}], "backendRefs": [{"name": "app", "port": 80}]}
    ]
    yield aged(made("HTTPRoute", "web", namespace=VICTIM, spec={"parentRefs": [{"name": "gw"}], "rules": rules}), 1)


class Attacker:
    """Makes random objects that have names, hosts, paths and ports in common with each other and the victim's."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.objects: dict[ResourceRef, Resource] = {}

    def _happens(self, share: float) -> bool:
        return self._random.random() < share

    def write(self) -> Resource:
        """Return an object that is created, changed, spoiled, or created again with another age."""
        ingresses = [one for one in self.objects.values() if one["kind"] == "Ingress"]
        if ingresses and self._happens(0.2):
            return self._spoiled(self._random.choice(ingresses))
        kind = self._random.choice(
            (
                *(self._service, self._endpoints, self._ingress, self._ingress, self._secret, self._users),
                *(self._gateway, self._route, self._route, self._listener_set, self._grant),
            )
        )
        one = aged(kind(self._random.choice(ATTACKERS), self._random.choice(NAMES)), self._random.randint(2, 20))
        before = self.objects.get(ref_of(one))
        if before is not None and self._happens(0.5):
            one["metadata"]["creationTimestamp"] = before["metadata"]["creationTimestamp"]
        self.objects[ref_of(one)] = one
        return one

    def _spoiled(self, one: Resource) -> Resource:
        """Return a version of an Ingress that is rejected, so that its last good version is served."""
        found = {**one, "metadata": {**one["metadata"], "annotations": {"unknown.example/x": "1"}}}
        self.objects[ref_of(found)] = found
        return found

    def delete(self) -> list[Resource]:
        """Return what is deleted: an object, or sometimes a whole namespace."""
        ref = self._random.choice(list(self.objects))
        refs = [one for one in self.objects if one.namespace == ref.namespace] if self._happens(0.1) else [ref]
        return [self.objects.pop(one) for one in refs]

    def _service(self, namespace: str, name: str) -> Resource:
        return service(name, namespace=namespace)

    def _endpoints(self, namespace: str, name: str) -> Resource:
        addresses = [endpoint(f"10.1.0.{number}") for number in range(1, self._random.randint(2, 4))]
        return endpoint_slice(name, *addresses, ports=self._random.choice((8001, 8002)), namespace=namespace)

    def _ingress(self, namespace: str, name: str) -> Resource:
        random = self._random
        tls = [{"hosts": [random.choice(HOSTS)], "secretName": random.choice(NAMES)}] if self._happens(0.4) else []
        kind = random.choice(("Exact", "Prefix", "ImplementationSpecific"))
        one = path(random.choice((*PATHS, "/%61", "bad")), random.choice(NAMES), kind=kind)
        own: dict[str, Any] = {"namespace": namespace, "annotations": random.choice(ANNOTATIONS), "tls": tls}
        if self._happens(0.1):
            own["ingress_class"] = "other"
        return ingress(name, rule(random.choice((*HOSTS, "named.wild.test", None)), one), **own)

    def _secret(self, namespace: str, name: str) -> Resource:
        certificate, key = self._random.choice(list(PAIRS.values()))
        return tls_secret(name, b"rubbish" if self._happens(0.3) else certificate, key, namespace=namespace)

    def _users(self, namespace: str, _name: str) -> Resource:
        return secret("users", {"auth": f"joe:{HASH}"}, namespace=namespace)

    def _listener(self) -> dict[str, Any]:
        host = {"hostname": self._random.choice(HOSTS)} if self._happens(0.7) else {}
        return {"name": self._random.choice(NAMES), "port": PORT, "protocol": "HTTP", "allowedRoutes": ALL, **host}

    def _gateway(self, namespace: str, name: str) -> Resource:
        spec = {"gatewayClassName": "haptic", "listeners": [self._listener()], "allowedListeners": ALL}
        return made("Gateway", name, namespace=namespace, spec=spec)

    def _parent(self) -> dict[str, Any]:
        random = self._random
        if self._happens(0.4):
            return {"name": "gw", "namespace": VICTIM}
        kind = random.choice(("Gateway", "ListenerSet"))
        return {"kind": kind, "name": random.choice(NAMES), "namespace": random.choice(ATTACKERS)}

    def _route(self, namespace: str, name: str) -> Resource:
        random = self._random
        to = {"name": random.choice((*NAMES, "app")), "port": 80}
        if self._happens(0.3):
            to["namespace"] = random.choice((*ATTACKERS, VICTIM))
        where = {"type": random.choice(("Exact", "PathPrefix")), "value": random.choice((*PATHS, "/%61", "bad"))}
        rules: list[dict[str, Any]] = [{"matches": [{"path": where}], "backendRefs": [to]}]
        if self._happens(0.2):
            rules[0]["filters"] = [{"type": "RequestRedirect", "requestRedirect": {"hostname": "evil.test"}}]
        hosts = {"hostnames": [random.choice(HOSTS)]} if self._happens(0.7) else {}
        return made(
            "HTTPRoute", name, namespace=namespace, spec={"parentRefs": [self._parent()], "rules": rules, **hosts}
        )

    def _listener_set(self, namespace: str, name: str) -> Resource:
        parent = {key: value for key, value in self._parent().items() if key != "kind"}
        return made(
            "ListenerSet", name, namespace=namespace, spec={"parentRef": parent, "listeners": [self._listener()]}
        )

    def _grant(self, namespace: str, name: str) -> Resource:
        origin = {
            "group": "gateway.networking.k8s.io",
            "kind": "HTTPRoute",
            "namespace": self._random.choice(ATTACKERS),
        }
        return made(
            "ReferenceGrant",
            name,
            namespace=namespace,
            spec={"from": [origin], "to": [{"group": "", "kind": "Service"}]},
        )


def of_victim(rendered: Rendered) -> dict[str, Any]:
    """Return what HAProxy does for the victim: sections, files, entries of maps, and who serves its hosts."""
    files = texts_of(rendered)
    own: dict[str, Any] = {name: lines for name, lines in sections(rendered.text).items() if VICTIM in name}
    own |= {name: text for name, text in files.items() if VICTIM in name and name.endswith(".pem")}
    for name, text in files.items():
        if name.endswith(".map"):
            own |= {f"{name} {key}": value for key, value in entries(text).items() if VICTIM in f"{key} {value}"}
    for host in (*HOSTS[::2], BELOW):
        own |= {f"{host}{where}": backend_for(host, where, files) for where in ("/", "/a", "/other")}
        own[host] = certificates_for(host, files, [name for name in files if name.endswith("https.list")])
    own["sections"] = [name for name in sections(rendered.text) if VICTIM in name]
    own["rejected"] = [str(one) for one in rendered.rejections if one.subject.namespace == VICTIM]
    return own


@pytest.mark.slow
@settings(
    max_examples=SITES,
    deadline=None,
    # A smaller number is no simpler attack.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**32))
def test_the_victim_has_what_it_had_after_each_step_and_nothing_is_left_in_the_end(seed: int) -> None:
    random = Random(seed)
    attacker = Attacker(random)
    site = Succession(LIBRARIES, sslRedirect=True, gatewayAddresses=["127.0.0.1"])
    first = site.render(gateway_class(), ingress_class("haptic", "haptic-trio/ingress-controller"), *victim())
    wanted = of_victim(first)
    assert wanted["rejected"] == []

    is_away = False
    for _ in range(STEPS):
        written = []
        if random.random() < 0.15:
            # The victim's hosts are free for a while.
            is_away = not is_away
            for one in victim():
                if is_away:
                    site.delete(one)
                else:
                    written.append(one)
        if random.random() < 0.7 or not attacker.objects:
            written.append(attacker.write())
        else:
            for one in attacker.delete():
                site.delete(one)
        # HAProxy reads some versions only with those that follow them.
        rendered = site.render(*written, is_checked=random.random() < 0.7)
        if not is_away:
            found = of_victim(rendered)
            # Other listeners of its Gateway are those of ListenerSets.
            assert {name: found.get(name) for name in wanted} == wanted

    for one in attacker.objects.values():
        site.delete(one)
    last = site.render(*victim())
    assert last.rejections == ()
    assert {name: text.text for name, text in last.texts.items()} == {
        name: text.text for name, text in first.texts.items()
    }
    assert last.files == first.files
