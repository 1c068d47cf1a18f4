"""The fallback of a quarantined Ingress stays complete: HAProxy accepts it, and no check is missing."""

import base64
from pathlib import Path

import pytest
import trustme

from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.templating.incremental.outputs import FragmentOutput, Recall
from haptic_trio.templating.values.subjects import FragmentKey
from tests.support.components.rendering import KINDS, library_config
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, meta, path, rule, service, tls_secret
from tests.support.traffic.proxy import check

LIBRARIES = ("base", "ssl", "ingress", "nginx-annotations")
NGINX = "nginx.ingress.kubernetes.io/"
AUTHORITY = trustme.CA()
ISSUED = AUTHORITY.issue_cert("a.example.com", key_type=trustme.KeyType.ECDSA)
CA = base64.b64encode(AUTHORITY.cert_pem.bytes()).decode()
KNOWN: Resource = {
    "apiVersion": "v1",
    "kind": "Secret",
    "type": "Opaque",
    "metadata": meta("known"),
    "data": {"ca.crt": CA},
}
AROUND = (
    service("web"),
    endpoint_slice("web", endpoint("10.0.0.1"), ports=80),
    tls_secret("site", ISSUED.cert_chain_pems[0].bytes(), ISSUED.private_key_pem.bytes()),
    KNOWN,
)


class World:
    """The libraries over one Ingress, rendered again and again."""

    def __init__(self) -> None:
        config = library_config(*LIBRARIES)
        self.watched = config.watched_resources
        self.stores = Stores(Store(name, watched.index_by) for name, watched in self.watched.items())
        self.renderer = Renderer(config)
        self.good: dict[FragmentKey, FragmentOutput] = {}
        for resource in AROUND:
            self.put(resource)

    def put(self, resource: Resource) -> None:
        for name, store in self.stores.items():
            if KINDS[self.watched[name].resources] == resource["kind"] and (
                resource["kind"] != "Secret" or self.watched[name].field_selector == f"type={resource['type']}"
            ):
                store.upsert(resource)

    def serve(self, version: int, annotations: dict[str, str]) -> Rendered:
        changed = ingress(
            "a",
            rule("a.example.com", path("/", "web")),
            annotations={NGINX + key: value for key, value in annotations.items()},
            tls=[{"hosts": ["a.example.com"], "secretName": "site"}],
        )
        changed["metadata"]["resourceVersion"] = str(version)
        self.put(changed)
        return self.render()

    def render(self) -> Rendered:
        """Render; what came out is good enough to stand in later."""
        rendered = self.renderer.render_here(self.stores, Recall(self.good))
        self.good = dict(rendered.produced)
        return rendered


@pytest.mark.haproxy
@pytest.mark.parametrize(
    ("annotations", "kept"),
    [
        ({"auth-url": "http://auth.default.svc/"}, "lua.ingress_auth"),
        ({"auth-tls-secret": "known"}, "track-sc3"),
        ({"ssl-passthrough": "true"}, "http-request return status 421"),
        ({"auth-type": "basic", "auth-secret": "nobody"}, "http_auth("),
    ],
)
def test_haproxy_accepts_a_fallback_that_keeps_its_access_rules(
    annotations: dict[str, str], kept: str, tmp_path: Path
) -> None:
    world = World()
    assert kept in world.serve(1, annotations).texts["haproxy.cfg"].text

    rendered = world.serve(2, {"server-snippet": "return 200;"})

    text = rendered.texts["haproxy.cfg"].text
    assert len(rendered.rejections) == 1
    assert kept in text
    files = {name: one.text for name, one in rendered.texts.items() if name != "haproxy.cfg"}
    assert check(tmp_path, text, files) == ""


@pytest.mark.parametrize(
    ("former", "present", "is_served"),
    [
        ({"auth-tls-verify-client": "off"}, {}, False),
        ({"auth-tls-verify-client": "optional"}, {}, False),
        ({"auth-tls-verify-client": "off"}, {"auth-tls-verify-client": "optional"}, False),
        ({}, {"auth-tls-match-cn": "CN=admin"}, False),
        ({}, {"auth-tls-verify-client": "optional"}, True),
        ({}, {"auth-tls-verify-client": "off"}, True),
        ({"auth-tls-match-cn": "CN=admin"}, {}, True),
    ],
)
def test_no_fallback_admits_clients_whose_certificate_is_to_be_verified(
    former: dict[str, str], present: dict[str, str], *, is_served: bool
) -> None:
    world = World()
    before = world.serve(1, {"auth-tls-secret": "known", **former})
    assert not before.rejections

    rendered = world.serve(2, {"auth-tls-secret": "known", **present, "server-snippet": "return 200;"})

    assert rendered.rejections
    assert ("a.example.com|/ no-route" not in rendered.texts["maps/path-prefix.map"].text) == is_served


def test_the_former_ca_certificates_stay_when_their_object_is_deleted() -> None:
    world = World()
    before = world.serve(1, {"auth-tls-secret": "known"})
    world.put({**KNOWN, "data": {}, "metadata": meta("known") | {"resourceVersion": "2"}})

    after = world.render()

    assert after.rejections
    assert after.texts["haproxy.cfg"].text == before.texts["haproxy.cfg"].text
    assert {file.path for file in after.files.values()} == {file.path for file in before.files.values()}
