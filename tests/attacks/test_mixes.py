"""Routes and guards change by one command after the other: no request is let in by a mix of the two versions.

After each command, each of some requests must get what the former or the new configuration answers, or no service.
"""

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from ipaddress import ip_address, ip_network
from itertools import product
from random import Random
from typing import Any, Final
from urllib.parse import unquote

import pytest

from haptic_trio.haproxy.config.maps import MapUse, file_entries, form_of
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import FileKind, Generation, make_generation
from haptic_trio.haproxy.plan.operations import AddMapEntry, DeleteMapEntry, Operation, ReplaceMap, SetMapEntry
from haptic_trio.haproxy.plan.split import split_plan
from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered
from tests.attacks.test_objects import IS_DEEP
from tests.attacks.test_toggles import aged
from tests.bad_inputs.world import secret
from tests.gateway.objects import gateway, gateway_class, made
from tests.support.components.succession import Succession
from tests.support.kubernetes import ingress, ingress_class, path, rule, service

SEEDS: Final = range(100 if IS_DEEP else 2)
STEPS: Final = 12 if IS_DEEP else 8
LIBRARIES: Final = ("base", "ssl", "ingress", "nginx-annotations", "haptic-annotations", "gateway")
SPACE: Final = "shop"
HOSTS: Final = ("a.x.test", "b.x.test", "*.x.test", "")
PATHS: Final = ("/", "/a", "/a/b", "/c")
ASKED: Final = (("a.x.test", "b.x.test", "z.test"), (*PATHS, "/a/b/d", "/q"))
"""Hosts and paths of the requests."""
NETWORKS: Final = ("10.0.0.0/8", "10.1.0.0/16", "192.0.2.1", "0.0.0.0/0")
CLIENTS: Final = ("10.1.0.1", "10.2.0.1", "192.0.2.1", "198.51.100.1")
KEYS: Final = tuple(f"key-{number}-of-a-client" for number in range(3))
INGRESSES: Final = ("allow", "deny", "allow-deny", "plain", "key", "key-allow")
"""The guards of each."""
NGINX: Final = "nginx.ingress.kubernetes.io/"

Answer = tuple[str, ...] | None
"""The backend and what else happens to the request; None: it is not served."""
Request = tuple[str, ...]


class State:
    """Maps and backends of a process, and where requests go."""

    def __init__(self, generation: Generation) -> None:
        self._maps: dict[str, dict[str, str]] = {}
        for file in generation.files.values():
            if file.kind is FileKind.MAP:
                self._replace(file.path, file_entries(file.lines, form_of(MapUse.UNORDERED)))
        self._backends = {one.name: one for one in generation.config.sections if one.kind == "backend"}
        self._guards: dict[str, list[tuple[str, str]]] = {}

    def _replace(self, path: str, entries: Any) -> None:
        # Of equal keys, the first one is used.
        self._maps[path] = dict(reversed(list(entries)))

    def apply(self, operation: Operation) -> None:
        match operation:
            case AddMapEntry(path, key, value):
                assert key not in self._maps[path]
                self._maps[path][key] = value
            case SetMapEntry(path, key, value):
                assert key in self._maps[path]
                self._maps[path][key] = value
            case DeleteMapEntry(path, key):
                del self._maps[path][key]
            case ReplaceMap(path, entries):
                self._replace(path, entries)

    def _map(self, name: str) -> Mapping[str, str]:
        return self._maps[f"maps/{name}.map"]

    def _find(self, kind: str, scope: str, where: str) -> str | None:
        prefixes, key = self._map(f"{kind}-prefix"), f"{scope}|{where}/"
        longest = max((one for one in prefixes if key.startswith(one)), key=len, default="")
        return self._map(f"{kind}-exact").get(f"{scope}|{where}") or prefixes.get(longest)

    def _admit(self, backend: str, client: str, key: str) -> Answer:
        for kind, file in self._guards_of(backend):
            entries = self._maps[file]
            if kind == "key":
                is_admitted = key in entries
            else:
                is_admitted = any(ip_address(client) in ip_network(one) for one in entries) == (kind == "unless")
            if not is_admitted:
                return None
        return (backend,) if backend in self._backends else None

    def _guards_of(self, backend: str) -> list[tuple[str, str]]:
        if backend not in self._guards:
            found = self._guards[backend] = []
            section = self._backends.get(backend)
            for words in (line.words for line in section.directives) if section is not None else ():
                if words[:3] == ("http-request", "deny", "deny_status") and words[6:7] and "map_ip(" in words[6]:
                    found.append((words[4], words[6].partition("map_ip(")[2].rstrip(")")))
                if words[1:2] == ("set-var(txn.api_client)",):
                    found.append(("key", words[2].partition("map_str(")[2].rstrip(")")))
        return self._guards[backend]

    def of_ingress(self, host: str, where: str, client: str, key: str) -> Answer:
        """Return the answer to a request by the rules of Ingresses."""
        for scope in (host, f"*.{host.partition('.')[2]}", "*"):
            if backend := self._find("path", scope, where):
                return self._admit(backend, client, key)
        return None

    def of_route(self, host: str, where: str, header: str) -> Answer:
        """Return the answer to a request by the rules of HTTPRoutes."""
        (listener,) = set(self._map("gateway-listeners").values())
        labels = host.split(".")
        wider = ["*." + ".".join(labels[number:]) for number in range(1, len(labels))]
        for scope in (host, *wider, "*"):
            entry = self._find("gateway", f"{listener}|{scope}", where) or "?"
            target = entry if entry[0] != "?" else _choose(entry[1:], header)
            if target and target.startswith("="):
                effects = self._map("gateway-rules").get(target[1:])
                backend = unquote((effects or "").rpartition("b,1,")[2].partition(",")[0])
                return (backend, effects) if effects and backend in self._backends else None
            if target:
                return self._admit(target.partition(">")[0], "", "")
        return None


def _choose(candidates: str, header: str) -> str:
    for candidate in candidates.split(";") if candidates else ():
        conditions, _, target = candidate.partition(">")
        if all(one == f"h,x-h,{header}" for one in conditions.split("&") if one):
            return target.partition(">")[0]
    return ""


class Tenant:
    """Makes random objects of one namespace, in versions with parts in common."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.objects: dict[str, Resource] = {}

    def _happens(self, share: float) -> bool:
        return self._random.random() < share

    def _some(self, given: tuple[str, ...], most: int) -> list[str]:
        return self._random.sample(given, self._random.randint(1, most))

    def keys(self) -> Resource:
        return secret("keys", {one.replace("-", "_"): one for one in self._some(KEYS, 3)}, namespace=SPACE)

    def ingress(self, name: str) -> Resource:
        choose = self._random.choice
        rules = [
            rule(
                choose(HOSTS) or None,
                *(
                    path(one, choose(("app", "web")), kind=choose(("Prefix", "Prefix", "Exact")))
                    for one in self._some(PATHS, 2)
                ),
            )
            for _ in range(self._random.randint(1, 2))
        ]
        # Its backends stay, so most changes need no reload.
        rules.append(rule(f"{name}.test", path("/", "app"), path("/web", "web")))
        annotations = {f"{NGINX}{one}list-source-range": ",".join(self._some(NETWORKS, 2)) for one in ("white", "deny")}
        if "allow" not in name:
            del annotations[f"{NGINX}whitelist-source-range"]
        if "deny" not in name:
            del annotations[f"{NGINX}denylist-source-range"]
        if "key" in name:
            annotations["haptic-trio/api-key-secret"] = "keys"
        found = ingress(name, *rules, namespace=SPACE, annotations=annotations)
        former, kept = self.objects.get(name), self._random.choice(("spec", "metadata", "", "", ""))
        return {**found, kept: former[kept]} if former is not None and kept else found

    def route(self, name: str) -> Resource:
        former, rules = self.objects.get(name), list[Any]()
        if former is not None and self._happens(0.4):
            rules = self._random.sample(former["spec"]["rules"], len(former["spec"]["rules"]))[: 4 - self._happens(0.3)]
        while not rules or (len(rules) < 4 and self._happens(0.5)):
            rules.insert(self._random.randint(0, len(rules)), self._rule())
        hosts = self._random.choice(([], ["a.x.test"], ["*.x.test"], ["*.x.test", "a.x.test"]))
        spec = {"parentRefs": [{"name": "gw"}], "rules": rules, **({"hostnames": hosts} if hosts else {})}
        return aged(made("HTTPRoute", name, namespace=SPACE, spec=spec), int(name[-1]) + 1)

    def _rule(self) -> dict[str, Any]:
        matches: list[dict[str, Any]] = [
            {"path": {"type": self._random.choice(("PathPrefix", "PathPrefix", "Exact")), "value": one}}
            for one in self._some(PATHS, 2)
        ]
        if self._happens(0.5):
            matches[0]["headers"] = [{"name": "x-h", "value": self._random.choice("12")}]
        found: dict[str, Any] = {
            "matches": matches,
            "backendRefs": [{"name": self._random.choice(("app", "web")), "port": 80}],
        }
        if self._happens(0.7):
            number = str(self._random.randint(0, 99))
            found["filters"] = [
                {
                    "type": "RequestHeaderModifier",
                    "requestHeaderModifier": {"set": [{"name": "x-rule", "value": number}]},
                }
            ]
        return found


def succession() -> Succession:
    """Return a site with a Gateway and Services, whose backends stay."""
    found = Succession(LIBRARIES, bindAddress="127.0.0.1", gatewayAddresses=["127.0.0.1"])
    gateways = gateway("gw", {"name": "http", "port": 8100, "protocol": "HTTP"})
    gateways["metadata"]["namespace"] = SPACE
    rules = [
        {
            "matches": [{"path": {"type": "PathPrefix", "value": f"/{name}"}}],
            "backendRefs": [{"name": name, "port": 80}],
        }
        for name in ("app", "web")
    ]
    spec = {"parentRefs": [{"name": "gw"}], "hostnames": ["anchor.test"], "rules": rules}
    found.render(
        *(service(name, namespace=SPACE) for name in ("app", "web")),
        gateway_class(),
        ingress_class("haptic", "haptic-trio/ingress-controller", default=True),
        gateways,
        aged(made("HTTPRoute", "anchor", namespace=SPACE, spec=spec), 1),
    )
    return found


def generation_of(rendered: Rendered) -> Generation:
    assert rendered.rejections == ()
    return make_generation(parse_config(rendered.text), list(rendered.files.values()))


def faults(
    versions: list[Generation], requests: list[Request], ask: Callable[..., Answer]
) -> Iterator[tuple[Request, Operation]]:
    """Yield each request that a mix of the first and the last version answers as none of them, with the operation."""
    states = [State(one) for one in versions]
    known = [{None, *(ask(state, *one) for state in states)} for one in requests]
    for operation in split_plan(versions[0], versions[-1]).operations:
        states[0].apply(operation)
        for request, answers in zip(requests, known, strict=True):
            if ask(states[0], *request) not in answers:
                yield request, operation


@pytest.mark.parametrize("seed", SEEDS)
def test_no_mix_of_two_versions_of_ingresses_admits_a_request(seed: int) -> None:
    random, site = Random(seed), succession()
    tenant = Tenant(random)
    tenant.objects = {name: tenant.ingress(name) for name in INGRESSES}
    running = generation_of(site.render(tenant.keys(), *tenant.objects.values()))
    digests = [sha256(key.encode()).hexdigest().upper() for key in (KEYS[0], KEYS[1], "")]
    requests: list[Request] = [*product(*ASKED, CLIENTS, digests)]
    is_by_key = 0
    for _ in range(STEPS):
        changed = [tenant.ingress(name) for name in random.sample(INGRESSES, random.randint(1, 2))]
        tenant.objects |= {one["metadata"]["name"]: one for one in changed}
        desired = generation_of(site.render(*changed, *([tenant.keys()] if random.random() < 0.3 else [])))
        assert [*faults([running, desired], requests, State.of_ingress)] == []
        is_by_key += sum(State(desired).of_ingress(*one) is not None for one in requests if one[3] == digests[0])
        running = desired
    assert is_by_key


@pytest.mark.parametrize("seed", SEEDS)
def test_no_mix_of_two_versions_of_routes_leads_a_request_elsewhere(seed: int) -> None:
    random, site = Random(seed), succession()
    tenant = Tenant(random)
    requests: list[Request] = [*product(*ASKED, ("1", "2", ""))]

    def write(routes: Mapping[str, Resource | None]) -> Generation:
        for name, one in routes.items():
            if one is not None:
                site.render(one)
            else:
                site.delete(made("HTTPRoute", name, namespace=SPACE))
        return generation_of(site.render())

    for _ in range(STEPS):
        names = random.sample(("r0", "r1", "r2"), random.randint(1, 2))
        new = {name: None if name in tenant.objects and random.random() < 0.3 else tenant.route(name) for name in names}
        # Nothing says which of two objects changes first.
        versions = [write({})]
        if len(names) == 2:
            versions.append(write({names[0]: new[names[0]]}))
            versions.append(write({names[0]: tenant.objects.get(names[0]), names[1]: new[names[1]]}))
        versions.append(write(new))
        assert split_plan(versions[0], versions[-1]).reasons == ()
        assert [*faults(versions, requests, State.of_route)] == []
        tenant.objects |= {name: one for name, one in new.items() if one is not None}
        tenant.objects = {name: one for name, one in tenant.objects.items() if new.get(name, one) is not None}
