"""Stick tables of one namespace: their entries share a limit, whatever asks for the tables."""

import pytest
from msgspec.structs import replace

from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.validation_tests.fixtures import make_stores
from tests.support.components.rendering import KINDS, library_config
from tests.support.kubernetes import ingress, path, rule, service

LIBRARIES = ("base", "ssl", "ingress", "nginx-annotations", "haproxy-org-annotations", "haproxy-ingress-annotations")
HI = {"haproxy-ingress.github.io/limit-rps": "5"}
NGINX = {"nginx.ingress.kubernetes.io/limit-rps": "5"}
ORG = {"haproxy.org/rate-limit-requests": "5"}


def limited(name: str, annotations: dict[str, str], namespace: str = "attacker", *, backends: int = 1) -> Resource:
    paths = [path(f"/{number}", f"s{number}") for number in range(backends)]
    return ingress(name, rule(f"{name}.{namespace}.test", *paths), namespace=namespace, annotations=annotations)


def rendered(*ingresses: Resource, limit: int | None = None) -> Rendered:
    config = library_config(*LIBRARIES)
    if limit is not None:
        config = replace(config, templating=replace(config.templating, max_namespace_table_entries=limit))
    stores = make_stores(config)
    services = [service(f"s{number}", namespace=name) for name in ("attacker", "victim") for number in range(30)]
    for one in [*ingresses, *services]:
        for name, watched in config.watched_resources.items():
            if KINDS[watched.resources] == one["kind"]:
                stores[name].upsert(one)
    return Renderer(config).render_here(stores)


def rejected(found: Rendered) -> dict[str, str]:
    return {str(rejection.subject): rejection.problem.message for rejection in found.rejections}


def test_the_largest_tables_that_an_annotation_allows_are_rejected_by_default() -> None:
    large = {**ORG, "haproxy.org/rate-limit-size": "10m"}
    found = rendered(limited("a", large), limited("web", NGINX, "victim"))

    assert rejected(found) == {
        "Ingress attacker/a": "the output of all objects of the namespace attacker has stick tables of more than"
        " 2,000,000 entries"
    }
    assert "templating.maxNamespaceTableEntries" in found.rejections[0].problem.hint
    assert found.text.count("stick-table type ipv6") == 1


@pytest.mark.parametrize("annotations", [NGINX, ORG, HI], ids=["nginx", "haproxy.org", "haproxy-ingress"])
def test_many_tables_of_a_namespace_share_the_limit_and_other_namespaces_have_their_own(
    annotations: dict[str, str],
) -> None:
    many = [limited(f"i{number}", annotations) for number in range(5)]
    found = rendered(*many, limited("web", annotations, "victim", backends=3), limit=3 * 102_400)

    assert set(rejected(found)) == {"Ingress attacker/i3", "Ingress attacker/i4"}
    assert found.text.count("stick-table type ipv6") == 6


def test_each_backend_of_an_ingress_has_a_table_that_counts() -> None:
    found = rendered(limited("a", NGINX, backends=21), limited("b", NGINX, backends=19))

    assert set(rejected(found)) == {"Ingress attacker/a"}
    assert found.text.count("stick-table type ipv6") == 19
