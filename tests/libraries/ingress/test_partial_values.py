"""Values of annotations that other controllers take in part: so are they here, and owners are warned."""

import pytest

from tests.libraries.conftest import Cluster
from tests.libraries.ingress.test_ingress_warnings import Site
from tests.libraries.tenants.tenants import ALL, NGINX
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.traffic.servers import ask, serving

HOST = "a.example.com"
CORS = {
    NGINX: {"enable-cors": "true"},
    "haproxy-ingress.github.io/": {"cors-enable": "true"},
    "haproxy.org/": {"cors-enable": "true"},
}


@pytest.mark.haproxy
@pytest.mark.parametrize("prefix", CORS)
@pytest.mark.parametrize(
    ("listed", "allowed"),
    [
        ("origin.cors.com:8080, https://origin2.cors.com", {"https://origin2.cors.com": "https://origin2.cors.com"}),
        ("*, foo.bar.com", {"https://origin2.cors.com": "*", "http://foo.bar.com": "*", "origin.cors.com:8080": "*"}),
    ],
    ids=["one bad entry", "every origin"],
)
def test_good_origins_count_beside_bad_ones(
    cluster: Cluster, prefix: str, listed: str, allowed: dict[str, str]
) -> None:
    annotations = {prefix + name: value for name, value in (CORS[prefix] | {"cors-allow-origin": listed}).items()}
    asked = ["https://origin2.cors.com", "origin.cors.com:8080", "http://foo.bar.com"]
    with serving("web") as ports:
        slices = endpoint_slice("web", endpoint("127.0.0.1"), ports=ports["web"])
        site = ingress("a", rule(HOST, path("/", "web")), annotations=annotations)
        cluster.serve(site, service("web"), slices, libraries=ALL)
        answers = {origin: ask(cluster.http_port, HOST, headers={"Origin": origin}).headers for origin in asked}

    found = {origin: headers.get("access-control-allow-origin") for origin, headers in answers.items()}
    assert {origin: value for origin, value in found.items() if value} == allowed


@pytest.mark.parametrize("prefix", [NGINX, "haproxy-ingress.github.io/"])
def test_the_owner_is_warned_about_entries_that_are_no_origin(prefix: str) -> None:
    listed = CORS[prefix] | {"cors-allow-origin": "https://a.example.com, b.example.com:80, ftp"}
    annotations = {prefix + name: value for name, value in listed.items()}

    (warning,) = Site(ingress("a", rule(HOST, path("/", "web")), annotations=annotations)).warnings

    assert "cors-allow-origin: these entries are not origins" in warning
    assert "ignored: b.example.com:80, ftp" in warning


@pytest.mark.haproxy
def test_an_empty_prefix_sends_no_header(cluster: Cluster) -> None:
    with serving("web") as ports:
        slices = endpoint_slice("web", endpoint("127.0.0.1"), ports=ports["web"])
        site = ingress("a", rule(HOST, path("/", "web")), annotations={NGINX + "x-forwarded-prefix": ""})
        rendered = cluster.serve(site, service("web"), slices, libraries=ALL)
        answer = ask(cluster.http_port, HOST)

    assert rendered.rejected == {}
    assert (answer.status, "x-forwarded-prefix" in answer.body) == (200, False)
