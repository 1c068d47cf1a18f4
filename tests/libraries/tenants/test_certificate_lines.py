"""Certificate lines of one namespace: their cost to HAProxy shares a limit, whatever names the certificates."""

import base64
from collections.abc import Iterable
from typing import Any

import pytest
import trustme
from msgspec.structs import replace

from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.validation_tests.fixtures import make_stores
from tests.attacks.inputs.credentials import pair_for
from tests.gateway.objects import gateway_class, made, plural_of
from tests.libraries.tenants.tenants import EC
from tests.support.components.rendering import library_config
from tests.support.kubernetes import ingress, path, rule, service, tls_secret

LIBRARIES = ("base", "ssl", "ingress", "gateway", "haproxy-ingress-annotations")
CA = trustme.CA()
ISSUED = CA.issue_cert("a.test", key_type=EC)
CHAIN, KEY = ISSUED.cert_chain_pems[0].bytes(), ISSUED.private_key_pem.bytes()
EXCESS = "the output of all objects of the namespace attacker has more than {:,} certificate lines"


def secrets(number: int, namespace: str = "attacker", chain: bytes = CHAIN) -> list[Resource]:
    return [tls_secret(f"c{one}", chain, KEY, namespace=namespace) for one in range(number)]


def listeners(number: int, certificates: int, port: int = 9000) -> list[dict[str, Any]]:
    tls = {"certificateRefs": [{"name": f"c{one}"} for one in range(certificates)]}
    return [
        {"name": f"l{one}", "port": port, "protocol": "HTTPS", "hostname": f"l{one}.p{port}.test", "tls": tls}
        for one in range(number)
    ]


def gateway(name: str, *found: dict[str, Any], namespace: str = "attacker", **more: Any) -> Resource:
    spec = {"gatewayClassName": "haptic", "listeners": list(found), **more}
    return made("Gateway", name, namespace=namespace, spec=spec)


def listener_set(name: str, *found: dict[str, Any], parent: str) -> Resource:
    reference = {"name": parent, "namespace": "infra"}
    spec = {"parentRef": reference, "listeners": list(found)}
    return made("ListenerSet", name, namespace="attacker", spec=spec)


def secured(name: str, *certificates: str, namespace: str = "attacker", **annotations: str) -> Resource:
    hosts = [f"{certificate}.{name}.test" for certificate in certificates]
    blocks = [{"hosts": [host], "secretName": one} for host, one in zip(hosts, certificates, strict=True)]
    rules = [rule(host, path("/", "app")) for host in hosts]
    return ingress(name, *rules, namespace=namespace, tls=blocks, annotations=annotations)


def secret_of_authorities(authorities: str) -> Resource:
    data = {"ca.crt": base64.b64encode(authorities.encode()).decode()}
    return made("Secret", "ca", namespace="attacker", version="v1", type="Opaque", data=data)


def rendered(objects: Iterable[Resource], limit: int | None = None, **variables: Any) -> Rendered:
    config = library_config(*LIBRARIES, **variables)
    if limit is not None:
        config = replace(config, templating=replace(config.templating, max_namespace_certificate_lines=limit))
    stores = make_stores(config)
    for one in [*objects, gateway_class(), service("app", namespace="attacker"), service("app", namespace="victim")]:
        for name, watched in config.watched_resources.items():
            if plural_of(one) == watched.resources and one["apiVersion"] == watched.api_version:
                stores[name].upsert(one)
    return Renderer(config).render_here(stores)


def certified(namespace: str, name: str, *hosts: str) -> Resource:
    """Return a Secret with a certificate for *hosts*."""
    certificate, key = pair_for(*hosts)
    return tls_secret(name, certificate.encode(), key.encode(), namespace=namespace)


def rejected(found: Rendered) -> dict[str, str]:
    return {str(rejection.subject): rejection.problem.message for rejection in found.rejections}


def lines_of(found: Rendered) -> int:
    lists = [file.content.decode() for file in found.files.values() if file.path.endswith(".list")]
    return sum(line.startswith("ssl/") for text in lists for line in text.splitlines())


def test_certificates_of_many_listeners_are_limited_by_default() -> None:
    pool = [f"10.0.0.{one}" for one in range(33)]
    attacker = [
        gateway(f"gw{one}", *listeners(16, 20), addresses=[{"value": each} for each in pool[16 * one : 16 * one + 16]])
        for one in range(2)
    ]
    victim = [gateway("gw", *listeners(2, 2), namespace="victim"), *secrets(2, "victim")]
    found = rendered([*attacker, *secrets(20), *victim], gatewayAddresses=pool, gatewayAddressesPerNamespace=32)

    assert rejected(found) == {"Gateway attacker/gw1": EXCESS.format(10_000)}
    assert "templating.maxNamespaceCertificateLines" in found.rejections[0].problem.hint
    assert lines_of(found) == 16 * 20 + 4


def test_lines_of_a_listener_set_count_for_its_namespace_and_not_for_that_of_the_gateway() -> None:
    shared = gateway("gw", *listeners(2, 2), namespace="infra", allowedListeners={"namespaces": {"from": "All"}})
    sets = [listener_set(f"set{one}", *listeners(4, 4, 9001 + one), parent="gw") for one in range(3)]
    found = rendered([shared, *sets, *secrets(4), *secrets(2, "infra")], limit=40)

    assert rejected(found) == {"ListenerSet attacker/set2": EXCESS.format(40)}
    assert lines_of(found) == 4 + 2 * 16


def test_certificates_of_ingresses_are_limited() -> None:
    attacker = [secured(f"web{one}", *(f"c{number}" for number in range(one, one + 2))) for one in range(0, 6, 2)]
    found = rendered([*attacker, *secrets(6), secured("web", "c0", namespace="victim"), *secrets(1, "victim")], limit=5)

    assert rejected(found) == {"Secret attacker/c5": EXCESS.format(5)}


def test_each_address_of_a_gateway_reads_its_list_again() -> None:
    pool = [f"10.0.0.{one}" for one in range(1, 6)]
    wide = gateway("wide", *listeners(2, 2), addresses=[{"value": address} for address in pool[:3]])
    narrow = gateway("narrow", *listeners(2, 2), addresses=[{"value": pool[3]}])
    objects = [wide, narrow, *secrets(2)]

    assert rejected(rendered(objects, limit=15, gatewayAddresses=pool)) == {"Gateway attacker/wide": EXCESS.format(15)}
    assert rejected(rendered(objects, limit=16, gatewayAddresses=pool)) == {}


def test_http_3_reads_the_lists_again() -> None:
    objects = [gateway("gw", *listeners(2, 2)), secured("web", "c0"), *secrets(2)]

    assert rejected(rendered(objects, limit=9, http3=True)) == {"Gateway attacker/gw": EXCESS.format(9)}
    assert rejected(rendered(objects, limit=10, http3=True)) == {}


@pytest.fixture(scope="module")
def authorities() -> str:
    """A list of 100 CA certificates."""
    return "".join(trustme.CA().cert_pem.bytes().decode() for _ in range(100))


def test_lines_that_ask_for_client_certificates_count_with_the_authorities(authorities: str) -> None:
    reference = {"group": "", "kind": "ConfigMap", "name": "ca"}
    asking = {"frontend": {"default": {"validation": {"caCertificateRefs": [reference]}}}}
    anyone = {"namespaces": {"from": "All"}}
    shared = gateway("gw", *listeners(1, 1), namespace="infra", allowedListeners=anyone, tls=asking)
    ca = made("ConfigMap", "ca", namespace="infra", version="v1", data={"ca.crt": authorities})
    of_set = listener_set("set", *listeners(4, 4, 9001), parent="gw")
    objects = [shared, ca, of_set, *secrets(1, "infra"), *secrets(4)]

    assert rejected(rendered(objects, limit=47)) == {"ListenerSet attacker/set": EXCESS.format(47)}
    assert rejected(rendered(objects, limit=48)) == {}


def test_lists_of_authorities_count_for_each_port_of_a_gateway(authorities: str) -> None:
    reference = {"group": "", "kind": "ConfigMap", "name": "ca"}
    asking = {"tls": {"validation": {"caCertificateRefs": [reference]}}}
    ports = {"frontend": {"default": {}, "perPort": [{"port": 9000 + one, **asking} for one in range(3)]}}
    named = [{**listeners(1, 1, 9000 + one)[0], "name": f"p{one}"} for one in range(3)]
    ca = made("ConfigMap", "ca", namespace="attacker", version="v1", data={"ca.crt": authorities})
    objects = [gateway("gw", *named, tls=ports), ca, *secrets(1)]

    assert rejected(rendered(objects, limit=44)) == {"Gateway attacker/gw": EXCESS.format(44)}
    assert rejected(rendered(objects, limit=45)) == {}


def test_certificates_of_an_ingress_that_asks_for_client_certificates_count_with_the_authorities(
    authorities: str,
) -> None:
    web = secured("web", "c0", **{"haproxy-ingress.github.io/auth-tls-secret": "ca"})
    objects = [web, *secrets(1), secret_of_authorities(authorities)]

    assert "Ingress attacker/web" in rejected(rendered(objects, limit=14))
    assert rejected(rendered(objects, limit=40)) == {}


def test_very_long_chains_count_as_more_lines() -> None:
    objects = [secured("web", "c0"), *secrets(1, chain=CHAIN * 80)]

    assert rejected(rendered(objects, limit=10)) == {"Secret attacker/c0": EXCESS.format(10)}
    assert rejected(rendered(objects, limit=11)) == {}


def test_certificates_of_very_many_names_leave_a_shared_gateway_what_it_is() -> None:
    shared = gateway("gw", *listeners(1, 1), namespace="infra", allowedListeners={"namespaces": {"from": "All"}})
    own = [{**one, "hostname": f"*.{one['hostname']}"} for one in listeners(64, 2)]
    many = [
        certified("attacker", f"c{one}", *(f"h{name}.test" for name in range(size)))
        for one, size in enumerate((1_000, 20_000))
    ]
    found = rendered([shared, *secrets(1, "infra"), *many, listener_set("set", *own, parent="gw")])

    assert rejected(found) == {}
    assert lines_of(found) > 1


def test_certificates_of_very_many_names_leave_the_default_certificate_what_it_is() -> None:
    hosts = [f"h{one}.default.test" for one in range(200)]
    rules = [rule(host, path("/", "app")) for host in hosts]
    # Without hosts, the certificate decides for which of them it is.
    blocks = [{"secretName": f"c{one}"} for one in range(10)]
    own = [ingress(f"web{one}", *rules, namespace="attacker", tls=blocks) for one in range(2)]
    many = [certified("attacker", f"c{one}", *(f"h{name}.test" for name in range(1_000 - one))) for one in range(10)]
    default = certified("certs", "default", "*.default.test")
    found = rendered([*own, *many, default], strictSni=True, defaultCertificate="certs/default")

    assert rejected(found) == {}
    assert found.files["ssl/default.list"].content == b"ssl/certs_default.pem *.default.test\n"
