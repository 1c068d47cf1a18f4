"""Names of sections and files: no namespace or name of an object can produce the name of another section."""

import base64
from collections import Counter
from functools import cache
from itertools import product
from typing import Any

import msgspec
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.gateway.objects import GatewayObjectError
from haptic_trio.gateway.routes.backends import backend_name
from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.templating.filters.content import ident
from haptic_trio.validation_tests.fixtures import make_stores
from tests.gateway.objects import gateway_class, made, plural_of
from tests.gateway.objects import rule as route_rule
from tests.support.components.rendering import library_config
from tests.support.kubernetes import ingress, meta, path, rule, service

LIBRARIES = (
    *("base", "ssl", "ingress", "nginx-annotations", "haproxy-ingress-annotations", "haproxy-org-annotations"),
    "gateway",
)
WORDS = ("clients", "tls", "gateway", "gateway-entry", "gateway-clients", "nginx", "hi", "org", "foo", "80", "web")
"""Namespaces and names that are parts of generated names."""
ODD = ("a_b", "a", "b", "b_c", "clients::foo", "gateway::web", "::", ":3a", "a.b", "http", "no-route", "ü")
"""What a directory of manifests can hold as well."""


def rendered(objects: list[Resource]) -> Rendered:
    """Render *objects* with all libraries."""
    config = library_config(*LIBRARIES)
    # How long it takes is another test's concern.
    templating = msgspec.structs.replace(config.templating, render_timeout=300.0)
    config = msgspec.structs.replace(config, templating=templating)
    stores = make_stores(config)
    for one in objects:
        for name, kind in config.watched_resources.items():
            if (kind.api_version, kind.resources) == (one["apiVersion"], plural_of(one)):
                stores[name].upsert(one)
    return Renderer(config).render_here(stores)


def sections(text: str) -> Counter[tuple[str, str]]:
    """Return how often each section is there."""
    found: Counter[tuple[str, str]] = Counter()
    for line in text.splitlines():
        match line.split(" ")[:2]:
            case [("backend" | "frontend" | "userlist") as kind, name]:
                found[kind, name] += 1
    return found


def repeated(found: Counter[tuple[str, str]]) -> list[str]:
    """Return the names that several sections have; since HAProxy 3.3, frontends and backends share their names."""
    spaces: Counter[tuple[bool, str]] = Counter()
    for (kind, name), times in found.items():
        spaces[kind == "userlist", name] += times
    return [name for (_, name), times in spaces.items() if times > 1]


@cache
def authorities() -> str:
    """Return a certificate of an authority as Secrets hold it."""
    return base64.b64encode(trustme.CA().cert_pem.bytes()).decode()


def opaque(name: str, namespace: str, **data: str) -> Resource:
    """Return a Secret."""
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta(name, namespace), "data": data}


def claims(namespace: str, name: str) -> list[Resource]:
    """Return an object for each way in which *namespace* and *name* become the name of a section."""
    host = f"{WORDS.index(name) if name in WORDS else 100 + ODD.index(name)}.{ordinal(namespace)}.test"
    secured: dict[str, Any] = {"tls": [{"hosts": [f"c.{host}"], "secretName": "cert"}]}
    nginx = "nginx.ingress.kubernetes.io/"
    clients = {f"{nginx}auth-tls-secret": "ca", f"{nginx}auth-tls-verify-client": "on"}
    listeners = [{"name": "http", "port": 10_000, "protocol": "HTTP"}]
    spec = {"gatewayClassName": "haptic", "listeners": listeners}
    return [
        opaque("ca", namespace, **{"ca.crt": authorities()}),
        opaque("users", namespace, auth=base64.b64encode(b"u:$5$x$y").decode()),
        service(name, namespace=namespace),
        ingress(name, rule(f"p.{host}", path("/", name)), namespace=namespace),
        *(
            ingress(f"{name}{end}", rule(f"{letter}.{host}", path("/", name)), namespace=namespace, **more)
            for end, letter, more in (
                ("", "c", {"annotations": clients, **secured}),
                ("-t", "t", {"annotations": {f"{nginx}ssl-passthrough": "true"}}),
                ("-u", "u", {"annotations": {f"{nginx}auth-type": "basic", f"{nginx}auth-secret": "users"}}),
            )
        ),
        made("Gateway", name, namespace=namespace, spec=spec),
        made(
            "HTTPRoute",
            name,
            namespace=namespace,
            spec={"parentRefs": [{"name": name}], "rules": [route_rule(to=name)], "hostnames": [f"g.{host}"]},
        ),
    ]


def ordinal(namespace: str) -> str:
    """Return a label for *namespace* that is none of the others'."""
    return f"n{(*WORDS, *ODD).index(namespace)}"


@pytest.mark.slow
@pytest.mark.parametrize("words", [WORDS, ODD], ids=["Kubernetes", "directory"])
def test_no_two_sections_have_one_name(words: tuple[str, ...]) -> None:
    objects = [one for namespace, name in product(words, words) for one in claims(namespace, name)]
    found = sections(rendered([gateway_class(), *objects]).text)

    assert repeated(found) == []
    kinds = {name.split("::")[0] for kind, name in found if kind == "backend" and "::" in name}
    assert kinds >= ({"clients", "tls", "gateway"} if words is WORDS else {"clients", "tls"})


def test_an_ingress_of_one_tenant_cannot_name_the_backend_of_another() -> None:
    victim = [service("foo", namespace="clients"), ingress("v", rule("v.test", path("/", "foo")), namespace="clients")]
    attacker = [one for one in claims("foo", "80") if one["kind"] != "Gateway"]

    found = sections(rendered([*victim, *attacker]).text)

    assert found["backend", "clients_foo_80"] == 1
    assert found["backend", "clients::foo_80"] == 1


def test_a_route_of_one_tenant_cannot_name_the_backend_of_another() -> None:
    annotations = {"nginx.ingress.kubernetes.io/proxy-read-timeout": "5"}
    victim = [
        service("web", namespace="gateway"),
        ingress("foo", rule("v.test", path("/", "web")), namespace="gateway", annotations=annotations),
    ]

    found = sections(rendered([gateway_class(), *victim, *claims("foo", "web")]).text)

    assert found["backend", "gateway_foo_web_80"] == 1
    assert found["backend", "gateway::foo_web_80"] == 1


def test_a_gateway_of_one_tenant_cannot_name_the_backend_of_another() -> None:
    annotations = {"nginx.ingress.kubernetes.io/proxy-read-timeout": "5"}
    victim = [
        service("web", {"port": 10_000}, namespace="gateway"),
        ingress("foo", rule("v.test", path("/", "web", 10_000)), namespace="gateway", annotations=annotations),
    ]

    found = sections(rendered([gateway_class(), *victim, *claims("foo", "web")]).text)

    assert found["backend", "gateway_foo_web_10000"] == 1
    assert found["frontend", "gateway-port::foo_web_10000"] == 1
    assert repeated(found) == []


names = st.one_of(
    st.sampled_from(["clients", "tls", "gateway", "a", "a-b", "a.b", "80", "a_b", "::", "clients::a"]),
    st.text(max_size=20),
)
kinds = st.sampled_from(["", "clients", "tls"])


@given(
    st.lists(st.tuples(kinds, st.lists(names, min_size=2, max_size=4)), min_size=2, max_size=2, unique_by=repr),
    names,
    names,
    st.integers(1, 65535),
)
def test_no_names_of_objects_produce_the_name_of_another_kind(
    two: list[tuple[str, list[str]]], namespace: str, name: str, port: int
) -> None:
    made_names: set[str] = {ident(*parts, kind=kind) for kind, parts in two}
    assert len(made_names) == 2
    try:
        made_names.add(backend_name(namespace, name, port))
    except GatewayObjectError:
        return
    assert len(made_names) == 3
