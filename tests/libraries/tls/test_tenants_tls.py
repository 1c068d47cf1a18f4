"""An object cannot change what TLS clients get for a host of an older object of another namespace."""

import socket
import ssl
from typing import Any

import pytest
import trustme
from cryptography import x509

from haptic_trio.k8s.resource import Resource
from tests.libraries.conftest import Cluster
from tests.libraries.tenants.tenants import (
    ALL,
    CLIENTS,
    EC,
    EVIL,
    HI,
    HOST,
    NGINX,
    OTHERS,
    REST,
    REST_TLS,
    RSA,
    SHOP,
    SHOP_TLS,
    VICTIM,
    WILDCARD,
    evil,
    secret,
    secured,
    victim,
)
from tests.libraries.tls.test_client_certificates import authority_secret, client
from tests.support.components.rendering import render
from tests.support.kubernetes import (
    endpoint,
    endpoint_slice,
    ingress,
    path,
    rule,
    service,
    service_backend,
)
from tests.support.traffic.servers import ask, serving


def shown(cluster: Cluster, name: str | None) -> str:
    """Return who has issued the certificate that a client is shown who asks for *name*."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", cluster.https_port), 5) as plain,
        context.wrap_socket(plain, server_hostname=name) as connection,
    ):
        found = connection.getpeercert(binary_form=True)
    assert found is not None
    issuer = x509.load_der_x509_certificate(found).issuer.rfc4514_string()
    return next(name for name in ("victim", "evil", "rest", "placeholder") if name in issuer)


@pytest.mark.haproxy
@pytest.mark.parametrize(
    "attack",
    [
        pytest.param([evil(rule(HOST, path("/x", "web")), tls=secured(HOST))], id="same host"),
        pytest.param([evil(rule(HOST.upper(), path("/x", "web")), tls=secured("Shop.Example.COM"))], id="other case"),
        pytest.param([evil(rule("evil.example.org", path("/", "web")), tls=secured("evil.example.org"))], id="names"),
        pytest.param([evil(rule("evil.example.org", path("/", "web")), tls=[{"secretName": "tls"}])], id="no hosts"),
        pytest.param([evil(rule("evil.example.org", path("/", "web")), tls=secured(HOST))], id="spec.tls alone"),
        pytest.param([evil(tls=secured(HOST), defaultBackend=service_backend("web"))], id="default backend"),
        pytest.param([evil(tls=[{"secretName": "tls"}], defaultBackend=service_backend("web"))], id="every host"),
        pytest.param([evil(rule(WILDCARD, path("/", "web")), tls=secured(WILDCARD))], id="wildcard"),
        pytest.param(
            [evil(rule(WILDCARD, path("/", "web")), tls=secured(WILDCARD), age=1, name="a")], id="old wildcard"
        ),
        pytest.param(
            [
                evil(
                    rule(HOST, path("/x", "web")), tls=secured(HOST), annotations={NGINX + "auth-tls-secret": "clients"}
                )
            ],
            id="clients",
        ),
        pytest.param(
            [
                evil(
                    rule(WILDCARD, path("/x", "web")),
                    tls=secured(WILDCARD),
                    annotations={HI + "auth-tls-secret": "clients"},
                )
            ],
            id="wildcard with clients",
        ),
        pytest.param(
            [
                evil(
                    rule("evil.example.org", path("/", "web")),
                    tls=[{"secretName": "tls"}, *secured(HOST)],
                    annotations={NGINX + "server-alias": HOST},
                )
            ],
            id="alias",
        ),
    ],
)
@pytest.mark.parametrize("kind", [EC, RSA])
def test_another_certificate_is_never_shown_for_the_host_of_an_older_ingress(
    cluster: Cluster, attack: list[Resource], kind: trustme.KeyType
) -> None:
    cluster.serve(
        victim(rule(HOST, path("/", "web")), tls=secured(HOST)),
        secret("victim", "tls", HOST, by=VICTIM, age=5, kind=kind),
        # A Secret keeps its age whatever is put into it.
        secret("attacker", "tls", HOST, WILDCARD, "evil.example.org", by=EVIL, age=1),
        {**authority_secret("clients", OTHERS), "metadata": {"namespace": "attacker", "name": "clients"}},
        *attack,
        libraries=ALL,
    )

    assert shown(cluster, HOST) == "victim"
    assert shown(cluster, "unknown.example.net") == "placeholder"


@pytest.mark.haproxy
@pytest.mark.parametrize(
    ("other", "found"),
    [
        pytest.param(evil(rule(HOST, path("/x", "web")), tls=secured(HOST)), "rest", id="same host"),
        pytest.param(evil(rule("evil.example.org", path("/", "web")), tls=secured(HOST)), "rest", id="spec.tls alone"),
        pytest.param(evil(rule(WILDCARD, path("/", "web")), tls=secured(WILDCARD)), "rest", id="wildcard"),
        pytest.param(
            evil(rule(WILDCARD, path("/", "web")), tls=secured(WILDCARD), age=1, name="a"), "evil", id="older wildcard"
        ),
    ],
)
@pytest.mark.parametrize("default", ["certs/rest", ""])
def test_a_host_without_a_certificate_gets_the_default_one_and_no_younger_one(
    cluster: Cluster, other: Resource, found: str, default: str
) -> None:
    cluster.serve(
        victim(rule(HOST, path("/", "web")), age=2),
        other,
        # Something listens, in any case.
        ingress("any", rule("any.example.net", path("/", "web")), tls=secured("any.example.net")),
        secret("default", "tls", "any.example.net", by=VICTIM),
        secret("attacker", "tls", HOST, WILDCARD, "evil.example.org", by=EVIL, age=1),
        REST_TLS,
        defaultCertificate=default,
    )

    assert shown(cluster, HOST) == (found if default or found == "evil" else "placeholder")


@pytest.mark.haproxy
@pytest.mark.parametrize("name", [HOST, WILDCARD])
def test_the_default_certificate_is_shown_for_no_host_with_a_certificate_of_another_kind(
    cluster: Cluster, name: str
) -> None:
    cluster.serve(
        victim(rule(HOST, path("/", "web")), tls=secured(HOST)),
        *(
            victim(rule(f"{one}.example.com", path("/", "web")), tls=secured(f"{one}.example.com", name=one), name=one)
            for one in ("absent", "other")
        ),
        secret("victim", "tls", HOST, by=VICTIM, kind=RSA),
        secret("victim", "other", "other.example.com", by=VICTIM, kind=RSA),
        secret("certs", "rest", name, by=REST),
        libraries=ALL,
        defaultCertificate="certs/rest",
        strictSni=True,
    )

    assert shown(cluster, HOST) == "victim"
    assert shown(cluster, "other.example.com") == "victim"
    if name == WILDCARD:
        assert shown(cluster, "absent.example.com") == "rest"
        assert shown(cluster, "unknown.example.com") == "rest"
    else:
        with pytest.raises(ssl.SSLError):
            shown(cluster, "unknown.example.com")


@pytest.mark.haproxy
def test_the_oldest_ingress_decides_and_then_the_next_one(cluster: Cluster) -> None:
    rival = evil(rule(HOST, path("/x", "web")), tls=secured(HOST), age=2)
    secrets = (SHOP_TLS, secret("attacker", "tls", HOST, by=EVIL, age=1))
    cluster.serve(rival, *secrets)
    assert shown(cluster, HOST) == "evil"


def test_the_owner_of_a_host_decides_whether_client_certificates_are_required() -> None:
    def asking(make: Any, **more: Any) -> Resource:
        found: Resource = make(
            rule(HOST, path("/" if make is victim else "/x", "web")),
            tls=secured(HOST),
            annotations={NGINX + "auth-tls-secret": "clients"},
            **more,
        )
        return found

    def lists(*objects: Resource) -> tuple[str, str]:
        files = render(
            [
                *objects,
                SHOP_TLS,
                secret("attacker", "tls", HOST, by=EVIL),
                *(
                    {**authority_secret("clients", CLIENTS), "metadata": {"namespace": one, "name": "clients"}}
                    for one in ("victim", "attacker")
                ),
            ],
            libraries=ALL,
        ).files
        return files["ssl/https.list"], files["maps/ingress-clients.map"]

    crt_list, clients = lists(SHOP, asking(evil))
    assert "verify" not in crt_list
    assert "attacker" not in crt_list
    assert clients.strip() == ""

    crt_list, clients = lists(asking(victim), evil(rule(HOST, path("/x", "web")), tls=secured(HOST)))
    first, last = (line for line in crt_list.splitlines() if line)
    assert "verify optional] shop.example.com" in first
    assert last == "ssl/victim_tls.pem shop.example.com"
    assert [line.split()[0] for line in clients.splitlines() if line] == [HOST]

    younger = asking(victim, name="younger", age=2)
    assert "verify optional" in lists(SHOP, younger)[0].splitlines()[0]
    assert [line.split()[0] for line in lists(SHOP, younger)[1].splitlines() if line] == [HOST]


@pytest.mark.haproxy
@pytest.mark.parametrize(
    ("age", "count"),
    [
        pytest.param(1, 0, id="older wildcard"),
        pytest.param(21, 0, id="younger wildcard"),
        pytest.param(1, 550, id="older wildcard with more hosts below it than a line excludes"),
    ],
)
def test_ca_certificates_of_a_wildcard_do_not_apply_to_a_host_below_it(cluster: Cluster, age: int, count: int) -> None:
    def asking(make: Any, *hosts: str, **more: Any) -> Resource:
        annotations = {NGINX + "auth-tls-secret": "clients"}
        rules = [rule(host, path("/", "web")) for host in hosts]
        found: Resource = make(*rules, tls=secured(*hosts), annotations=annotations, **more)
        return found

    below = [f"h{number}.example.com" for number in range(count)]
    with serving("web") as running:
        cluster.serve(
            asking(victim, HOST, age=2),
            asking(evil, WILDCARD, age=age),
            *([asking(evil, *below, age=1, name="below")] if below else []),
            secret("victim", "tls", HOST, by=VICTIM, kind=RSA),
            secret("attacker", "tls", WILDCARD, by=EVIL),
            {**authority_secret("clients", CLIENTS), "metadata": {"namespace": "victim", "name": "clients"}},
            {**authority_secret("clients", OTHERS), "metadata": {"namespace": "attacker", "name": "clients"}},
            service("web", namespace="victim"),
            endpoint_slice("web", endpoint("127.0.0.1"), ports=running["web"], namespace="victim"),
            libraries=ALL,
        )
        assert ask(cluster.https_port, HOST, tls=client(CLIENTS)).status == 200
        assert ask(cluster.https_port, HOST, tls=client()).status == 403
        with pytest.raises((ssl.SSLError, OSError)):
            ask(cluster.https_port, HOST, tls=client(OTHERS, "eve"))


@pytest.mark.haproxy
def test_many_hosts_of_one_certificate_are_several_lines(cluster: Cluster) -> None:
    hosts = [f"h{number}.{'long-' * 8}label.example.com" for number in range(1_500)]
    rendered = cluster.serve(
        victim(*(rule(host, path("/", "web")) for host in hosts), tls=secured(*hosts)),
        secret("victim", "tls", *hosts[:1], by=VICTIM),
    )
    lines = rendered.files["ssl/https.list"].splitlines()

    assert len({line.split()[0] for line in lines}) == len(lines) > 1
    assert sorted(word for line in lines for word in line.split()[1:]) == sorted(hosts)
    assert all(len(line) < 12_000 for line in lines)
    assert {shown(cluster, host) for host in (hosts[0], hosts[700], hosts[-1])} == {"victim"}
