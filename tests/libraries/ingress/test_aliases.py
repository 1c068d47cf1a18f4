"""Aliases of an Ingress: each has all of its paths, so there is a limit on the number of pairs."""

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Renderer
from haptic_trio.validation_tests.fixtures import make_stores
from tests.bad_inputs.world import stores_of
from tests.libraries.tenants.tenants import ALL, HI, NGINX
from tests.support.components.rendering import library_config
from tests.support.kubernetes import ingress, ingress_class, path, rule, service

MANY = 101


def aliased(prefix: str, kind: str) -> Resource:
    """Return an Ingress with many aliases and many paths of *kind*."""
    paths = (path(f"/{number}", "web", kind=kind) for number in range(MANY))
    aliases = ",".join(f"a{number}.example.com" for number in range(MANY))
    return ingress("many", rule("many.example.com", *paths), annotations={f"{prefix}server-alias": aliases})


@pytest.mark.parametrize("prefix", [NGINX, HI])
@pytest.mark.parametrize("kind", ["Exact", "Prefix"])
def test_an_ingress_with_very_many_pairs_of_an_alias_and_a_path_is_rejected(prefix: str, kind: str) -> None:
    config = library_config(*ALL)
    stores = make_stores(config)
    other = ingress("other", rule("other.example.com", path("/", "web")))
    for one in (
        ingress_class("haptic", "haptic-trio/ingress-controller"),
        aliased(prefix, kind),
        other,
        service("web"),
    ):
        for store in stores_of(config, stores, one):
            store.upsert(one)

    rendered = Renderer(config).render_here(stores)

    problems = {str(one.subject): one.problem.message for one in rendered.rejections}
    assert [*problems] == ["Ingress default/many"]
    assert "server-alias must name fewer hosts" in problems["Ingress default/many"]
    maps = "".join(found.text for name, found in rendered.texts.items() if name.startswith("maps/path-"))
    assert "other.example.com|/ " in maps
    # Its own hosts are closed; of the aliases there is nothing.
    assert "many.example.com|/7" in maps
    assert "a7.example.com|" not in maps
