"""Good objects, bad ones beside them, and what the real HAProxy makes of all of that."""

import base64
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio

from haptic_trio.channels import EventBuffer
from haptic_trio.config.model import Config, Duration
from haptic_trio.dataplane.binary import find_haproxy
from haptic_trio.gateway.routes.kinds import ROUTE_KINDS
from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of
from haptic_trio.k8s.selectors import parse_field_selector
from haptic_trio.k8s.store import Store
from haptic_trio.messages import ConfigValidated
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.render import Renderer
from haptic_trio.pipeline.validate import Validator
from haptic_trio.status.gateway_conditions import route_parents
from haptic_trio.status.kubernetes_events import event_of
from haptic_trio.status.object_events import quarantined, warned
from haptic_trio.status.writer import find_object
from haptic_trio.validation_tests.fixtures import make_stores
from tests.bad_inputs.vocabulary import foreign_syntax
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, made, plural_of, route
from tests.gateway.objects import rule as route_rule
from tests.support.components.rendering import library_config
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, meta, path, rule, service
from tests.support.processes.ports import free_port
from tests.support.traffic.proxy import running
from tests.support.traffic.servers import Answer, ask, serving

LIBRARIES = (
    "base",
    "ssl",
    "ingress",
    "nginx-annotations",
    "haproxy-org-annotations",
    "haproxy-ingress-annotations",
    "gateway",
)
HASH = "$5$abcdefgh$gruCpC7VkOTspMQTTSAR8mtlO9Upms.fwqE5y16JVM."
NGINX, ORG, JCM = "nginx.ingress.kubernetes.io", "haproxy.org", "haproxy-ingress.github.io"
"""Prefixes of annotations."""
CANARY = "injected"
"""Stands in bad values where a line, a header or a backend of theirs would be."""
CHECK_LIMIT = 60.0
RENDER_LIMIT = 60.0


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A bad input: what it is, and what becomes of it."""

    number: int
    """In the list of bad inputs; see docs/bad-inputs.md."""
    name: str
    objects: tuple[Resource, ...]
    rejected: tuple[str, ...] = ()
    """What is quarantined, such as `Ingress default/evil`; nothing else may be."""
    warnings: tuple[str, ...] = ()
    """Expected reasons of warnings to owners."""
    hidden: str = ""
    """Text that must appear neither in the output nor in any message."""

    def __str__(self) -> str:
        return f"{self.number:02}-{self.name}"

    def under_names_of_its_own(self, number: int) -> "Case":
        """Return the same with Ingresses and routes that other cases do not have as well."""

        def renamed(one: Resource) -> Resource:
            if one["kind"] not in ("Ingress", "HTTPRoute") or one["metadata"]["name"] != "evil":
                return one
            return {**one, "metadata": {**one["metadata"], "name": f"evil-{number}"}}

        return msgspec.structs.replace(
            self,
            objects=tuple(map(renamed, self.objects)),
            rejected=tuple(
                f"{ref}-{number}" if ref in ("Ingress default/evil", "HTTPRoute web/evil") else ref
                for ref in self.rejected
            ),
        )


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One cycle."""

    valid: ConfigValidated
    held: Mapping[str, str]
    """Why objects are quarantined."""
    warnings: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return haproxy.cfg."""
        return self.valid.generation.config.text

    @property
    def files(self) -> dict[str, str]:
        """Return the other files, by path."""
        return {
            path: file.content.decode("utf-8", "surrogateescape") for path, file in self.valid.generation.files.items()
        }


class World:
    """All libraries over objects that come and go."""

    def __init__(self, directory: Path, stack: ExitStack, *others: Resource) -> None:
        """Render everything once; *others* are there from the start."""
        self.directory = directory
        self.ports = {name: free_port() for name in ("http", "https", "gateway")}
        config = library_config(
            *LIBRARIES, bindAddress="127.0.0.1", httpPort=self.ports["http"], httpsPort=self.ports["https"]
        )
        # The machine may be busy.
        patient = msgspec.structs.replace(config.templating, render_timeout=Duration(RENDER_LIMIT))
        self.config = msgspec.structs.replace(config, templating=patient)
        self.stores = make_stores(self.config)
        self.quarantine = Quarantine()
        validator = Validator(find_haproxy(), check_timeout=CHECK_LIMIT, scratch=directory)
        self.pipeline = Pipeline(self.stores, Renderer(self.config), validator, self.quarantine, EventBuffer())
        self.server = stack.enter_context(serving("good"))["good"]
        self.put(*self.good(), *others)
        self.baseline = trio.run(self.cycle)

    def good(self) -> list[Resource]:
        """Return the good objects that must be served in every case."""
        to_server = [endpoint("127.0.0.1")]
        app = endpoint_slice("app", *to_server, ports=self.server, namespace="web")
        return [
            *(ingress("good", rule("good.example.com", path("/", "good"))), service("good")),
            endpoint_slice("good", *to_server, ports=self.server),
            gateway_class(),
            gateway("gw", {"name": "http", "port": self.ports["gateway"], "protocol": "HTTP"}),
            *(service("app", namespace="web"), app),
            route("good", route_rule("/"), hostnames=["good.test"]),
            *(secret("users", {"auth": f"joe:{HASH}"}), secret("hashes", {"joe": HASH})),
        ]

    def put(self, *objects: Resource) -> None:
        """Add or replace objects."""
        for one in objects:
            for store in stores_of(self.config, self.stores, one):
                store.upsert(one)

    def remove(self, *objects: Resource) -> None:
        """Take objects out."""
        for one in objects:
            for store in stores_of(self.config, self.stores, one):
                if store.by_ref(ref_of(one)) is not None:
                    store.delete(ref_of(one))

    async def cycle(self) -> Outcome:
        """Render, parse, have the real HAProxy check; raises if that leads to nothing that could be deployed."""
        valid = await self.pipeline.run("cycle")
        return Outcome(
            valid=valid,
            held={str(held.ref): str(held.problem) for held in self.quarantine.objects},
            warnings=tuple(map(str, self.quarantine.warnings)),
        )

    @contextmanager
    def beside(self, *objects: Resource) -> Iterator[None]:
        """Have *objects* beside the good ones while the block runs."""
        self.put(*objects)
        try:
            yield
        finally:
            self.remove(*objects)
            self.put(*self.good())

    @contextmanager
    def serving(self, outcome: Outcome) -> Iterator[None]:
        """Have a real HAProxy serve what came out."""
        with running(self.directory, outcome.text, outcome.files, port=self.ports["http"]):
            yield

    def ask(self, host: str, where: str = "/", *, port: str = "http") -> Answer:
        """Send a request."""
        return ask(self.ports[port], host, where)

    def check_good(self) -> None:
        """See that what is good is served as it was, with nothing added to requests or answers."""
        for host, port in (("good.example.com", "http"), ("good.test", "gateway")):
            answer = self.ask(host, port=port)
            assert answer.status == 200, host
            assert answer.body.startswith("good\n")
            assert CANARY not in repr(answer)

    async def check(self, case: Case) -> Outcome:
        """See that *case* does what it should, and nothing more."""
        with self.beside(*case.objects):
            outcome = await self.cycle()
            self.check_outcome(outcome, (case,))
            self.check_reported(outcome, case)
        return outcome

    def check_outcome(self, outcome: Outcome, cases: tuple[Case, ...]) -> None:
        """Check the rejected objects, that the rest is served, and that data wrote no syntax into the output."""
        rejected = sorted(ref for case in cases for ref in case.rejected)
        assert sorted(outcome.held) == rejected, outcome.held
        assert foreign_syntax(outcome.text) == []
        lines = set(outcome.text.splitlines())
        assert set(self.baseline.text.splitlines()) <= lines
        for file, content in self.baseline.files.items():
            kept = set(outcome.files[file].splitlines())
            assert set(content.splitlines()) <= kept, file
        for case in cases:
            assert not case.hidden or case.hidden not in outcome.text + "".join(outcome.files.values())

    def check_reported(self, outcome: Outcome, case: Case) -> None:
        """Check that owners get the reasons in Kubernetes Events that an API server accepts."""
        notices = []
        for held in self.quarantine.objects:
            resource = find_object(self.stores, ResourceRef(held.ref.kind, held.ref.namespace, held.ref.name))
            assert resource is not None
            notices.append(quarantined(resource, held))
        for warning in self.quarantine.warnings:
            ref = ResourceRef(warning.subject.kind, warning.subject.namespace, warning.subject.name)
            resource = find_object(self.stores, ref)
            assert resource is not None
            notices.append(warned(resource, warning))
        for notice in notices:
            event = event_of(notice, instance="me", now="now")
            assert 0 < len(event["note"].encode()) <= 1024
            assert not case.hidden or case.hidden not in repr(event)
        for held in self.quarantine.objects:
            if held.ref.kind == "HTTPRoute":
                assert not self.is_accepted(held.ref)
        assert sorted({warning.reason for warning in self.quarantine.warnings}) == sorted(set(case.warnings)), (
            outcome.warnings
        )

    def is_accepted(self, ref: ResourceRef) -> bool:
        """Whether the conditions of a route say that it is served."""
        found = find_object(self.stores, ref)
        assert found is not None
        parents = route_parents(found, ROUTE_KINDS[ref.kind], self.stores, CONTROLLER)
        return all(
            condition["status"] == "True"
            for parent in parents
            for condition in parent["conditions"]
            if condition["type"] == "Accepted"
        )


def stores_of(config: Config, stores: Mapping[str, Store], one: Resource) -> Iterator[Store]:
    """Yield the stores that would have *one* in them."""
    for name, watched in config.watched_resources.items():
        if (watched.api_version, watched.resources) != (one["apiVersion"], plural_of_any(one)):
            continue
        if not watched.field_selector or parse_field_selector(watched.field_selector).matches(one):
            yield stores[name]


def plural_of_any(one: Resource) -> str:
    """Return the plural of the kind of *one*."""
    known = {"Ingress": "ingresses", "IngressClass": "ingressclasses", "ReferenceGrant": "referencegrants"}
    return known.get(str(one["kind"]), plural_of(one))


def secret(name: str, data: Mapping[str, str | bytes], kind: str = "Opaque", namespace: str = "default") -> Resource:
    """Return a Secret with *data*, not encoded yet."""
    encoded = {
        key: base64.b64encode(value.encode() if isinstance(value, str) else value).decode()
        for key, value in data.items()
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": kind,
        "metadata": meta(name, namespace),
        "data": encoded,
    }


def evil(*paths: dict[str, Any], host: str = "evil.example.com", name: str = "evil", **more: Any) -> Resource:
    """Return an Ingress that wants to be more."""
    return ingress(name, rule(host, *(paths or (path("/", "good"),))), **more)


def annotated(prefix: str, name: str = "evil", **values: str) -> Resource:
    """Return an Ingress with annotations below *prefix*; `_` in names stands for `-`."""
    annotations = {f"{prefix}/{key.replace('_', '-')}": value for key, value in values.items()}
    return evil(name=name, host=f"{name}.example.com", annotations=annotations)


def evil_route(*rules: dict[str, Any], name: str = "evil", **fields: Any) -> Resource:
    """Return an HTTPRoute that wants to be more."""
    return route(name, *(rules or (route_rule("/"),)), **{"hostnames": [f"{name}.test"], **fields})


def filtered(kind: str, field: str, value: Any) -> Resource:
    """Return an HTTPRoute with one filter."""
    return evil_route(route_rule("/", filters=[{"type": kind, field: value}]))


__all__ = ["Case", "Outcome", "World", "annotated", "evil", "evil_route", "filtered", "made", "secret"]
