"""A certificate of a listener is shown for the hosts of that listener alone, whatever it names."""

import socket
import ssl
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509

from haptic_trio.gateway.listeners.certificates import CertificateProblem, secret_of
from haptic_trio.gateway.listeners.ports import PortHosts, ServedListener, with_lines
from haptic_trio.k8s.resource import Resource
from tests.attacks.inputs.credentials import weak_pairs
from tests.gateway.objects import gateway, made, route, rule, stores_of
from tests.gateway.serving import render, secret, served
from tests.support.processes.ports import free_port
from tests.support.traffic.proxy import check

OWNER, TENANT = (trustme.CA(organization_name=name) for name in ("owner", "tenant"))
HOST = "shop.test.example"


def pair(authority: trustme.CA, name: str, *hosts: str, kind: trustme.KeyType) -> Resource:
    issued = authority.issue_cert(*hosts, key_type=kind)
    return secret(name, (issued.cert_chain_pems[0].bytes().decode(), issued.private_key_pem.bytes().decode()))


def in_tenant(resource: Resource) -> Resource:
    return {**resource, "metadata": {**resource["metadata"], "namespace": "tenant"}}


def listener(name: str, port: int, **more: str) -> dict[str, Any]:
    return {"name": name, "port": port, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "pair"}]}, **more}


def shown(port: int, name: str) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 5) as plain,
            context.wrap_socket(plain, server_hostname=name) as connection,
        ):
            found = connection.getpeercert(binary_form=True)
    except ssl.SSLError as error:
        return str(error.reason)
    assert found is not None
    return "tenant" if "tenant" in x509.load_der_x509_certificate(found).issuer.rfc4514_string() else "owner"


@pytest.mark.haproxy
@pytest.mark.parametrize("kind", [trustme.KeyType.ECDSA, trustme.KeyType.RSA])
@pytest.mark.parametrize(
    ("more", "unknown"),
    [
        pytest.param({}, "tenant", id="all hosts"),
        pytest.param({"hostname": "*.test.example"}, "TLSV1_UNRECOGNIZED_NAME", id="wildcard"),
        pytest.param({"hostname": "tenant.test.example"}, "TLSV1_UNRECOGNIZED_NAME", id="another host"),
    ],
)
def test_a_listener_set_takes_no_host_of_the_gateway(
    tmp_path: Path, kind: trustme.KeyType, more: dict[str, str], unknown: str
) -> None:
    port = free_port()
    parent = {"name": "gw", "namespace": "web"}
    extra = made(
        "ListenerSet",
        "extra",
        namespace="tenant",
        spec={"parentRef": parent, "listeners": [listener("extra", port, **more)]},
    )
    objects = [
        gateway("gw", listener("own", port, hostname=HOST), allowedListeners={"namespaces": {"from": "All"}}),
        extra,
        pair(OWNER, "pair", HOST, kind=kind),
        in_tenant(
            pair(TENANT, "pair", HOST, "*.test.example", "tenant.test.example", kind=trustme.KeyType.ECDSA),
        ),
        route("web", rule("/", to="web")),
    ]

    with served(tmp_path, port, *objects):
        assert shown(port, HOST) == "owner"
        assert shown(port, "tenant.test.example") == "tenant"
        assert shown(port, "unknown.example.org") == unknown


@pytest.mark.haproxy
def test_a_listener_set_for_every_host_takes_no_host_of_more_labels_below_a_wildcard(tmp_path: Path) -> None:
    port = free_port()
    names = ("*.test.example", "*.eu.test.example", "a.b.c.test.example")
    spec = {"parentRef": {"name": "gw", "namespace": "web"}, "listeners": [listener("extra", port)]}
    objects = [
        gateway(
            "gw", listener("own", port, hostname="*.test.example"), allowedListeners={"namespaces": {"from": "All"}}
        ),
        made("ListenerSet", "extra", namespace="tenant", spec=spec),
        pair(OWNER, "pair", *names, kind=trustme.KeyType.RSA),
        in_tenant(pair(TENANT, "pair", *names, "tenant.example", kind=trustme.KeyType.ECDSA)),
        route("web", rule("/", to="web")),
    ]

    with served(tmp_path, port, *objects):
        found = {name: shown(port, name) for name in (HOST, "shop.eu.test.example", "a.b.c.test.example")}
        assert set(found.values()) == {"owner"}
        assert shown(port, "tenant.example") == "tenant"


@pytest.mark.haproxy
def test_very_many_hosts_of_several_namespaces_below_a_wildcard_leave_each_listener_its_certificate(
    tmp_path: Path,
) -> None:
    domain = ".".join(["d" * 60] * 3)
    passing, terminated = free_port(), free_port()
    own = [listener(f"own-{port}", port, hostname=f"*.{domain}") for port in (passing, terminated)]
    objects = [
        gateway("gw", *own, allowedListeners={"namespaces": {"from": "All"}}),
        pair(OWNER, "pair", HOST, kind=trustme.KeyType.ECDSA),
        route("web", rule("/", to="web")),
    ]
    theirs = pair(TENANT, "pair", HOST, kind=trustme.KeyType.ECDSA)
    through = {"protocol": "TLS", "tls": {"mode": "Passthrough"}}
    for port, more in ((passing, through), (terminated, {})):
        for number in range(6):
            namespace = f"tenant{number}-{port}"
            listeners = [
                {**listener(f"l{one}", port, hostname=f"{'h' * 50}{number}-{one}.{domain}"), **more}
                for one in range(64)
            ]
            spec = {"parentRef": {"name": "gw", "namespace": "web"}, "listeners": listeners}
            objects.append(made("ListenerSet", "many", namespace=namespace, spec=spec))
            objects.append({**theirs, "metadata": {**theirs["metadata"], "namespace": namespace}})

    rendered = render(*objects)

    assert rendered.rejections == ()
    files = {file.path: file.content.decode() for file in rendered.files.values()}
    assert check(tmp_path, rendered.text, files) == ""
    lines = [line.split() for text in files.values() for line in text.splitlines() if f" *.{domain}" in line]
    # Connections that are passed through do not come to the frontend of a crt-list.
    few, many = sorted(lines, key=len)
    excluded = Counter(word.partition("-")[0] for word in many[2:])
    assert few[2:] == []
    assert len(excluded) == 6
    assert min(excluded.values()) > 10


def test_names_of_other_listeners_are_left_out() -> None:
    wide = pair(OWNER, "pair", "a.example", "*.b.example", "c.example", "x.d.example", kind=trustme.KeyType.ECDSA)
    others = [ServedListener("k", host, ()) for host in ("a.example", "x.b.example", "*.d.example", "*.b.example.org")]
    one = ServedListener("k", "*", (wide,))
    ((_, names, excluded),) = with_lines(one, PortHosts([one, *others], [one, *others])).lines

    assert [name for name in names if "example" in name] == ["*.b.example", "c.example"]
    assert excluded == ("x.b.example",)


def test_names_of_more_labels_than_a_wildcard_of_haproxy_are_listed() -> None:
    names = "a.b.example", "x.a.b.example", "*.c.b.example", "own.d.b.example", "y.e.b.example", "a.example"
    others = [ServedListener("k", host, ()) for host in ("own.d.b.example", "*.e.b.example", "h.c.b.example", "*")]
    one = ServedListener("k", "*.b.example", (pair(OWNER, "pair", *names, kind=trustme.KeyType.ECDSA),))
    ((_, listed, excluded),) = with_lines(one, PortHosts([one, *others], [one, *others])).lines

    assert listed == ("*.b.example", "*.c.b.example", "x.a.b.example")
    assert excluded == ("h.c.b.example",)


def test_names_of_a_certificate_count_for_the_length_of_its_line() -> None:
    long = ".".join(["d" * 60] * 3)
    wide = pair(OWNER, "pair", f"*.{long}", *(f"n{one}.{long}" for one in range(99)), kind=trustme.KeyType.ECDSA)
    one = ServedListener("k", "*", (wide,))
    others = [ServedListener("k", f"h{host}.{long}", (), listener_set=(f"ns{host % 9}", "s")) for host in range(400)]
    ((_, names, excluded),) = with_lines(one, PortHosts([one, *others], [one, *others])).lines

    assert 200 < len(excluded) < 300
    assert sum(len(f" {name}") for name in names) + sum(len(f" !{host}") for host in excluded) <= 60_000
    assert {int(host.partition(".")[0][1:]) % 9 for host in excluded} == set(range(9))


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ({"tls.crt": "*", "tls.key": ""}, "tls.crt and tls.key must be PEM in Base64"),
        ({"tls.crt": "QQ=="}, "the value is not a sequence of well-formed PEM blocks"),
        ({}, "the value is not a sequence of well-formed PEM blocks"),
        (None, "the value is not a sequence of well-formed PEM blocks"),
    ],
    ids=["no Base64", "no PEM", "empty", "none"],
)
def test_a_secret_that_cannot_be_used_is_reported_with_the_reason(data: Any, fault: str) -> None:
    assert problem_of({**secret("pair", ("", "")), "data": data}) == f"the Secret web/pair cannot be used: {fault}"


def test_a_weak_certificate_is_reported_with_its_weakness() -> None:
    found = problem_of(secret("pair", weak_pairs()["RSA key of 1024 bits"]))

    assert found.startswith("the Secret web/pair cannot be used: certificate 1 has a weak key: RSA needs 2048 bits")


def problem_of(found: Resource) -> str:
    problem = secret_of(stores_of(found), {"name": "pair"}, kind="Gateway", namespace="web")
    assert isinstance(problem, CertificateProblem)
    assert problem.reason == "InvalidCertificateRef"
    return problem.message
