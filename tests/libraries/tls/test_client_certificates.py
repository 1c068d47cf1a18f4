"""Client certificates: which clients are admitted, over which connection, and that none can impersonate another."""

import base64
import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatch
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import FileKind, Generation, make_file, make_generation
from haptic_trio.haproxy.plan.capabilities import NEWEST
from haptic_trio.haproxy.plan.operations import StoreTrust
from haptic_trio.haproxy.plan.plan import OLDEST, make_plan
from haptic_trio.k8s.resource import Resource
from tests.libraries.conftest import Cluster
from tests.support.components.rendering import render
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, meta, path, rule, service, tls_secret
from tests.support.traffic.servers import Answer, ask, serving

LIBRARIES = ("base", "ssl", "ingress", "nginx-annotations", "haproxy-ingress-annotations")
NGINX, HI = "nginx.ingress.kubernetes.io/", "haproxy-ingress.github.io/"
SITES = trustme.CA()
ONE, TWO = trustme.CA(), trustme.CA()


def authority_secret(name: str, authority: trustme.CA | bytes, **more: bytes) -> Resource:
    bundle = authority if isinstance(authority, bytes) else authority.cert_pem.bytes()
    data = {"ca.crt": bundle, **{key.replace("_", "."): value for key, value in more.items()}}
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta(name), "data": encoded}


def site_secret(*hosts: str) -> Resource:
    issued = SITES.issue_cert(*hosts)
    return tls_secret("site", issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes())


SITE_SECRET = site_secret("must.example.com")


def asking(name: str, annotations: dict[str, str], prefix: str = NGINX, host: str = "", age: int = 1) -> Resource:
    host = host or f"{name}.example.com"
    return ingress(
        name,
        rule(host, path("/" if host.startswith(name) else f"/{name}", "web")),
        annotations={prefix + key: value for key, value in annotations.items()},
        tls=[{"hosts": [host], "secretName": "site"}],
        age=age,
    )


def client(authority: trustme.CA | None = None, name: str = "joe", *, newest: bool = True) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if not newest:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if authority is not None:
        authority.issue_cert(f"{name}@example.com", common_name=name).configure_cert(context)
    return context


@contextmanager
def connected(
    cluster: Cluster, sni: str | None, context: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> Iterator[ssl.SSLSocket]:
    with (
        socket.create_connection(("127.0.0.1", cluster.https_port), 5) as plain,
        context.wrap_socket(plain, server_hostname=sni, session=session) as connection,
    ):
        yield connection


def request(connection: ssl.SSLSocket, host: str, at: str = "/", *headers: str) -> Answer:
    lines = [f"GET {at} HTTP/1.1", f"Host: {host}", *headers, "", ""]
    connection.sendall("\r\n".join(lines).encode())
    response = http.client.HTTPResponse(connection)
    response.begin()
    found = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, response.read().decode(), found)


def once(cluster: Cluster, host: str, context: ssl.SSLContext, at: str = "/", *headers: str) -> Answer:
    with connected(cluster, host, context) as connection:
        return request(connection, host, at, *headers)


@pytest.mark.haproxy
def test_who_comes_in_and_what_the_endpoint_learns(cluster: Cluster) -> None:
    hosts = [f"{name}.example.com" for name in ("must", "may", "named", "page", "plain", "older", "hi")]
    with serving("web") as running:
        cluster.serve(
            asking("must", {"auth-tls-secret": "one", "auth-tls-pass-certificate-to-upstream": "true"}),
            asking("may", {"auth-tls-secret": "default/two", "auth-tls-verify-client": "optional"}),
            asking("named", {"auth-tls-secret": "one", "auth-tls-match-cn": "CN=joe"}),
            asking("page", {"auth-tls-secret": "one", "auth-tls-error-page": "https://a.example.com/why"}),
            asking("older", {"auth-tls-secret": "one"}),
            asking("rival", {"auth-tls-secret": "two"}, host="older.example.com", age=2),
            asking("hi", {"auth-tls-secret": "two", "auth-tls-cert-header": "true"}, HI),
            asking("plain", {"auth-tls-verify-client": "off"}),
            authority_secret("one", ONE),
            authority_secret("two", TWO),
            site_secret(*hosts),
            service("web"),
            endpoint_slice("web", endpoint("127.0.0.1"), ports=running["web"]),
            libraries=LIBRARIES,
        )
        nothing, joe, eve = client(), client(ONE), client(TWO, "eve")

        known = once(cluster, "must.example.com", joe, "/", "ssl-client-verify: NO", "ssl-client-subject-dn: CN=root")
        assert known.status == 200
        assert "ssl-client-verify: SUCCESS" in known.body
        assert "CN=joe" in known.body
        assert "root" not in known.body
        assert "ssl-client-cert: -----BEGIN%20CERTIFICATE-----%0AMII" in known.body
        assert once(cluster, "must.example.com", nothing).status == 403
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            once(cluster, "must.example.com", eve)
        assert ask(cluster.http_port, "must.example.com").status == 403

        assert "ssl-client-verify: NONE" in once(cluster, "may.example.com", nothing).body
        assert "CN=eve" in once(cluster, "may.example.com", eve).body
        assert once(cluster, "named.example.com", joe).status == 200
        assert once(cluster, "named.example.com", client(ONE, "joe.evil")).status == 403
        assert once(cluster, "page.example.com", nothing).headers["location"] == "https://a.example.com/why"
        shown = once(cluster, "hi.example.com", eve, "/", "X-SSL-Client-CN: root").body
        assert "x-ssl-client-cn: eve" in shown
        assert "root" not in shown
        assert once(cluster, "plain.example.com", nothing).status == 200

        # What was shown for another host, or to other authorities, does not count.
        with connected(cluster, "may.example.com", eve) as connection:
            assert request(connection, "may.example.com").status == 200
            assert request(connection, "must.example.com").status == 421
            assert request(connection, "MUST.example.com.:443").status == 421
        with connected(cluster, None, nothing) as connection:
            assert request(connection, "must.example.com").status == 421
        assert once(cluster, "older.example.com", joe).status == 200
        assert once(cluster, "older.example.com", joe, "/rival").status == 421


@pytest.mark.haproxy
def test_a_canary_that_verifies_clients_less_strictly_gets_no_requests(cluster: Cluster) -> None:
    verified, canary = {"auth-tls-secret": "one"}, {"canary": "true", "canary-weight": "100"}
    with serving("web") as running:
        cluster.serve(
            asking("must", verified),
            asking("other", verified | canary | {"auth-tls-verify-client": "optional"}, host="must.example.com")
            | {"spec": asking("must", {})["spec"]},
            authority_secret("one", ONE),
            SITE_SECRET,
            service("web"),
            endpoint_slice("web", endpoint("127.0.0.1"), ports=running["web"]),
            libraries=LIBRARIES,
        )

        assert once(cluster, "must.example.com", client()).status == 403
        assert once(cluster, "must.example.com", client(ONE)).status == 200


@pytest.mark.haproxy
@pytest.mark.parametrize("newest", [False, True])
def test_a_session_of_another_host_is_rejected(cluster: Cluster, newest: bool) -> None:
    with serving("web") as running:
        cluster.serve(
            asking("must", {"auth-tls-secret": "one"}),
            asking("may", {"auth-tls-secret": "two"}),
            authority_secret("one", ONE),
            authority_secret("two", TWO),
            site_secret("must.example.com", "may.example.com"),
            service("web"),
            endpoint_slice("web", endpoint("127.0.0.1"), ports=running["web"]),
            libraries=LIBRARIES,
        )
        context = client(TWO, "eve", newest=newest)
        with connected(cluster, "may.example.com", context) as connection:
            assert request(connection, "may.example.com").status == 200
            session = connection.session

        with connected(cluster, "may.example.com", context, session) as connection:
            assert request(connection, "may.example.com").status == 200
        statuses = set()
        with (
            contextlib.suppress(ssl.SSLError, OSError, http.client.HTTPException),
            connected(cluster, "must.example.com", context, session) as connection,
        ):
            statuses.add(request(connection, "must.example.com").status)
        assert statuses <= {403, 421}


@pytest.mark.haproxy
@pytest.mark.parametrize("newest", [False, True])
def test_a_resumed_session_ends_with_its_certificate(cluster: Cluster, newest: bool) -> None:
    with serving("web") as running:
        rendered = cluster.render(
            asking("must", {"auth-tls-secret": "one"}),
            authority_secret("one", ONE),
            SITE_SECRET,
            service("web"),
            endpoint_slice("web", endpoint("127.0.0.1"), ports=running["web"]),
            libraries=LIBRARIES,
        )
        context = client(newest=newest)
        expires = datetime.now(UTC) + timedelta(hours=1)
        ONE.issue_cert("joe@example.com", not_after=expires).configure_cert(context)
        # As HAProxy sees it when the client comes back: OpenSSL does not verify the certificate again.
        for later, status in (("", 200), ("(7200)", 403)):
            with cluster.running(rendered.text.replace("date,utime", f"date{later},utime"), rendered):
                with connected(cluster, "must.example.com", context) as connection:
                    assert request(connection, "must.example.com").status == status
                    session = connection.session
                with connected(cluster, "must.example.com", context, session) as connection:
                    assert (request(connection, "must.example.com").status, connection.session_reused) == (status, True)


def revoked_by(authority: ec.EllipticCurvePrivateKey, name: x509.Name, *serials: int) -> bytes:
    now = datetime.now(UTC)
    builder = x509.CertificateRevocationListBuilder(name, now, now + timedelta(days=1))
    for serial in serials:
        builder = builder.add_revoked_certificate(
            x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        )
    return builder.sign(authority, SHA256()).public_bytes(Encoding.PEM)


def issued_by(issuer: x509.Name, signer: ec.EllipticCurvePrivateKey, name: x509.Name, key: ec.EllipticCurvePrivateKey,
              *, is_authority: bool = False) -> x509.Certificate:  # fmt: skip
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        .sign(signer, SHA256())
    )


@pytest.mark.haproxy
def test_revoked_certificates_and_names_with_line_breaks_do_not_come_in(cluster: Cluster, tmp_path: Path) -> None:
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    authority = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
    root = issued_by(authority, keys[0], authority, keys[0], is_authority=True)
    contexts: dict[str, ssl.SSLContext] = {}
    serials: dict[str, int] = {}
    # As text, longer than what HAProxy reads as a whole, although the certificate is not.
    unknown = x509.ObjectIdentifier(".".join(["1.3.6.1.4.1", *["268435455"] * 5]))
    long = [x509.NameAttribute(unknown, "x")] * 300
    broken = "a\r\nX-Admin: yes"
    for name in ("fine", "revoked", broken, "long", f"long{broken}", ""):
        called = [x509.NameAttribute(x509.NameOID.COMMON_NAME, name)] if name else []
        subject = x509.Name([*called, *(long if name.startswith("long") else [])])
        leaf = issued_by(authority, keys[0], subject, keys[1])
        file = tmp_path / f"{len(contexts)}.pem"
        key = keys[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        file.write_bytes(key + leaf.public_bytes(Encoding.PEM))
        contexts[name], serials[name] = client(), leaf.serial_number
        contexts[name].load_cert_chain(file)
    with serving("web") as running:
        cluster.serve(
            asking("must", {"auth-tls-secret": "one"}),
            asking("hi", {"auth-tls-secret": "one"}, HI),
            authority_secret(
                "one", root.public_bytes(Encoding.PEM), ca_crl=revoked_by(keys[0], authority, serials["revoked"])
            ),
            site_secret("must.example.com", "hi.example.com"),
            service("web"),
            endpoint_slice("web", endpoint("127.0.0.1"), ports=running["web"]),
            libraries=LIBRARIES,
        )

        assert once(cluster, "must.example.com", contexts["fine"]).status == 200
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            once(cluster, "must.example.com", contexts["revoked"])
        for name in (broken, f"long{broken}"):
            for host in ("hi.example.com", "must.example.com"):
                assert once(cluster, host, contexts[name]).status == 403
        # No application takes an empty header for a name.
        found = once(cluster, "hi.example.com", contexts["long"]).body
        assert "x-ssl-client-cn: long" in found
        assert "x-ssl-client-dn" not in found
        found = once(cluster, "hi.example.com", contexts[""]).body
        assert "x-ssl-client-sha1" in found
        assert "x-ssl-client-cn" not in found


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({"auth-tls-secret": "other/one"}, "in the namespace"),
        ({"auth-tls-secret": "absent"}, "does not exist"),
        ({"auth-tls-secret": "garbage"}, "cannot be read"),
        ({"auth-tls-secret": "key"}, "other than"),
        ({"auth-tls-secret": "one", "auth-tls-match-cn": "CN=abc #(\n){}\n }}\nssl_engine x;"}, "CN= and a name"),
        ({"auth-tls-secret": "one", "auth-tls-match-cn": "CN=.*"}, "CN= and a name"),
        (
            {"auth-tls-secret": "one", "auth-tls-verify-client": "optional_no_ca"},
            "auth-tls-verify-client must be on, off, optional",
        ),
        ({"auth-tls-secret": "one", "auth-tls-verify-depth": "1"}, "not supported"),
        ({"auth-tls-secret": "one", "auth-tls-error-page": "javascript:x"}, "neither an http"),
        ({"auth-tls-error-page": "/x"}, "requires auth-tls-secret"),
    ],
)
def test_an_ingress_with_unusable_client_verification_is_quarantined(annotations: dict[str, str], problem: str) -> None:
    garbage = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    rendered = render(
        [
            asking("evil", annotations),
            authority_secret("one", ONE),
            authority_secret("garbage", garbage),
            authority_secret("key", ONE.cert_pem.bytes() + ONE.private_key_pem.bytes()),
            site_secret("evil.example.com"),
            service("web"),
        ],
        libraries=LIBRARIES,
    )

    assert problem in rendered.rejected["Ingress default/evil"]
    assert "evil" not in rendered.text


def test_a_host_without_a_certificate_of_its_own_is_rejected() -> None:
    bare = asking("bare", {"auth-tls-secret": "one"})
    bare["spec"]["tls"] = [{"hosts": ["other.example.com"], "secretName": "site"}]

    rejected = render([bare, authority_secret("one", ONE), service("web")], libraries=LIBRARIES).rejected

    assert "must list each host" in rejected["Ingress default/bare"]


def test_removed_ca_certificates_reload_a_haproxy_that_cannot_drop_sessions() -> None:
    def generation(*authorities: trustme.CA) -> Generation:
        bundle = b"".join(authority.cert_pem.bytes() for authority in authorities)
        objects = [
            asking("must", {"auth-tls-secret": "one"}),
            authority_secret("one", bundle),
            SITE_SECRET,
            *(service("web"), endpoint_slice("web", endpoint("127.0.0.1"), ports=80)),
        ]
        rendered = render(objects, libraries=LIBRARIES)
        assert rendered.rejections == ()
        kinds = {"maps/*.map": FileKind.MAP, "ssl/*.pem": FileKind.CERT, "ssl/*.list": FileKind.CRT_LIST}
        files = [
            make_file(next((kind for form, kind in kinds.items() if fnmatch(name, form)), FileKind.FILE), name, text)
            for name, text in rendered.files.items()
        ]
        return make_generation(parse_config(rendered.text), files)

    for after, capabilities, is_sent in (
        ((ONE, TWO), OLDEST, True),
        ((TWO,), OLDEST, False),
        ((TWO,), NEWEST, True),
    ):
        plan = make_plan(generation(ONE), generation(*after), capabilities=capabilities)
        assert [type(operation) for operation in plan.operations] == ([StoreTrust] if is_sent else [])
        assert plan.reloads is not is_sent
