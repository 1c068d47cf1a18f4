"""Random changes by two tenants and the administrator: a rejected Ingress has what its last good version has now.

An independent model remembers the last version of each Ingress that was not
rejected, and what it had last. A render without history, with these versions and everything else as
it is now, gives the most that a rejected Ingress may have.
"""

from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered
from tests.libraries.tenants.tenants import NGINX
from tests.libraries.tenants.test_former_references import BASIC, HASHES, secret
from tests.libraries.tenants.test_withdrawn_permissions import BROKEN
from tests.support.components.succession import Succession
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service

LIBRARIES = ("base", "ssl", "ingress", "nginx-annotations")
TENANTS = {"evil": 1, "shop": 5}
SERVICES = tuple(service("web", namespace=namespace) for namespace in TENANTS)
SETTINGS: list[dict[str, Any]] = [{}, {"longestPassword": 40}, {"hostOwnership": "namespace"}]
Lines = frozenset[tuple[str, str, str]]


class Good(NamedTuple):
    """The Ingress that was last accepted, and what the tenant has had of it last."""

    version: Resource
    settings: dict[str, Any]
    lines: Lines


@st.composite
def ingresses(draw: st.DrawFn, namespace: str) -> Resource:
    hosts = draw(st.sets(st.sampled_from([f"{namespace}.test", "shared.test"]), min_size=1))
    paths = draw(st.sets(st.sampled_from(["/", "/a", "/a/b"]), min_size=1))
    annotations = {
        NGINX + "proxy-body-size": draw(st.sampled_from(["1m", "2m"])),
        **draw(st.sampled_from([{}, BASIC])),
        **draw(st.sampled_from([{}, BROKEN])),
    }
    rules = [rule(host, *(path(one, "web") for one in sorted(paths))) for host in sorted(hosts)]
    return ingress("web", *rules, namespace=namespace, age=TENANTS[namespace], annotations=annotations)


@st.composite
def secrets(draw: st.DrawFn, namespace: str) -> Resource:
    names = draw(st.sampled_from([("ann", "bob"), ("ann",), ("bob",), ()]))
    text = "".join(f"{name}:{HASHES[name]}\n" for name in names) if names else "no list of users"
    found = secret("users", data={"auth": text})
    return {**found, "metadata": {**found["metadata"], "namespace": namespace}}


@st.composite
def endpoints(draw: st.DrawFn, namespace: str) -> Resource:
    addresses = draw(st.sets(st.sampled_from(["10.0.0.1", "10.0.0.2"]), min_size=1))
    return endpoint_slice("web", *map(endpoint, sorted(addresses)), ports=80, namespace=namespace)


CHANGES = st.sampled_from(sorted(TENANTS)).flatmap(
    lambda namespace: st.one_of(ingresses(namespace), ingresses(namespace), secrets(namespace), endpoints(namespace))
)
STEPS = st.lists(st.one_of(CHANGES, CHANGES, CHANGES, st.sampled_from(SETTINGS)), min_size=4, max_size=8)


def lines_of(rendered: Rendered, namespace: str) -> Lines:
    """Return the lines of *namespace*: those of its sections, and those of maps that name its backends."""
    found = set()
    for place, text in rendered.texts.items():
        section = ""
        for line in text.text.splitlines():
            section = section if line.startswith(" ") else line
            if f"{namespace}_" in section:
                found.add((place, section, line))
    return frozenset(found)


def rejected_in(rendered: Rendered) -> set[str]:
    return {one.subject.namespace for one in rendered.rejections if one.subject.kind == "Ingress"}


@given(steps=STEPS)
@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # A smaller example would be found in minutes only.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
def test_a_rejected_ingress_has_no_more_than_its_last_good_version_has_now(steps: list[dict[str, Any]]) -> None:
    controller, chosen = Succession(LIBRARIES), SETTINGS[0]
    present: dict[tuple[str, str], Resource] = {}
    good: dict[str, Good] = {}
    controller.render(*SERVICES)
    for number, step in enumerate(steps):
        if step in SETTINGS:
            chosen = step
            rendered = controller.configure(**step)
        else:
            changed = {**step, "metadata": {**step["metadata"], "resourceVersion": str(number)}}
            present[changed["kind"], changed["metadata"]["namespace"]] = changed
            rendered = controller.render(changed)
        rejected = rejected_in(rendered)
        for namespace in {namespace for kind, namespace in present if kind == "Ingress"} - rejected:
            good[namespace] = Good(present["Ingress", namespace], chosen, lines_of(rendered, namespace))
        if not rejected:
            continue

        others = [one for (kind, namespace), one in present.items() if kind != "Ingress" or namespace not in rejected]
        versions = [good[namespace].version for namespace in sorted(rejected & good.keys())]
        again = Succession(LIBRARIES, **chosen).render(*SERVICES, *others, *versions)
        for namespace in rejected:
            found = lines_of(rendered, namespace)
            if namespace not in good:
                assert found == frozenset()
                continue
            if namespace not in rejected_in(again):
                assert found <= lines_of(again, namespace)
                good[namespace] = good[namespace]._replace(settings=chosen)
            else:
                # It cannot be rendered again, and gets nothing back.
                assert found <= (good[namespace].lines if good[namespace].settings == chosen else frozenset())
            good[namespace] = good[namespace]._replace(lines=found)


def alone(step: dict[str, Any]) -> dict[str, Any]:
    """Return *step*, without hosts that both tenants have if it changes an Ingress."""
    if step.get("kind") != "Ingress":
        return step
    host = f"{step['metadata']['namespace']}.test"
    rules = [one for one in step["spec"]["rules"] if one["host"] == host] or [
        {**one, "host": host} for one in step["spec"]["rules"]
    ]
    return {**step, "spec": {**step["spec"], "rules": rules}}


@given(steps=st.lists(st.tuples(STEPS.map(lambda found: alone(found[0])), st.booleans()), min_size=5, max_size=10))
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
def test_nothing_is_lost_while_checks_of_haproxy_time_out(steps: list[tuple[dict[str, Any], bool]]) -> None:
    found = Succession(LIBRARIES), Succession(LIBRARIES)
    for controller in found:
        controller.render(*SERVICES)
    for number, (step, has_timed_out) in enumerate(steps):
        rendered = []
        for controller, is_checked in zip(found, (True, not has_timed_out), strict=True):
            if step in SETTINGS:
                rendered.append(controller.configure(**step))
            else:
                changed = {**step, "metadata": {**step["metadata"], "resourceVersion": str(number)}}
                rendered.append(controller.render(changed, is_checked=is_checked))
        for namespace in TENANTS:
            assert lines_of(rendered[0], namespace) <= lines_of(rendered[1], namespace)
        assert rejected_in(rendered[0]) == rejected_in(rendered[1])
