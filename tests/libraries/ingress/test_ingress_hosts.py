"""Requests are routed by host, then to default backends; of two conflicting Ingresses, the older one wins."""

import pytest

from haptic_trio.k8s.resource import Resource
from tests.libraries.conftest import Cluster
from tests.support.kubernetes import (
    endpoint,
    endpoint_slice,
    ingress,
    ingress_class,
    path,
    rule,
    service,
    service_backend,
)
from tests.support.traffic.servers import ask, serving

pytestmark = pytest.mark.haproxy


def one(name: str, port: int, namespace: str = "default") -> tuple[Resource, Resource]:
    return service(name, namespace=namespace), endpoint_slice(
        name, endpoint("127.0.0.1"), ports=port, namespace=namespace
    )


def reached(cluster: Cluster, host: str | None, path: str = "/") -> str | int:
    answer = ask(cluster.http_port, host, path)
    return answer.body.split("\n")[0] if answer.status == 200 else answer.status


def test_hosts_are_distinguished(cluster: Cluster) -> None:
    with serving("a", "b", "wild") as ports:
        cluster.serve(
            ingress("a", rule("a.example.com", path("/", "a")), rule("b.example.com", path("/", "b"))),
            ingress("wild", rule("*.example.com", path("/", "wild"))),
            *(item for name, port in ports.items() for item in one(name, port)),
        )

        assert reached(cluster, "a.example.com") == "a"
        assert reached(cluster, "b.example.com") == "b"
        assert reached(cluster, "A.Example.COM.:8080") == "a"
        assert reached(cluster, "c.example.com") == "wild"
        assert reached(cluster, "c.d.example.com") == 404
        assert reached(cluster, "example.com") == 404
        assert reached(cluster, ".example.com") == 404
        assert reached(cluster, "example.org") == 404
        assert reached(cluster, None) == 404
        assert reached(cluster, "[::1]:8080") == 404


def test_paths_of_a_wider_rule_are_served_where_the_host_has_none(cluster: Cluster) -> None:
    with serving("a", "wild", "any") as ports:
        cluster.serve(
            ingress("a", rule("a.example.com", path("/a", "a"))),
            ingress("wild", rule("*.example.com", path("/wild", "wild"))),
            ingress("any", rule(None, path("/any", "any"), path("/a", "any"))),
            *(item for name, port in ports.items() for item in one(name, port)),
        )

        assert reached(cluster, "a.example.com", "/a") == "a"
        assert reached(cluster, "a.example.com", "/wild") == "wild"
        assert reached(cluster, "a.example.com", "/any") == "any"
        assert reached(cluster, None, "/any") == "any"
        assert reached(cluster, "a.example.com", "/none") == 404


def test_default_backend_of_an_ingress_without_rules_takes_unmatched_requests(cluster: Cluster) -> None:
    with serving("a", "rest") as ports:
        cluster.serve(
            ingress("a", rule("a.example.com", path("/a", "a"))),
            ingress("rest", defaultBackend=service_backend("rest")),
            *(item for name, port in ports.items() for item in one(name, port)),
        )

        assert reached(cluster, "a.example.com", "/a") == "a"
        assert reached(cluster, "a.example.com", "/b") == "rest"
        assert reached(cluster, "x.example.org") == "rest"
        assert reached(cluster, None) == "rest"


def test_default_backend_of_an_ingress_with_rules_is_for_its_hosts_only(cluster: Cluster) -> None:
    with serving("a", "rest") as ports:
        cluster.serve(
            ingress("a", rule("a.example.com", path("/a", "a")), defaultBackend=service_backend("rest")),
            *(item for name, port in ports.items() for item in one(name, port)),
        )

        assert reached(cluster, "a.example.com", "/a") == "a"
        assert reached(cluster, "a.example.com", "/b") == "rest"
        assert reached(cluster, "b.example.com", "/b") == 404


def test_a_host_with_key_syntax_is_rejected(cluster: Cluster) -> None:
    with serving("a") as ports:
        cluster.serve(ingress("a", rule("*.example.com", path("/", "a"))), *one("a", ports["a"]))

        assert reached(cluster, "x.example.com|") == 400
        assert reached(cluster, "*.example.com") == 400


def test_of_two_ingresses_for_one_path_the_older_wins(cluster: Cluster) -> None:
    with serving("old", "new") as ports:
        cluster.serve(
            ingress("a-new", rule("a.example.com", path("/", "new"), path("/x", "new", kind="Exact")), age=2),
            ingress("b-old", rule("a.example.com", path("/", "old"), path("/x", "old", kind="Exact")), age=1),
            *(item for name, port in ports.items() for item in one(name, port)),
        )

        assert reached(cluster, "a.example.com", "/") == "old"
        assert reached(cluster, "a.example.com", "/x") == "old"


def test_of_two_ingresses_of_one_age_the_first_by_name_wins(cluster: Cluster) -> None:
    with serving("first", "second") as ports:
        cluster.serve(
            ingress("b", rule("a.example.com", path("/", "second"))),
            ingress("a", rule("a.example.com", path("/", "first"))),
            *(item for name, port in ports.items() for item in one(name, port)),
        )

        assert reached(cluster, "a.example.com") == "first"


@pytest.mark.parametrize(
    ("name", "annotation", "objects", "context", "served"),
    [
        pytest.param("haptic", None, [], {}, True, id="our class"),
        pytest.param("other", None, [], {}, False, id="another class"),
        pytest.param("mine", None, [], {"ingressClass": "mine"}, True, id="class by another name"),
        pytest.param(None, "haptic", [], {}, True, id="our class by annotation"),
        pytest.param(None, "other", [], {}, False, id="another class by annotation"),
        pytest.param("other", "haptic", [], {}, False, id="the field counts before the annotation"),
        pytest.param(None, None, [], {}, False, id="no class"),
        pytest.param(None, None, [], {"watchIngressWithoutClass": True}, True, id="no class, but wanted"),
        pytest.param(
            None, None, [ingress_class("haptic", "x.example/y", default=True)], {}, True, id="no class, ours is default"
        ),
        pytest.param(
            None, None, [ingress_class("other", "x.example/y", default=True)], {}, False, id="no class, other default"
        ),
        pytest.param(
            "other", None, [ingress_class("other", "haptic-trio/ingress-controller")], {}, True, id="our controller"
        ),
    ],
)
def test_only_ingresses_of_our_class_are_served(
    cluster: Cluster,
    name: str | None,
    annotation: str | None,
    objects: list[Resource],
    context: dict[str, object],
    served: bool,
) -> None:
    annotations = {"kubernetes.io/ingress.class": annotation} if annotation else None
    web = ingress("web", rule("a.example.com", path("/", "web")), ingress_class=name, annotations=annotations)

    rendered = cluster.render(web, service("web"), *objects, **context)

    assert rendered.rejections == ()
    assert ("a.example.com" in rendered.files["maps/path-prefix.map"]) is served
    assert ("backend default_web_80 " in rendered.text) is served
