"""HTTPS: which certificate a client is shown, redirects, and what a bad Secret breaks."""

import socket
import ssl
from typing import Any

import pytest
import trustme

from haptic_trio.k8s.resource import Resource
from tests.libraries.conftest import Cluster
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service, tls_secret
from tests.support.traffic.servers import ask, names_of, serving

pytestmark = pytest.mark.haproxy

AUTHORITY = trustme.CA()


def secret(name: str, *hosts: str, age: int = 1, namespace: str = "default") -> Resource:
    issued = AUTHORITY.issue_cert(*hosts)
    chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    return tls_secret(name, chain, issued.private_key_pem.bytes(), age=age, namespace=namespace)


def secure(name: str, host: str, secret_name: str, **more: Any) -> Resource:
    return ingress(name, rule(host, path("/", "web")), tls=[{"hosts": [host], "secretName": secret_name}], **more)


def test_certificates_are_chosen_by_name(cluster: Cluster) -> None:
    cluster.serve(
        secure("a", "a.example.com", "a"),
        secure("wild", "*.example.com", "wild"),
        secret("a", "a.example.com"),
        secret("wild", "*.example.com"),
        secret("unused", "unused.example.com"),
    )

    assert names_of(cluster.https_port, "a.example.com") == {"a.example.com"}
    assert names_of(cluster.https_port, "b.example.com") == {"*.example.com"}


def test_a_client_that_checks_names_is_served(cluster: Cluster) -> None:
    with serving("web") as running:
        cluster.serve(
            secure("a", "a.example.com", "a"),
            secret("a", "a.example.com"),
            service("web"),
            endpoint_slice("web", endpoint("127.0.0.1"), ports=running["web"]),
            hstsMaxAge=3600,
            hstsIncludeSubDomains=True,
        )
        trusting = ssl.create_default_context()
        AUTHORITY.configure_trust(trusting)

        encrypted = ask(cluster.https_port, "a.example.com", tls=trusting)
        plain = ask(cluster.http_port, "a.example.com")

    assert "x-forwarded-proto: https" in encrypted.body.split("\n")
    assert "x-forwarded-proto: http" in plain.body.split("\n")
    assert encrypted.headers["strict-transport-security"] == "max-age=3600; includeSubDomains"
    assert "strict-transport-security" not in plain.headers


def test_http2_is_offered(cluster: Cluster) -> None:
    cluster.serve(secure("a", "a.example.com", "a"), secret("a", "a.example.com"))
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    context.set_alpn_protocols(["h2", "http/1.1"])

    with (
        socket.create_connection(("127.0.0.1", cluster.https_port), 5) as plain,
        context.wrap_socket(plain, server_hostname="a.example.com") as connection,
    ):
        assert connection.selected_alpn_protocol() == "h2"
        assert connection.version() == "TLSv1.3"


def test_old_protocol_versions_are_rejected(cluster: Cluster) -> None:
    cluster.serve(secure("a", "a.example.com", "a"), secret("a", "a.example.com"))
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1

    with pytest.raises((ssl.SSLError, ConnectionError)):
        ask(cluster.https_port, "a.example.com", tls=context)


def test_there_is_no_https_frontend_without_certificates(cluster: Cluster) -> None:
    rendered = cluster.serve(secure("a", "a.example.com", "missing"))

    assert "frontend https" not in rendered.text


def test_the_default_certificate_serves_unknown_names(cluster: Cluster) -> None:
    cluster.serve(
        secure("a", "a.example.com", "a"),
        secret("a", "a.example.com", age=1),
        secret("fallback", "fallback.example.com", namespace="certs", age=9),
        defaultCertificate="certs/fallback",
    )

    assert names_of(cluster.https_port, "a.example.com") == {"a.example.com"}
    assert names_of(cluster.https_port, "unknown.example.org") == {"fallback.example.com"}
    assert names_of(cluster.https_port, None) == {"fallback.example.com"}


def test_strict_sni_rejects_unknown_names(cluster: Cluster) -> None:
    cluster.serve(secure("a", "a.example.com", "a"), secret("a", "a.example.com"), strictSni=True)

    assert names_of(cluster.https_port, "a.example.com") == {"a.example.com"}
    with pytest.raises(ssl.SSLError):
        names_of(cluster.https_port, "unknown.example.org")


def test_of_two_certificates_for_one_name_that_of_the_older_ingress_is_served(cluster: Cluster) -> None:
    cluster.serve(
        secure("a", "a.example.com", "a-new", age=2),
        secure("b", "a.example.com", "b-old"),
        secret("a-new", "a.example.com", "new.example.com", age=1),
        secret("b-old", "a.example.com", "old.example.com", age=2),
    )

    assert names_of(cluster.https_port, "a.example.com") == {"a.example.com", "old.example.com"}


def test_a_secret_that_many_ingresses_name_is_one_file(cluster: Cluster) -> None:
    rendered = cluster.render(
        secure("a", "a.example.com", "both"), secure("b", "b.example.com", "both"), secret("both", "*.example.com")
    )

    pairs = {name for name in rendered.files if name.endswith(".pem")}
    assert pairs == {"ssl/default_both.pem", "ssl/placeholder.pem"}
    assert rendered.files["ssl/https.list"].split() == [
        "ssl/default_both.pem",
        "a.example.com",
        "b.example.com",
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param({"tls.crt": "AAAA", "tls.key": "AAAA"}, "PEM blocks", id="no PEM"),
        pytest.param({"tls.crt": "%%%", "tls.key": "%%%"}, "Base64", id="no Base64"),
        pytest.param({"tls.crt": "AAAA"}, "tls.key", id="no key"),
        pytest.param(None, "tls.crt", id="no data"),
        pytest.param({"tls.crt": "//79/A==", "tls.key": "//79/A=="}, "Base64", id="no UTF-8"),
    ],
)
def test_a_garbage_secret_is_rejected_and_its_host_stays_reachable(
    cluster: Cluster, data: dict[str, str] | None, message: str
) -> None:
    bad = secret("bad", "bad.example.com")
    bad["data"] = data

    rendered = cluster.serve(
        secure("bad", "bad.example.com", "bad"),
        secure("good", "good.example.com", "good"),
        bad,
        secret("good", "good.example.com"),
    )

    assert list(rendered.rejected) == ["Secret default/bad"]
    assert message in rendered.rejected["Secret default/bad"]
    assert names_of(cluster.https_port, "good.example.com") == {"good.example.com"}
    assert ask(cluster.http_port, "bad.example.com").status == 503


def test_plain_requests_are_redirected_only_for_hosts_with_tls(cluster: Cluster) -> None:
    cluster.serve(
        secure("a", "a.example.com", "a"),
        secure("wild", "*.example.org", "a"),
        ingress("plain", rule("plain.example.com", path("/", "web"))),
        secret("a", "a.example.com"),
        sslRedirect=True,
    )

    answer = ask(cluster.http_port, "A.example.com:8080", "/x?y=1")
    assert (answer.status, answer.headers["location"]) == (308, "https://a.example.com/x?y=1")
    assert ask(cluster.http_port, "b.example.org").status == 308
    assert ask(cluster.http_port, "plain.example.com").status == 503


def test_redirects_lead_to_the_port_that_clients_see(cluster: Cluster) -> None:
    cluster.serve(
        secure("a", "a.example.com", "a"), secret("a", "a.example.com"), sslRedirect=True, sslRedirectPort=8443
    )

    assert ask(cluster.http_port, "a.example.com").headers["location"] == "https://a.example.com:8443/"
