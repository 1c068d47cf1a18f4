"""The annotation `default-backend` of ingress-nginx: another Service answers while the first one has no endpoint."""

import pytest

from haptic_trio.k8s.resource import Resource
from tests.libraries.conftest import Cluster
from tests.libraries.ingress.test_ingress_warnings import Site
from tests.libraries.tenants.tenants import ALL, NGINX
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.traffic.servers import ask, serving

HOST = "a.example.com"


def site(fallback: str = "sorry") -> Resource:
    return ingress("a", rule(HOST, path("/", "web")), annotations={NGINX + "default-backend": fallback})


def sorry(port: int, namespace: str = "default") -> list[Resource]:
    ports = {"http": port, "other": 1}
    named = [{"name": name, "port": 80 + number, "protocol": "TCP"} for number, name in enumerate(ports)]
    return [
        service("sorry", *named, namespace=namespace),
        endpoint_slice("sorry", endpoint("127.0.0.1"), ports=ports, namespace=namespace),
    ]


@pytest.mark.haproxy
@pytest.mark.parametrize(("is_ready", "who"), [(True, "web"), (False, "sorry")])
def test_the_first_port_of_another_service_answers_while_there_is_no_endpoint(
    cluster: Cluster, is_ready: bool, who: str
) -> None:
    with serving("web", "sorry") as ports:
        slices = endpoint_slice("web", endpoint("127.0.0.1", ready=is_ready), ports=ports["web"])
        cluster.serve(site(), service("web"), slices, *sorry(ports["sorry"]), libraries=ALL)

        assert ask(cluster.http_port, HOST, "/x").body.split("\n")[:2] == [who, "/x"]


def test_the_change_between_both_is_one_of_servers(cluster: Cluster) -> None:
    texts = [
        cluster.render(
            site(),
            service("web"),
            endpoint_slice("web", endpoint("10.0.0.1", ready=is_ready), ports=8080),
            *sorry(8080),
            libraries=ALL,
        ).text.splitlines()
        for is_ready in (True, False)
    ]

    assert [line.strip() for line in texts[0] if line not in texts[1]] == ["server s1 10.0.0.1:8080"]
    assert [line.strip() for line in texts[1] if line not in texts[0]] == ["server s1 127.0.0.1:8080"]


@pytest.mark.parametrize("fallback", ["other/sorry", "sorry.other", "absent"])
def test_no_service_of_another_namespace_answers(cluster: Cluster, fallback: str) -> None:
    rendered = cluster.render(site(fallback), service("web"), *sorry(8080, namespace="other"), libraries=ALL)

    assert "    server s1 " not in rendered.text.partition("backend default_a_web_80")[2].partition("backend ")[0]


def test_the_owner_is_warned_in_any_case() -> None:
    down = endpoint_slice("web", endpoint("10.0.0.1", ready=False), ports=80)

    (warning,) = Site(site(), down, *sorry(8080)).warnings
    assert (
        "has no ready endpoint; requests for it are answered by the Service of the annotation default-backend"
        in warning
    )
    (warning,) = Site(site("absent"), down).warnings
    assert "are answered with 503" in warning
