"""A change that is tried: what would be rejected for it is found, and nothing else learns of it."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haptic_trio.channels import EventBuffer
from haptic_trio.config.load import load_config
from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of
from haptic_trio.messages import ConfigValidated
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.render import Renderer
from haptic_trio.pipeline.review.dry_run import DryRun, DryRuns
from haptic_trio.pipeline.review.dry_run_object import DryRunError
from haptic_trio.pipeline.validate import Validator
from tests.support.components.controller import accepting_binary
from tests.support.components.pipeline import Bench, stores_of
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service

pytestmark = pytest.mark.haproxy
STORES = {
    "EndpointSlice": ("endpointSlices",),
    "Ingress": ("ingresses", "ingressesByService", "ingressesByTlsSecret"),
    "Service": ("services",),
}


def configured(fields: dict[str, Any]) -> Resource:
    """Return a ConfigMap with the libraries for Ingresses, and *fields*."""
    config = {"templating": {"libraries": ["base", "ingress"], "extraContext": {"httpPort": 18080}}, **fields}
    metadata = {"name": "haptic-trio", "namespace": "default", "resourceVersion": "1"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config": json.dumps(config)}}


class Site:
    """The pipeline of the shipped libraries, and dry runs on it."""

    def __init__(self, binary: Path, scratch: Path, **fields: Any) -> None:
        config = load_config(configured(fields), None).config
        self.stores = stores_of(config)
        self.renderer = Renderer(config)
        validator = Validator(binary, check_timeout=60.0, scratch=scratch)
        self.quarantine = Quarantine()
        self.pipeline = Pipeline(self.stores, self.renderer, validator, self.quarantine, EventBuffer())
        self.dry_runs = DryRuns(
            self.stores,
            self.renderer,
            validator,
            self.quarantine,
            pipeline=self.pipeline,
            binary=binary,
            scratch=scratch,
        )
        self.put(service("web"), endpoint_slice("web", endpoint("127.0.0.1"), ports=80))

    def put(self, *resources: Resource) -> None:
        for resource in resources:
            for name in self.stores_for(resource["kind"]):
                self.stores[name].upsert(resource)

    def stores_for(self, kind: str) -> tuple[str, ...]:
        return tuple(name for name in STORES[kind] if name in self.stores)

    async def run(self) -> ConfigValidated:
        return await self.pipeline.run("c")

    async def try_out(self, resource: Resource, ref: ResourceRef | None = None) -> DryRun:
        return await self._try(ref_of(resource), resource)

    async def try_without(self, resource: Resource) -> DryRun:
        return await self._try(ref_of(resource), None)

    async def _try(self, ref: ResourceRef, resource: Resource | None) -> DryRun:
        replacements = {name: {ref: resource} for name in self.stores_for(ref.kind)}
        return await self.dry_runs.run(replacements, limit=10.0)


@pytest.fixture
def site(haproxy_binary: Path, tmp_path: Path) -> Site:
    return Site(haproxy_binary, tmp_path)


def web(name: str, host: str = "", text: str = "/", *, age: int = 1, kind: str = "Prefix", **more: Any) -> Resource:
    return ingress(name, rule(host or f"{name}.test", path(text, "web", kind=kind)), age=age, **more)


async def test_a_good_object_has_no_faults(site: Site) -> None:
    site.put(web("one"))
    await site.run()

    assert await site.try_out(web("two")) == DryRun()


async def test_an_object_that_cannot_be_rendered_is_at_fault(site: Site) -> None:
    site.put(web("one"))
    await site.run()

    found = await site.try_out(web("two", text="/a b", kind="Exact"))

    assert {fault.subject.name for fault in found.faults if fault.subject} == {"two"}
    assert {fault.phase for fault in found.faults} == {"render"}
    assert not any(fault.is_known for fault in found.faults)


async def test_nothing_is_left_of_what_was_tried(site: Site) -> None:
    site.put(web("one"))
    first = await site.run()
    rendered = site.renderer._serial

    await site.try_out(web("two"))
    await site.try_out(web("two", text="/a b", kind="Exact"))
    await site.try_without(web("one"))
    again = await site.run()

    assert again.generation.id == first.generation.id
    assert site.renderer._serial == rendered + 1
    assert site.quarantine.objects == ()
    assert "two" not in again.generation.text
    assert [ref_of(each).name for each in site.stores["ingresses"].list()] == ["one"]


async def test_changes_that_come_while_it_is_tried_are_rendered_by_the_next_cycle(site: Site) -> None:
    site.put(web("one"))
    await site.run()
    site.put(web("three"))

    await site.try_out(web("two"))
    after = await site.run()

    text = "".join(file.content.decode() for file in after.generation.files.values())
    assert "three.test" in text
    assert "two.test" not in text


async def test_what_others_have_broken_before_counts_for_nothing(site: Site) -> None:
    site.put(web("one"), web("broken", text="/a b", kind="Exact"))
    await site.run()

    found = await site.try_out(web("two"))

    assert all(fault.is_known for fault in found.faults)
    assert found.unchecked == ""


async def test_another_fault_of_a_neighbour_that_is_quarantined_already_counts_for_nothing(
    haproxy_binary: Path, tmp_path: Path
) -> None:
    templating = {"libraries": ["base", "ssl", "ingress", "nginx-annotations"], "extraContext": {"httpPort": 18080}}
    site = Site(haproxy_binary, tmp_path, templating=templating)
    annotations = {"nginx.ingress.kubernetes.io/auth-tls-secret": "default/absent"}
    site.put(ingress("broken", rule("broken.test", path("/", "later")), annotations=annotations))
    await site.run()
    assert [held.ref.name for held in site.quarantine.objects] == ["broken"]

    found = await site.try_out(service("later"))

    assert len(found.faults) > 1, "the backend of the Service fails as well"
    assert all(fault.is_known for fault in found.faults)

    found = await site.try_out(web("broken", text="/a b", kind="Exact"))

    assert not all(fault.is_known for fault in found.faults), "the object itself has a new fault"


async def test_an_object_whose_neighbour_breaks_by_it_is_at_fault_for_that(site: Site) -> None:
    site.put(web("one"))
    await site.run()

    found = await site.try_out(service("web", type="ExternalName"))

    (fault,) = found.faults
    assert fault.subject is not None
    assert fault.subject.name == "web"
    assert "ExternalName" in fault.problem.message


PATTERNS = (
    "{% each service in resources.services %}\nbackend {{ ident(service.metadata.name) }}\n"
    '    http-request deny if { path -m reg {{ service | dig("spec.pattern", "x") | word }} }\n{% endeach %}\n'
)


def with_snippet(binary: Path, scratch: Path, name: str, template: str) -> Site:
    return Site(binary, scratch, templateSnippets={name: {"template": template, "priority": 900}})


async def test_what_haproxy_alone_rejects_is_found_with_the_object_behind_it(
    haproxy_binary: Path, tmp_path: Path
) -> None:
    site = with_snippet(haproxy_binary, tmp_path, "backends-patterns", PATTERNS)
    await site.run()

    found = await site.try_out(service("two", pattern="(["))

    (fault,) = found.faults
    assert fault.phase == "check"
    assert fault.subject is not None
    assert fault.subject.name == "two"
    assert fault.problem.line


async def test_what_haproxy_has_not_rejected_yet_of_others_is_not_blamed_on_this_one(
    haproxy_binary: Path, tmp_path: Path
) -> None:
    site = with_snippet(haproxy_binary, tmp_path, "backends-patterns", PATTERNS)
    site.put(service("broken", pattern="(["))
    # Phase 2 runs in parallel and has not checked this configuration yet.
    await site.pipeline.prepare("c")

    found = await site.try_out(service("two", pattern="x"))

    assert found.faults == ()
    assert "rejects the present configuration" in found.unchecked


async def test_what_an_object_would_put_into_the_section_global_is_not_run(
    haproxy_binary: Path, tmp_path: Path
) -> None:
    template = "{% each service in resources.services %}\n    # {{ service.metadata.name }}\n{% endeach %}\n"
    site = with_snippet(haproxy_binary, tmp_path, "global-names", template)
    await site.run()

    found = await site.try_out(service("two"))

    assert found.faults == ()
    assert "`global`" in found.unchecked


async def test_what_would_take_haproxy_much_memory_is_not_believed(haproxy_binary: Path, tmp_path: Path) -> None:
    template = (
        "{% each service in resources.services %}\nring {{ ident(service.metadata.name) }}\n"
        '    size {{ service | dig("spec.bytes", 65536) | integer }}\n{% endeach %}\n'
    )
    site = with_snippet(haproxy_binary, tmp_path, "backends-rings", template)
    await site.run()

    assert await site.try_out(service("two", bytes=1 << 20)) == DryRun()
    found = await site.try_out(service("two", bytes=1 << 30))

    assert found.faults == ()
    assert "more than 512 MiB of memory" in found.unchecked


# HAProxy dies of `-u` without a number; phase 1 does not judge lines inside `.if`.
CRASHING = """\
{% each service in resources.services if service | dig("spec.crashes", false) %}
.if 1
    http-request deny if { path -u }
.endif
{% endeach %}
"""


@pytest.mark.parametrize("is_checked", [True, False])
async def test_an_object_on_which_haproxy_crashes_is_at_fault(
    haproxy_binary: Path, tmp_path: Path, is_checked: bool
) -> None:
    site = with_snippet(haproxy_binary, tmp_path, "frontend-rules-crash", CRASHING)
    await (site.run() if is_checked else site.pipeline.prepare("c"))

    found = await site.try_out(service("two", crashes=True))

    [fault] = found.faults
    assert (fault.phase, str(fault.subject)) == ("check", "Service default/two")
    assert fault.problem.message == "HAProxy crashes on it (SIGSEGV)"


async def test_an_object_beside_one_on_which_haproxy_crashes_is_not_at_fault(
    haproxy_binary: Path, tmp_path: Path
) -> None:
    site = with_snippet(haproxy_binary, tmp_path, "frontend-rules-crash", CRASHING)
    site.put(service("one", crashes=True))
    await site.pipeline.prepare("c")

    found = await site.try_out(service("two", crashes=False))

    assert found.faults == ()


async def test_what_two_objects_cannot_both_have_is_the_fault_of_the_one_that_comes(
    haproxy_binary: Path, tmp_path: Path
) -> None:
    template = (
        "{% each service in resources.services %}\n"
        'backend {{ service | dig("spec.as", "web") | name }}\n{% endeach %}\n'
    )
    site = with_snippet(haproxy_binary, tmp_path, "backends-same", template)
    await site.run()

    found = await site.try_out(service("another", **{"as": "web"}))

    assert {fault.phase for fault in found.faults} == {"parse"}
    assert found.faults[0].problem.message


async def test_owner_of_an_object_without_effect_gets_a_warning(site: Site) -> None:
    site.put(web("one", "shop.test", age=1))
    await site.run()
    site.put(service("other"), endpoint_slice("other", endpoint("127.0.0.1"), ports=80))
    other = ingress("two", rule("shop.test", path("/", "other")), age=2)

    found = await site.try_out(other)

    (warning,) = found.warnings
    assert warning.subject.name == "two"
    assert "shop.test" in warning.message
    assert "default/one" in warning.message


async def test_nothing_can_be_said_before_the_first_render(site: Site) -> None:
    with pytest.raises(DryRunError):
        await site.try_out(web("one"))


async def test_a_cycle_waits_for_one_dry_run_and_not_for_all_of_them(site: Site) -> None:
    site.put(web("one"))
    await site.run()
    order: list[str] = []

    async def note(name: str) -> None:
        await site.try_out(web(name))
        order.append(name)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(note, f"try-{number}")
            await trio.testing.wait_all_tasks_blocked()
            await site.run()
            order.append("cycle")

    assert order.index("cycle") <= 2


NAMES = st.sampled_from(["a", "b", "c"])
SPECS = st.fixed_dictionaries({
    "balance": st.sampled_from(["roundrobin", "leastconn", "two words", ""]),
    "group": st.sampled_from(["", "one", "two"]),
})  # fmt: skip
TEMPLATE = """\
global
    maxconn 10
# {{ resources.services.list() | length }}
defaults
    mode http
{% each service in resources.services as "map" %}
{% if service.spec.group %}
# {{ files.map(service.spec.group ~ ".map", service.metadata.name ~ " x\n") }}
{% endif %}
{% endeach %}
{% each service in resources.services by ["spec.group"] %}
backend {{ ident(service.metadata.name) }}
    balance {{ service.spec.balance | name }}
{% for other in resources.services.get(service.metadata.namespace, "c") %}
    # {{ other.spec.group | word }}
{% endfor %}
{% endeach %}
"""


@given(
    there=st.dictionaries(NAMES, SPECS, max_size=3),
    tried=st.lists(st.tuples(NAMES, st.none() | SPECS), min_size=1, max_size=5),
)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_after_any_dry_runs_the_next_render_is_the_same_as_without_them(
    there: dict[str, Resource], tried: list[tuple[str, Resource | None]], tmp_path: Path
) -> None:
    async def check() -> None:
        bench, fresh = Bench(accepting_binary(), TEMPLATE), Bench(accepting_binary(), TEMPLATE)
        for one in (bench, fresh):
            one.put(*(service(name, **spec) for name, spec in there.items()))
        await bench.run()
        dry_runs = bench.dry_runs(tmp_path)
        for name, spec in tried:
            resource = service(name, **spec) if spec is not None else None
            await dry_runs.run({"services": {ref_of(service(name)): resource}}, limit=10.0)
        # Something else changes, so that not all is reused.
        for one in (bench, fresh):
            one.put(service("z", balance="first", group=""))
        mine, wanted = await bench.run(), await fresh.run()
        assert mine.generation.text == wanted.generation.text
        assert mine.generation.id == wanted.generation.id
        assert {held.ref for held in bench.quarantine.objects} == {held.ref for held in fresh.quarantine.objects}

    trio.run(check)
