"""Endpoints behind TLS whose certificates are verified, and that are shown one, on a real HAProxy."""

import base64
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
import trustme

from haptic_trio.k8s.resource import Resource
from tests.attacks.inputs.credentials import parameters
from tests.libraries.conftest import Cluster
from tests.support.components.rendering import render
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, meta, path, rule, service
from tests.support.traffic.servers import QuietHandler, answering, ask

LIBRARIES = ("base", "ssl", "ingress", "nginx-annotations", "haproxy-org-annotations", "haproxy-ingress-annotations")
PREFIXES: Final = {"nginx": "nginx.ingress.kubernetes.io/", "org": "haproxy.org/", "hi": "haproxy-ingress.github.io/"}
INSIDE, OUTSIDE = trustme.CA(), trustme.CA()


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.0"

    def answer(self) -> None:
        shown = self.connection.getpeercert() if isinstance(self.connection, ssl.SSLSocket) else None
        self.send_response(200 if shown else 401)
        self.end_headers()


@contextmanager
def serving_tls(context: ssl.SSLContext | None = None) -> Iterator[int]:
    context = context or ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    INSIDE.issue_cert("web.internal", key_type=trustme.KeyType.RSA).configure_cert(context)
    INSIDE.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    with answering(_Handler, tls=context) as port:
        yield port


def secret(name: str, authority: trustme.CA) -> Resource:
    issued = INSIDE.issue_cert("proxy.internal")
    data = {
        "ca.crt": authority.cert_pem.bytes(),
        "tls.crt": issued.cert_chain_pems[0].bytes(),
        "tls.key": issued.private_key_pem.bytes(),
    }
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta(name), "data": encoded}


def annotated(name: str, vendor: str, annotations: dict[str, str], *, to: str = "web") -> Resource:
    given = {PREFIXES[vendor] + key: value for key, value in annotations.items()}
    return ingress(name, rule(f"{name}.example.com", path("/", to)), annotations=given)


@pytest.mark.haproxy
def test_server_certificates_are_verified_and_client_certificates_presented(cluster: Cluster) -> None:
    nginx = {"backend-protocol": "HTTPS", "proxy-ssl-verify": "on", "proxy-ssl-name": "web.internal"}
    hi = {"secure-backends": "true", "secure-crt-secret": "good"}
    expected = {"nginx-good": 200, "nginx-bad": 503, "nginx-name": 503, "nginx-shows": 200, "nginx-bare": 401}
    expected |= {"org-good": 200, "org-bad": 503, "org-bare": 401, "hi-good": 200, "hi-bad": 503, "hi-name": 503}
    with serving_tls() as port:
        cluster.serve(
            annotated("nginx-good", "nginx", {**nginx, "proxy-ssl-secret": "default/good"}),
            annotated("nginx-bad", "nginx", {**nginx, "proxy-ssl-secret": "bad"}),
            annotated("nginx-name", "nginx", {**nginx, "proxy-ssl-secret": "good", "proxy-ssl-name": "x.internal"}),
            annotated("nginx-shows", "nginx", {"backend-protocol": "HTTPS", "proxy-ssl-secret": "bad"}),
            annotated("nginx-bare", "nginx", {"backend-protocol": "HTTPS"}),
            annotated("org-good", "org", {"server-ca": "good", "server-crt": "default/good"}),
            annotated("org-bad", "org", {"server-ca": "bad", "server-crt": "good"}),
            annotated("org-bare", "org", {"server-ca": "good"}),
            annotated("hi-good", "hi", {**hi, "secure-verify-ca-secret": "good"}),
            annotated("hi-bad", "hi", {**hi, "secure-verify-ca-secret": "bad"}),
            annotated(
                "hi-name", "hi", {**hi, "secure-verify-ca-secret": "good", "secure-verify-hostname": "x.internal"}
            ),
            secret("good", INSIDE),
            secret("bad", OUTSIDE),
            service("web"),
            endpoint_slice("web", endpoint("127.0.0.1"), ports=port),
            libraries=LIBRARIES,
            retries=0,
        )

        assert {name: ask(cluster.http_port, f"{name}.example.com").status for name in expected} == expected


@pytest.mark.haproxy
def test_a_server_cannot_choose_the_group_of_a_key_exchange(cluster: Cluster, tmp_path: Path) -> None:
    """With a prime of 10,000 bits, a handshake would stop a thread of HAProxy for seconds."""
    (tmp_path / "group.pem").write_text(parameters(2_048))
    ports, nginx = {}, {"backend-protocol": "HTTPS", "proxy-ssl-secret": "good"}
    with ExitStack() as stack:
        for name in ("DHE", "ECDHE"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_dh_params(str(tmp_path / "group.pem"))
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            context.set_ciphers(f"{name}+AESGCM")
            ports[name] = stack.enter_context(serving_tls(context))
        cluster.serve(
            secret("good", INSIDE),
            *(
                one
                for name, port in ports.items()
                for one in (
                    annotated(name.lower(), "nginx", nginx, to=name.lower()),
                    service(name.lower()),
                    endpoint_slice(name.lower(), endpoint("127.0.0.1"), ports=port),
                )
            ),
            libraries=LIBRARIES,
            retries=0,
        )

        answers = {name: ask(cluster.http_port, f"{name}.example.com").status for name in ("dhe", "ecdhe")}
    assert answers == {"dhe": 503, "ecdhe": 200}


@pytest.mark.parametrize(
    ("vendor", "annotations", "problem"),
    [
        ("nginx", {"proxy-ssl-verify": "on", "backend-protocol": "HTTPS"}, "requires proxy-ssl-secret"),
        ("nginx", {"backend-protocol": "HTTPS", "proxy-ssl-secret": "other/good"}, "in the namespace"),
        ("nginx", {"enable-modsecurity": "true"}, "enable-modsecurity must be false"),
        ("nginx", {"service-upstream": "true"}, "service-upstream must be false"),
        ("nginx", {"satisfy": "some"}, "satisfy must be all or any"),
        ("nginx", {"proxy-next-upstream": "error; deny all"}, "proxy-next-upstream supports"),
        ("org", {"server-ca": "absent"}, "does not exist"),
        ("org", {"server-crt": "absent"}, "does not exist"),
        ("org", {"forwarded-for": "false"}, "must not be off"),
        ("hi", {"secure-verify-ca-secret": "good"}, "requires TLS"),
        (
            "hi",
            {"affinity": "cookie", "session-cookie-preserve": "true"},
            "session-cookie-preserve and session-cookie-shared must be false",
        ),
    ],
)
def test_an_annotation_that_cannot_be_honoured_quarantines_the_ingress(
    vendor: str, annotations: dict[str, str], problem: str
) -> None:
    slices = endpoint_slice("web", endpoint("127.0.0.1"), ports=80)
    objects = [annotated("evil", vendor, annotations), secret("good", INSIDE), service("web"), slices]

    assert problem in render(objects, libraries=LIBRARIES).rejected["Ingress default/evil"]


def test_annotations_with_another_prefix_of_the_vendor_are_rejected() -> None:
    old = ingress(
        "old", rule("old.example.com", path("/", "web")), annotations={"haproxy.com/allow-list": "10.0.0.0/8"}
    )
    rendered = render([old, service("web")], libraries=("base", "ssl", "ingress", "haproxy-org-annotations"))

    assert "use the prefix haproxy.org/" in rendered.rejected["Ingress default/old"]
