"""Objects that try to become configuration: each is rejected or harmless, and all others are served."""

from typing import Any

import pytest
import trustme

from tests.libraries.conftest import Cluster
from tests.support.components.rendering import Rendered, render
from tests.support.kubernetes import (
    endpoint,
    endpoint_slice,
    ingress,
    path,
    rule,
    service,
    tls_secret,
)
from tests.support.traffic.servers import ask, serving

GOOD = (ingress("good", rule("good.example.com", path("/", "good"))), service("good"))

BAD_PATHS = {
    "newline": "/a\nserver evil 1.2.3.4:80",
    "carriage return": "/a\rb",
    "line separator": "/a\u2028b",
    "next line": "/a\x85b",
    "space": "/a other_backend",
    "tab": "/a\tb",
    "quote": "/a'b",
    "double quote": '/a"b',
    "backslash": "/a\\",
    "hash": "/a#b",
    "environment": "/${HOME}",
    "NUL": "/a\0b",
    "other control": "/a\x1bb",
    "stray percent": "/%[env(SECRET)]",
    "encoded slash": "/a%2Fb",
    "empty element": "/a//b",
    "parent": "/a/../b",
    "parent at the end": "/a/..",
    "dot": "/a/./b",
    "separator of keys": "/a|b",
    "relative": "a",
    "query": "/a?b",
}
BAD_HOSTS = {
    "newline": "a.example.com\nbind *:99",
    "space": "a.example.com b",
    "separator of keys": "a.example.com|/x",
    "every host": "*",
    "wildcard inside": "a.*.example.com",
    "two wildcards": "*.*.example.com",
    "port": "a.example.com:80",
    "trailing dot": "a.example.com.",
    "international": "bücher.example.com",
    "emoji": "🦄.example.com",
    "IPv6": "[::1]",
    "long label": f"{'a' * 64}.example.com",
    "long": ".".join(["a" * 50] * 6),
    "comment": "#a.example.com",
    "underscore": "a_b.example.com",
}


def rejects_only(rendered: Rendered, *rejected: str) -> None:
    """Check that *rejected* are all that is missing, and that nothing of them is left."""
    clean = render(GOOD)
    assert set(rendered.rejected) == set(rejected)
    assert rendered.text == clean.text
    assert rendered.files == clean.files


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Prefix", "Exact", "ImplementationSpecific"])
@pytest.mark.parametrize("bad", [pytest.param(value, id=name) for name, value in BAD_PATHS.items()])
def test_an_ingress_with_a_bad_path_is_rejected_as_a_whole(bad: str, kind: str) -> None:
    evil = ingress("evil", rule("evil.example.com", path("/fine", "good"), path(bad, "good", kind=kind)))

    rejects_only(render([*GOOD, evil]), "Ingress default/evil")


@pytest.mark.parametrize("bad", [pytest.param(value, id=name) for name, value in BAD_HOSTS.items()])
def test_an_ingress_with_a_bad_host_is_rejected_as_a_whole(bad: str) -> None:
    evil = ingress("evil", rule("evil.example.com", path("/", "good")), rule(bad, path("/", "good")))

    rejects_only(render([*GOOD, evil]), "Ingress default/evil")


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param({}, id="none"),
        pytest.param({"resource": {"kind": "Bucket", "name": "b"}}, id="resource"),
        pytest.param({"service": {"port": {"number": 80}}}, id="no name"),
        pytest.param({"service": "good"}, id="text"),
    ],
)
def test_an_ingress_with_an_unusable_backend_is_rejected(backend: dict[str, Any]) -> None:
    evil = ingress("evil", rule("e.example.com", {"path": "/", "pathType": "Prefix", "backend": backend}))

    rejects_only(render([*GOOD, evil]), "Ingress default/evil")


def test_an_external_name_is_rejected_with_its_service_and_answered_with_503() -> None:
    metadata = service("metadata", type="ExternalName", externalName="169.254.169.254")
    rendered = render([*GOOD, ingress("evil", rule("e.example.com", path("/", "metadata"))), metadata])

    assert "ExternalName" in rendered.rejected["Service default/metadata"]
    assert "169.254" not in rendered.text
    assert "e.example.com|/ default_metadata_80\n" in rendered.files["maps/path-prefix.map"]


@pytest.mark.parametrize(
    ("address", "port"),
    [
        ("1.2.3.4 check", 80),
        ("1.2.3.4\n    server x 5.6.7.8:80", 80),
        ("unix@/run/docker.sock", 80),
        ("evil.example.com", 80),
        ("$HOME", 80),
        ("10.0.0.1|80 10.0.0.2", 80),
        ("", 80),
        ("10.0.0.1", 65536),
        ("10.0.0.1", -1),
        ("10.0.0.1", "80 check"),
        ("fe80::1%eth0", 80),
    ],
)
def test_a_bad_endpoint_takes_its_service_out_and_no_other(address: str, port: Any) -> None:
    evil = ingress("evil", rule("e.example.com", path("/", "evil")))
    slices = endpoint_slice("evil", endpoint(address), ports={"": port})
    rendered = render([*GOOD, evil, service("evil"), slices])

    assert list(rendered.rejected) == ["Service default/evil"]
    assert rendered.text == render(GOOD).text


def test_names_that_no_api_server_accepts_stay_names() -> None:
    name = "a\n    server x 1.2.3.4:80\nbackend b from profile-http #"
    rendered = render(
        [
            *GOOD,
            ingress("evil", rule("e.example.com", path("/", name)), namespace="x y"),
            service(name, namespace="x y"),
        ]
    )

    assert [line for line in rendered.text.splitlines() if line.startswith("backend ")] == [
        "backend forwarded-requests from profile-http",
        "backend default_good_80 from profile-http",
        next(line for line in rendered.text.splitlines() if line.startswith("backend x:20y_a:0a")),
        "backend no-route from profile-http",
    ]
    assert "server x" not in rendered.text


@pytest.mark.haproxy
def test_names_of_any_length_and_look_are_accepted(cluster: Cluster) -> None:
    names = ["a.b", "a-b", "1", "a" * 63, "x" * 250, "a_b", "ä", "-"]
    rendered = cluster.render(
        *(ingress(f"i{number}", rule(f"h{number}.example.com", path("/", name))) for number, name in enumerate(names)),
        *(service(name) for name in names),
    )

    assert rendered.rejections == ()
    assert rendered.text.count("\nbackend ") == len(names) + 2
    assert cluster.check(rendered) == ""


@pytest.mark.haproxy
def test_a_path_of_100_kb_and_10000_paths_are_served(cluster: Cluster) -> None:
    with serving("good") as running:
        many = [path(f"/path/{number}", "good") for number in range(10_000)]
        rendered = cluster.serve(
            ingress("long", rule("good.example.com", path("/" + "a" * 100_000, "good"))),
            ingress("many", rule("good.example.com", *many)),
            service("good"),
            endpoint_slice("good", endpoint("127.0.0.1"), ports=running["good"]),
        )

        assert rendered.rejections == ()
        assert ask(cluster.http_port, "good.example.com", "/path/9999/x").status == 200
        assert ask(cluster.http_port, "good.example.com", "/path/10000").status == 404


@pytest.mark.haproxy
def test_log_format_in_requests_and_data_is_text(cluster: Cluster) -> None:
    with serving("good") as running:
        cluster.serve(
            ingress("good", rule("good.example.com", path("/100%25", "good"), path("/$(x)&a=b;c,d", "good"))),
            service("good"),
            endpoint_slice("good", endpoint("127.0.0.1"), ports=running["good"]),
        )

        assert ask(cluster.http_port, "good.example.com", "/100%25/x").status in (200, 404)
        # No character is encoded by `%[`, and a path that cannot be decoded is rejected.
        assert ask(cluster.http_port, "good.example.com", "/%[env(PATH)]").status == 400


@pytest.mark.haproxy
def test_a_key_of_another_certificate_is_rejected_before_haproxy_rejects_everything(cluster: Cluster) -> None:
    authority = trustme.CA()
    one, two = (authority.issue_cert("a.example.com") for _ in range(2))
    rendered = cluster.render(
        ingress("a", rule("a.example.com", path("/", "good")), tls=[{"secretName": "mixed"}]),
        tls_secret("mixed", one.cert_chain_pems[0].bytes(), two.private_key_pem.bytes()),
    )

    assert "not that of the first certificate" in rendered.rejected["Secret default/mixed"]
    assert cluster.check(rendered) == ""
