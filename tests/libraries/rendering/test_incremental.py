"""A change of the cluster renders only the fragments that depend on it, and the result equals a full render."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trustme

from haptic_trio.chunked import differences
from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.pipeline.render import Rendered, Renderer
from tests.support.components.rendering import KINDS, library_config
from tests.support.kubernetes import (
    endpoint,
    endpoint_slice,
    ingress,
    ingress_class,
    path,
    rule,
    service,
    tls_secret,
)

COUNT = 1_000
ISSUED = trustme.CA().issue_cert("tls.example.com", key_type=trustme.KeyType.ECDSA)
BUNDLE = ISSUED.cert_chain_pems[0].bytes(), ISSUED.private_key_pem.bytes()


def route(number: int, service_name: str = "", where: str = "/", **more: Any) -> Resource:
    name = f"web{number}"
    return ingress(name, rule(f"{name}.example.com", path(where, service_name or name)), **more)


def slices(number: int, *addresses: str) -> Resource:
    return endpoint_slice(f"web{number}", *(endpoint(address) for address in addresses), ports=80)


class Cluster:
    """The shipped libraries over many routes, rendered again and again."""

    def __init__(self) -> None:
        self.config = library_config("base", "ssl", "ingress", sslRedirect=True)
        self.stores = Stores(Store(name, watched.index_by) for name, watched in self.config.watched_resources.items())
        for number in range(COUNT):
            self.put(route(number), service(f"web{number}"), slices(number, "10.0.0.1", "10.0.0.2"))
        self.put(tls_secret("used", *BUNDLE), tls_secret("unused", *BUNDLE))
        self.put(route(1, tls=[{"secretName": "used", "hosts": ["web1.example.com"]}]))
        self.renderer = Renderer(self.config)
        self.rendered = self.renderer.render_here(self.stores)

    def matching(self, kind: str) -> list[Store]:
        resources = self.config.watched_resources
        return [store for name, store in self.stores.items() if KINDS[resources[name].resources] == kind]

    def put(self, *objects: Resource) -> None:
        for resource in objects:
            for store in self.matching(resource["kind"]):
                store.upsert(resource)

    def remove(self, resource: Resource) -> None:
        for store in self.matching(resource["kind"]):
            store.delete(ref_of(resource))

    def render(self) -> Rendered:
        self.rendered = self.renderer.render_here(self.stores)
        return self.rendered

    def compare(self) -> None:
        """See that the output equals that of a full render."""
        fresh = Renderer(self.config).render_here(self.stores)
        assert {path: text.text for path, text in self.rendered.texts.items()} == {
            path: text.text for path, text in fresh.texts.items()
        }
        assert self.rendered.files == fresh.files
        assert self.rendered.rejections == fresh.rejections
        assert self.rendered.warnings == fresh.warnings


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


def test_nothing_is_rendered_when_nothing_changed(cluster: Cluster) -> None:
    before = cluster.rendered
    after = cluster.render()
    assert after.fragments_rendered == 0
    assert all(after.texts[path] is before.texts[path] for path in before.texts)
    assert after.files is before.files


@pytest.mark.parametrize(
    ("change", "count"),
    [
        pytest.param(lambda c: c.put(slices(7, "10.0.0.9")), 1, id="endpoint"),
        pytest.param(lambda c: c.put(slices(8, "10.0.0.9"), slices(9, "10.0.0.9")), 2, id="two endpoints"),
        # Its paths, exact and others, its hosts, and the backend of the Service it names.
        pytest.param(lambda c: c.put(route(2, where="/x")), 4, id="path"),
        pytest.param(lambda c: c.put(route(3, "web4")), 5, id="another service"),
        pytest.param(lambda c: c.put(route(COUNT, "web5")), 4, id="new ingress"),
        pytest.param(lambda c: c.remove(route(9)), 1, id="ingress gone"),
        pytest.param(lambda c: c.put(service("idle")), 1, id="new service"),
        pytest.param(lambda c: c.remove(service("web11")), 1, id="service gone"),
        pytest.param(lambda c: c.put(service("web12", {"port": 81, "protocol": "TCP"})), 2, id="service port"),
        pytest.param(lambda c: c.put(tls_secret("used", *BUNDLE, age=3)), 1, id="certificate"),
        pytest.param(lambda c: c.put(route(13, tls=[{"secretName": "unused"}])), 5, id="certificate used"),
        pytest.param(lambda c: c.put(ingress_class("foreign", "example.com/other")), 0, id="class of others"),
    ],
)  # fmt: skip
def test_a_change_renders_what_depends_on_it(cluster: Cluster, change: Callable[[Cluster], None], count: int) -> None:
    change(cluster)
    assert cluster.render().fragments_rendered == count


def test_parts_without_a_change_are_the_same_objects(cluster: Cluster) -> None:
    before = cluster.rendered.config.pieces
    cluster.put(slices(500, "10.7.7.7"))
    gone, come = differences(before, cluster.render().config.pieces)
    (old,), (new,) = set(gone) - set(come), set(come) - set(gone)
    assert (old.origin.subject.name, new.origin.subject.name) == ("web500", "web500")
    assert "10.7.7.7" in new.text


def test_class_that_is_looked_up_by_all_renders_all_of_them_again(cluster: Cluster) -> None:
    cluster.put(route(20, ingress_class="by-controller"))
    assert cluster.render().fragments_rendered == 4
    cluster.put(ingress_class("by-controller", "haptic-trio/ingress-controller"))
    assert cluster.render().fragments_rendered == 4


@pytest.mark.slow
def test_the_result_of_all_changes_is_that_of_a_full_render(cluster: Cluster) -> None:
    cluster.compare()


def test_first_certificate_opens_the_https_frontend_and_the_last_one_closes_it() -> None:
    few = Cluster.__new__(Cluster)
    few.config = library_config("base", "ssl", "ingress")
    few.stores = Stores(Store(name, watched.index_by) for name, watched in few.config.watched_resources.items())
    few.renderer = Renderer(few.config)
    few.put(route(1, tls=[{"secretName": "used", "hosts": ["web1.example.com"]}]), service("web1"))
    assert "frontend https" not in few.render().text
    few.put(tls_secret("used", *BUNDLE))
    assert "frontend https" in few.render().text
    assert few.rendered.fragments_rendered == 2
    few.compare()
    few.remove(tls_secret("used", *BUNDLE))
    assert "frontend https" not in few.render().text
    assert few.rendered.fragments_rendered == 1
    few.compare()


SHARING = 300


class CountingStore(Store):
    """Counts how often it is asked."""

    asked = 0

    def get(self, *keys: str) -> Sequence[Resource]:
        self.asked += 1
        return super().get(*keys)


class Sharing(Cluster):
    """Many Ingresses that name one Service and one certificate; their class decides whether they are managed."""

    def __init__(self) -> None:
        self.config = library_config("base", "ssl", "ingress", "nginx-annotations")
        watched = self.config.watched_resources
        self.stores = Stores(CountingStore(name, each.index_by) for name, each in watched.items())
        self.put(ingress_class("ours", "haptic-trio/ingress-controller"))
        self.put(service("web0"), slices(0, "10.0.0.1"), tls_secret("used", *BUNDLE))
        self.put(*(sharing(number) for number in range(SHARING)))
        self.renderer = Renderer(self.config)
        self.rendered = self.renderer.render_here(self.stores)

    @property
    def asked(self) -> int:
        return sum(store.asked for store in self.stores.values() if isinstance(store, CountingStore))


def sharing(number: int, where: str = "/") -> Resource:
    secured = [{"secretName": "used", "hosts": [f"web{number}.example.com"]}]
    return route(number, "web0", where, ingress_class="ours", tls=secured)


@pytest.fixture(scope="module")
def shared() -> Sharing:
    return Sharing()


@pytest.mark.parametrize(
    ("change", "fragments", "look_ups"),
    [
        pytest.param(lambda c: c.put(slices(0, "10.0.0.9")), 1, 20, id="endpoint"),
        pytest.param(lambda c: c.put(slices(0)), 1, 40, id="no endpoint"),
        pytest.param(lambda c: without_endpoint(c).put(slices(0, "10.0.0.8")), 1, 20, id="endpoint again"),
        # Its own parts and the backend; with a host the certificate, too.
        pytest.param(lambda c: c.put(sharing(SHARING)), 15, 90, id="new ingress"),
        pytest.param(lambda c: c.put(sharing(7, "/x")), 14, 90, id="path"),
        pytest.param(lambda c: c.remove(sharing(8)), 2, 30, id="ingress gone"),
        pytest.param(lambda c: c.put(labelled(service("web0"))), 1, 20, id="service with a label"),
        pytest.param(lambda c: c.put(tls_secret("used", *BUNDLE, age=3)), 1, 20, id="certificate"),
    ],
)  # fmt: skip
def test_what_many_share_costs_no_more_than_what_one_has_alone(
    shared: Sharing, change: Callable[[Cluster], None], fragments: int, look_ups: int
) -> None:
    change(shared)
    before = shared.asked
    assert shared.render().fragments_rendered == fragments
    assert shared.asked - before <= look_ups


def test_the_result_of_changes_of_shared_objects_is_that_of_a_full_render(shared: Sharing) -> None:
    shared.compare()


def test_the_port_that_many_name_is_the_affair_of_all_of_them(shared: Sharing) -> None:
    shared.put(service("web0", {"port": 80, "protocol": "TCP"}, {"port": 81, "name": "b", "protocol": "TCP"}))
    assert shared.render().fragments_rendered == 1
    shared.put(service("web0", {"port": 81, "protocol": "TCP"}))
    # The tests before this one may have added or removed some, or may have run in another process.
    number = len(shared.stores["ingresses"].list())
    assert shared.render().fragments_rendered >= number
    assert len(shared.rendered.warnings) == number
    shared.compare()


def without_endpoint(shared: Cluster) -> Cluster:
    """Return *shared* after a render without endpoints."""
    shared.put(slices(0))
    shared.render()
    return shared


def labelled(resource: Resource) -> Resource:
    return {**resource, "metadata": {**resource["metadata"], "labels": {"team": "a"}}}
