"""Warnings to owners of Ingresses that are served differently than they may expect."""

from collections.abc import Iterator
from typing import Any

import pytest
import trustme

from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.pipeline.render import Renderer
from haptic_trio.templating.incremental.outputs import Recall
from tests.support.components.rendering import KINDS, library_config
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service, tls_secret

HOST = "a.example.com"
GOOD = (service("web"), endpoint_slice("web", endpoint("10.0.0.1"), ports=80))
AUTHORITY = trustme.CA()
UNSERVED = "; requests for it are answered with 503"


class Site:
    """Objects that come and go, and what is said about them."""

    def __init__(self, *objects: Resource, **context: Any) -> None:
        annotations = ("nginx-annotations", "haproxy-ingress-annotations")
        self.config = library_config("base", "ssl", "ingress", *annotations, **context)
        self.stores = Stores(Store(name, watched.index_by) for name, watched in self.config.watched_resources.items())
        self.renderer = Renderer(self.config)
        self.put(*GOOD, *objects)

    def _stores_of(self, resource: Resource) -> Iterator[Store]:
        for name, watched in self.config.watched_resources.items():
            wanted = watched.field_selector.removeprefix("type=")
            if KINDS[watched.resources] == resource["kind"] and wanted in ("", resource.get("type")):
                yield self.stores[name]

    def put(self, *objects: Resource) -> None:
        for resource in objects:
            for store in self._stores_of(resource):
                store.upsert(resource)

    def remove(self, *objects: Resource) -> None:
        for resource in objects:
            for store in self._stores_of(resource):
                store.delete(ref_of(resource))

    @property
    def warnings(self) -> list[str]:
        return [str(warning) for warning in self.renderer.render_here(self.stores).warnings]


def certificate(name: str, *hosts: str, age: int = 1, namespace: str = "default") -> Resource:
    issued = AUTHORITY.issue_cert(*hosts, key_type=trustme.KeyType.ECDSA)
    pair = issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()
    return tls_secret(name, *pair, age=age, namespace=namespace)


def test_a_fully_served_ingress_gets_no_warning() -> None:
    assert Site(ingress("web", rule(HOST, path("/", "web"), path("/x", "web", kind="Exact")))).warnings == []


@pytest.mark.parametrize("kind", ["Prefix", "Exact"])
def test_the_younger_ingress_for_a_path_gets_a_warning_that_names_the_older_one(kind: str) -> None:
    old = ingress("old", rule(HOST, path("/x", "web", kind=kind)), namespace="one")
    young = ingress("young", rule(HOST, path("/x", "web", kind=kind), path("/y", "web")), age=2)
    services = [service("web", namespace="one"), endpoint_slice("web", endpoint("1.1.1.1"), ports=80, namespace="one")]
    site = Site(old, young, *services)

    assert site.warnings == [
        f"Ingress default/young: HostShared: other namespaces have paths of the host {HOST}, too: Ingress one/old",
        (
            f"Ingress default/young: PathTaken: the path /x of the host {HOST} belongs to the older Ingress one/old of "
            "another namespace; this Ingress does not serve it"
        ),
        f"Ingress one/old: HostShared: other namespaces have paths of the host {HOST}, too: Ingress default/young",
        (
            f"Ingress one/old: PathWanted: the Ingress default/young of another namespace has the path /x of the host "
            f"{HOST}, too; this Ingress is older and serves it"
        ),
    ]
    site.remove(old)
    assert site.warnings == []


def test_a_quarantined_ingress_wins_no_path() -> None:
    rejected = ingress("old", rule(HOST, path("/", "web"), path("/a b", "web")))

    assert Site(rejected, ingress("young", rule(HOST, path("/", "web")), age=2)).warnings == []


def test_an_alias_for_the_host_of_another_ingress_gets_a_warning() -> None:
    alias = ingress(
        "alias", rule("b.example.com", path("/", "web")), annotations={"nginx.ingress.kubernetes.io/server-alias": HOST}
    )
    (said,) = Site(ingress("web", rule(HOST, path("/", "web")), age=2), alias).warnings

    assert said.startswith(f"Ingress default/alias: HostPathConflict: the entry {HOST}|/ of maps/path-prefix.map")


def test_a_missing_service_or_port_has_a_warning_until_it_exists() -> None:
    web = ingress(
        "web",
        rule(HOST, path("/", "gone"), path("/e", "gone", kind="Exact"), path("/p", "web", 81), path("/n", "web", "x")),
    )
    site = Site(web)

    assert site.warnings == [
        f"Ingress default/web: PortNotFound: the Service default/web has no port 81 (ports: 80){UNSERVED}",
        f"Ingress default/web: PortNotFound: the Service default/web has no port x (ports: 80){UNSERVED}",
        f"Ingress default/web: ServiceNotFound: the Service default/gone does not exist{UNSERVED}",
    ]
    site.put(service("gone"), service("web", {"port": 81}, {"port": 80, "name": "x"}))
    assert site.warnings == [
        f"Ingress default/web: NoEndpoints: the Service default/gone has no ready endpoint{UNSERVED}",
    ]
    site.put(endpoint_slice("gone", endpoint("10.0.0.1"), ports=80))
    assert site.warnings == []


def test_endpoints_with_another_port_name_are_named() -> None:
    web = ingress("web", rule(HOST, path("/", "named")))
    site = Site(web, service("named", {"name": "http", "port": 80}))
    site.put(endpoint_slice("named", endpoint("10.0.0.1"), ports={"web": 80, "": 81}))

    assert site.warnings == [
        (
            "Ingress default/web: NoEndpoints: the Service default/named has no ready endpoint"
            f" (its EndpointSlices have the ports web, unnamed, the Service has http){UNSERVED}"
        )
    ]
    site.put(endpoint_slice("named", endpoint("10.0.0.1"), ports={"http": 80}))
    assert site.warnings == []


def test_missing_endpoints_of_an_annotated_ingress_have_a_warning() -> None:
    own = ingress(
        "own", rule(HOST, path("/", "idle")), annotations={"nginx.ingress.kubernetes.io/proxy-read-timeout": "5"}
    )

    assert Site(own, service("idle")).warnings == [
        f"Ingress default/own: NoEndpoints: the Service default/idle has no ready endpoint{UNSERVED}"
    ]


def test_a_service_of_type_external_name_has_a_warning() -> None:
    outside = service("outside", type="ExternalName", externalName="example.com")

    assert Site(ingress("web", rule(HOST, path("/", "outside"))), outside).warnings == [
        (
            "Ingress default/web: ServiceNotSupported: the Service default/outside is of type ExternalName, "
            "which is not supported; use a Service with endpoints, such as an EndpointSlice of your own, "
            "or ask the administrator to list its name in externalNames"
        )
    ]


@pytest.mark.parametrize("expression", ["/api/(.*)", "/api.*", "/.+"])
def test_a_path_that_looks_like_a_regular_expression_has_a_warning(expression: str) -> None:
    web = ingress("web", rule(HOST, path(expression, "web", kind="ImplementationSpecific"), path("/a(1)", "web")))

    assert Site(web).warnings == [
        (
            f"Ingress default/web: PathIsLiteral: the path {expression} is used as a literal prefix, "
            "not as a regular expression"
        )
    ]
    pattern = ingress(
        "web",
        rule(HOST, path("/api/(.*)", "web", kind="ImplementationSpecific")),
        annotations={"nginx.ingress.kubernetes.io/use-regex": "true"},
    )
    assert Site(pattern).warnings == []


def test_a_missing_certificate_has_a_warning_until_it_exists() -> None:
    site = Site(ingress("web", rule(HOST, path("/", "web")), tls=[{"hosts": [HOST], "secretName": "tls"}]))

    assert site.warnings == [
        (
            "Ingress default/web: CertificateNotFound: spec.tls: the Secret default/tls does not exist, or is not of "
            "type kubernetes.io/tls; clients get another certificate, or nothing listens for TLS"
        )
    ]
    site.put(certificate("tls", HOST))
    assert site.warnings == []


@pytest.mark.parametrize(
    ("context", "instead"),
    [
        ({}, "clients get another certificate, or nothing listens for TLS"),
        ({"defaultCertificate": "default/fallback"}, "clients get the default certificate"),
        ({"strictSni": True}, "TLS connections of its hosts' clients are rejected"),
    ],
)
def test_an_unusable_certificate_has_a_warning_for_each_ingress_that_names_it(
    context: dict[str, Any], instead: str
) -> None:
    good, other = certificate("tls", HOST), certificate("fallback", "fallback.example.com")
    mixed = {**good, "data": {**good["data"], "tls.key": other["data"]["tls.key"]}}
    web = ingress("web", rule(HOST, path("/", "web")), tls=[{"hosts": [HOST], "secretName": "tls"}])
    site = Site(mixed, other, web, **context)

    assert site.warnings == [
        (
            "Ingress default/web: CertificateRejected: spec.tls: the Secret default/tls cannot be used: "
            f"pem: the private key is not that of the first certificate; {instead}"
        )
    ]
    site.put(good)
    assert site.warnings == []


def test_a_certificate_that_becomes_unusable_has_a_warning_that_the_former_one_is_used() -> None:
    good = certificate("tls", HOST)
    web = ingress("web", rule(HOST, path("/", "web")), tls=[{"secretName": "tls"}])
    site = Site(good, web)
    produced = dict(site.renderer.render_here(site.stores).produced)

    site.put({**good, "data": {**good["data"], "tls.crt": "aGVsbG8="}})
    [said] = site.renderer.render_here(site.stores, Recall(produced)).warnings

    assert said.reason == "CertificateRejected"
    assert said.message.endswith("; its last good version is served")


def test_at_most_ten_ingresses_get_a_warning_about_one_unusable_certificate() -> None:
    bad = {**certificate("tls", HOST), "data": {}}
    named = [{"secretName": "tls"}]
    site = Site(bad, *(ingress(f"web{n}", rule(f"{n}.{HOST}", path("/", "web")), tls=named) for n in range(30)))

    assert len(site.warnings) == 10


def test_a_second_certificate_for_a_host_has_a_warning_unless_it_is_a_copy() -> None:
    old, young = certificate("old", HOST), certificate("young", HOST, "b.example.com", age=2)
    copy = {**old, "metadata": {**old["metadata"], "name": "copy", "creationTimestamp": "2026-01-03T00:00:00Z"}}
    names = [{"secretName": name} for name in ("old", "young", "copy")]
    site = Site(old, young, copy, ingress("web", rule(HOST, path("/", "web")), tls=names))

    assert site.warnings == [
        (
            f"Secret default/young: CertificateConflict: the certificate for {HOST} serves only clients that "
            "do not support the certificate of Secret default/old"
        )
    ]
    # Another certificate under the same name, for another host.
    site.put(certificate("young", "b.example.com", age=2))
    assert site.warnings == []


def test_within_a_namespace_the_younger_ingress_gets_a_warning_about_the_path() -> None:
    old = ingress("old", rule(HOST, path("/x", "web")))
    young = ingress("young", rule(HOST, path("/x", "other"), path("/y", "web")), age=2)
    services = [service("other"), endpoint_slice("other", endpoint("1.1.1.1"), ports=80)]
    (said,) = Site(old, young, *services).warnings

    assert said == (
        f"Ingress default/young: HostPathConflict: the entry {HOST}|/x/ of maps/path-prefix.map has no effect, "
        "because the entry of Ingress default/old comes first"
    )
