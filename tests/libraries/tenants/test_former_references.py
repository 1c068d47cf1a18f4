"""Good versions of rejected objects: they have the present settings, Secrets and grants, or are not served."""

import base64
import re
from typing import Any

import pytest
import trustme

from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered
from tests.gateway.filters.test_extension_filters import extension
from tests.gateway.listeners.test_port_claims import LIMITS as GATEWAY_LIMITS
from tests.gateway.listeners.test_port_claims import SECRET as GATEWAY_SECRET
from tests.gateway.listeners.test_port_claims import frontends_at, owned
from tests.gateway.objects import gateway, gateway_class, grant, made, tls_listeners
from tests.gateway.objects import route as gateway_route
from tests.gateway.objects import rule as gateway_rule
from tests.gateway.serving import Authority
from tests.libraries.tenants.tenants import NGINX
from tests.libraries.tenants.test_withdrawn_permissions import LIBRARIES, broken, everything, tenant
from tests.support.components.succession import Succession
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, ingress_class, path, rule, service, tls_secret

GATEWAY = ("base", "ssl", "gateway", "tcp-services")
HASHES = {"ann": "$5$aa$" + "a" * 43, "bob": "$5$bb$" + "b" * 43}
BASIC = {NGINX + "auth-type": "basic", NGINX + "auth-secret": "users"}


def secret(name: str, *, version: int = 1, data: dict[str, str]) -> Resource:
    """Return a Secret of type Opaque with the texts *data*."""
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    metadata = {"name": name, "namespace": "tenant", "resourceVersion": str(version), "uid": f"{name}-1"}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": encoded}


def users(*names: str, version: int = 1) -> Resource:
    return secret("users", version=version, data={"auth": "".join(f"{name}:{HASHES[name]}\n" for name in names)})


def fallbacks(rendered: Rendered) -> set[tuple[str, bool]]:
    return {(str(one.subject), one.has_fallback) for one in rendered.rejections}


def test_a_user_who_is_removed_has_no_access_to_a_rejected_ingress() -> None:
    objects = tenant("tenant", BASIC)
    controller = Succession(LIBRARIES)
    controller.render(*objects, users("ann", "bob"))
    rendered = controller.render(broken(objects))
    assert "'bob'" in rendered.text

    rendered = controller.render(users("ann", version=2))

    assert ("'ann'" in rendered.text, "'bob'" in rendered.text) == (True, False)
    assert fallbacks(rendered) == {("Ingress tenant/web", True)}


def test_a_good_version_that_cannot_be_rendered_again_stays_as_it_was() -> None:
    objects = tenant("tenant", BASIC)
    controller = Succession(LIBRARIES)
    before = controller.render(*objects, users("ann", "bob"))
    controller.render(broken(objects))

    rendered = controller.render(secret("users", version=2, data={"auth": "no list"}))

    assert ("'bob'" in rendered.text, fallbacks(rendered)) == (True, {("Ingress tenant/web", True)})
    # Not even in part.
    assert rendered.texts["maps/path-prefix.map"].text == before.texts["maps/path-prefix.map"].text
    # The administrator's settings are not kept by it.
    rendered = controller.configure(longestPassword=50)
    assert ("userlist" in rendered.text, fallbacks(rendered)) == (False, {("Ingress tenant/web", False)})


INVALID = secret("users", version=9, data={"auth": "no list"})


def test_a_removed_user_does_not_return_when_the_good_version_cannot_be_rendered_again() -> None:
    objects = tenant("tenant", BASIC)
    controller = Succession(LIBRARIES)
    controller.render(*objects, users("ann", "bob"))
    controller.render(broken(objects))
    controller.render(users("ann", version=2))

    # Also after another configuration, which begins with what the one before has served.
    for rendered in (controller.render(INVALID), controller.configure(), controller.render(INVALID)):
        assert ("'ann'" in rendered.text, "'bob'" in rendered.text) == (True, False)
        assert fallbacks(rendered) == {("Ingress tenant/web", True)}
    assert "'bob'" not in controller.configure(longestPassword=50).text


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_good_version_that_has_been_rendered_with_other_settings_outlives_its_secret(is_deleted: bool) -> None:
    upstream = {"backend-protocol": "HTTPS", "proxy-ssl-secret": "tenant/authority", "proxy-ssl-verify": "on"}
    verified = {NGINX + name: text for name, text in {**upstream, "proxy-ssl-name": "a.test"}.items()}
    objects = tenant("tenant", verified if is_deleted else BASIC)
    authority = secret("authority", data={"ca.crt": trustme.CA().cert_pem.bytes().decode()})
    recreated = {**authority, "metadata": {**authority["metadata"], "uid": "authority-2"}}
    controller = Succession(LIBRARIES)
    controller.render(*objects, users("ann"), authority)
    controller.render(broken(objects))
    before = controller.configure(maxBodySize=100_000)
    assert fallbacks(before) == {("Ingress tenant/web", True)}

    if is_deleted:
        controller.delete(authority)
    for step in ([] if is_deleted else [INVALID], [], [recreated, users("ann", version=20)]):
        rendered = controller.render(*step)
        assert everything(rendered) == everything(before)
        assert fallbacks(rendered) == {("Ingress tenant/web", True)}


async def test_a_review_gives_up_no_good_version() -> None:
    own, foreign = (ingress_class("other", f"{name}/ingress-controller") for name in ("haptic-trio", "foreign"))
    objects = tenant("tenant", BASIC)
    former = {**objects[0], "spec": {**objects[0]["spec"], "ingressClassName": "other"}}
    controller = Succession(LIBRARIES)
    controller.render(own, former, *objects[1:], users("ann"))
    # It is not rendered again, so that it is given up when its class is gone.
    controller.pause("Ingress", "tenant", "web")
    before = controller.render(broken(objects))
    assert ("'ann'" in before.text, fallbacks(before)) == (True, {("Ingress tenant/web", True)})

    await controller.review(foreign)
    after = controller.render()

    assert fallbacks(after) == {("Ingress tenant/web", True)}
    assert everything(after) == everything(before)


def test_a_good_version_has_what_a_setting_adds_to_the_templates() -> None:
    objects = tenant("tenant", {NGINX + "proxy-body-size": "1m"})
    objects[0]["spec"]["tls"] = [{"hosts": ["tenant.test"]}]
    controller = Succession(LIBRARIES)
    controller.render(*objects)
    controller.render(broken(objects))

    for rendered in (controller.configure(sslRedirect=True), controller.render()):
        assert rendered.texts["maps/tls-host.map"].text == "tenant.test yes\n"
        assert fallbacks(rendered) == {("Ingress tenant/web", True)}
    # As for the Ingress that was accepted with it.
    rendered = controller.configure(sslRedirect=True, longestPassword=50)
    assert rendered.texts["maps/tls-host.map"].text == "tenant.test yes\n"


def test_a_user_who_is_removed_before_haproxy_has_checked_it_does_not_return() -> None:
    objects = tenant("tenant", BASIC)
    controller = Succession(LIBRARIES)
    controller.render(*objects, users("ann", "bob"))
    controller.render(broken(objects))
    controller.render(users("ann", version=2), is_checked=False)

    rendered = controller.render(INVALID)

    assert ("'ann'" in rendered.text, "'bob'" in rendered.text) == (True, False)


def test_a_rejected_ingress_that_gets_users_one_after_the_other_has_no_more_rounds_than_there_are() -> None:
    # 5,000 rounds for each user.
    controller = Succession(LIBRARIES, limits={"max_hash_rounds": 10_000})
    objects = tenant("tenant", BASIC)
    controller.render(*objects, users("ann"))
    controller.render(broken(objects))
    for count in (2, 3):
        lines = "".join(f"u{number}:{HASHES['ann']}\n" for number in range(count))
        rendered = controller.render(secret("users", version=count, data={"auth": lines}))

    assert ("'u1'" in rendered.text, "'u2'" in rendered.text) == (True, False)


def test_a_rejected_ingress_takes_no_more_rounds_of_password_hashes_than_there_are() -> None:
    objects = tenant("tenant", BASIC)
    # 5,000 rounds for each user.
    controller = Succession(LIBRARIES, limits={"max_hash_rounds": 10_000})
    controller.render(*objects, users("ann"))
    controller.render(broken(objects))
    assert "'bob'" in controller.render(users("ann", "bob", version=2)).text
    many = "".join(f"u{number}:{HASHES['ann']}\n" for number in range(3))

    rendered = controller.render(secret("users", version=3, data={"auth": many}))

    assert ("'ann'" in rendered.text, "'u1'" in rendered.text) == (True, False)
    assert fallbacks(rendered) == {("Ingress tenant/web", True)}


def test_a_rejected_object_that_wants_too_many_rounds_of_password_hashes_keeps_no_removed_user_of_others() -> None:
    # 5,000 rounds for each user.
    controller = Succession(LIBRARIES, limits={"max_hash_rounds": 30_000})
    objects = tenant("tenant", BASIC)
    controller.render(*objects, users("ann"))
    controller.render(broken(objects))
    many = secret("users", data={"auth": "".join(f"u{number}:{HASHES['ann']}\n" for number in range(7))})
    many["metadata"]["namespace"] = "other"
    rendered = controller.render(*tenant("other", BASIC), many)
    assert "'u1'" not in rendered.text

    more = {"auth": f"bob:{HASHES['bob']}\ncarl:{HASHES['bob']}\n"}
    rendered = controller.render(secret("users", version=2, data=more))

    assert [f"'{name}'" in rendered.text for name in ("ann", "bob", "carl")] == [False, True, True]
    assert fallbacks(rendered) == {("Ingress tenant/web", True), ("Ingress other/web", False)}


def test_a_good_version_counts_when_its_object_wants_more_rounds_than_its_namespace_has() -> None:
    # 5,000 rounds for each user.
    controller = Succession(LIBRARIES, limits={"max_hash_rounds": 20_000, "max_namespace_hash_rounds": 15_000})

    def listed(namespace: str, count: int, version: int) -> Resource:
        lines = "".join(f"{namespace}{number}:{HASHES['ann']}\n" for number in range(count))
        found = secret("users", version=version, data={"auth": lines})
        found["metadata"]["namespace"] = namespace
        return found

    controller.render(*tenant("a", BASIC), *tenant("b", BASIC), listed("a", 1, 1), listed("b", 1, 1))
    controller.render(listed("a", 3, 2), listed("b", 3, 2))
    rendered = controller.render(listed("a", 5, 3))

    assert sum(output.rounds for output in rendered.produced.values()) == 20_000
    assert fallbacks(rendered) == {("Ingress a/web", True), ("Ingress b/web", True)}


def test_paths_of_a_rejected_ingress_are_closed_when_the_class_of_its_good_version_is_gone() -> None:
    own = ingress_class("other", "haptic-trio/ingress-controller")
    objects = tenant("tenant", BASIC)
    former = {**objects[0], "spec": {**objects[0]["spec"], "ingressClassName": "other"}}
    controller = Succession(LIBRARIES)
    controller.render(own, former, *objects[1:], users("ann", "bob"))
    assert fallbacks(controller.render(broken(objects))) == {("Ingress tenant/web", True)}

    controller.delete(own)

    for rendered in (controller.render(), controller.render(INVALID), controller.render(own)):
        assert ("'bob'" in rendered.text, fallbacks(rendered)) == (False, {("Ingress tenant/web", False)})
        assert "tenant.test|/ no-route" in rendered.texts["maps/path-prefix.map"].text


@pytest.mark.parametrize("key", ["api-key-secret", "jwt-secret"])
def test_a_key_that_is_removed_gives_no_access_to_a_rejected_ingress(key: str) -> None:
    more = {"haptic-trio/jwt-issuer": "*", "haptic-trio/jwt-audience": "*"} if key == "jwt-secret" else {}
    end = ".hmac" if key == "jwt-secret" else ""
    objects = tenant("tenant", {f"haptic-trio/{key}": "keys", **more})
    controller = Succession(LIBRARIES)
    one, other = "0123456789abcdef" * 4, "fedcba9876543210" * 4
    controller.render(*objects, secret("keys", data={f"one{end}": one, f"other{end}": other}))
    before = everything(controller.render(broken(objects)))

    rendered = controller.render(secret("keys", version=2, data={f"one{end}": one}))

    fresh = Succession(LIBRARIES).render(*objects, secret("keys", version=2, data={f"one{end}": one}))
    assert everything(rendered) == everything(fresh) != before
    assert fallbacks(rendered) == {("Ingress tenant/web", True)}


def test_a_gateway_that_is_rejected_has_the_present_rules_of_the_administrator() -> None:
    controller = Succession(GATEWAY, limits=GATEWAY_LIMITS)
    controller.render(gateway_class(), GATEWAY_SECRET, owned("evil", 5, 9999))
    rendered = controller.render(owned("evil", 5, 9999, is_broken=True))
    assert frontends_at(rendered, 9999) == ["gateway-port::evil_gw_9999"]

    rendered = controller.configure(deniedSources=["192.0.2.0/24"], untrustedHeaders=["X-New"], maxBodySize=5)

    fresh = Succession(GATEWAY, deniedSources=["192.0.2.0/24"], untrustedHeaders=["X-New"], maxBodySize=5)
    assert rendered.text == fresh.render(gateway_class(), GATEWAY_SECRET, owned("evil", 5, 9999)).text
    assert fallbacks(rendered) == {("Gateway evil/gw", True)}


@pytest.mark.parametrize("settings", [{"gatewayPorts": [80]}, {"tcpServicePorts": [9999]}])
def test_a_gateway_that_is_rejected_has_no_port_that_the_administrator_takes(settings: dict[str, Any]) -> None:
    services = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"9999": "shop/db:5432"}}
    services["metadata"] = {"name": "tcp-services", "namespace": "infra", "resourceVersion": "1"}
    controller = Succession(GATEWAY, limits=GATEWAY_LIMITS, tcpServices="infra/tcp-services")
    controller.render(gateway_class(), GATEWAY_SECRET, owned("evil", 5, 8888, 9999), services)
    rendered = controller.render(owned("evil", 5, 9999, is_broken=True))
    assert frontends_at(rendered, 9999) == ["gateway-port::evil_gw_9999"]

    rendered = controller.configure(tcpServices="infra/tcp-services", **settings)

    assert frontends_at(rendered, 9999) == (["tcp-service::9999"] if "tcpServicePorts" in settings else [])


LISTENER_SETS = "gateway.networking.k8s.io/v1"


@pytest.mark.parametrize("is_broken", ["ListenerSet", "Gateway"])
def test_a_listener_set_shows_no_certificate_whose_grant_is_gone(is_broken: str) -> None:
    authority = Authority()
    certificate = tls_secret("tls", *authority.issue("h0.test"), namespace="other")
    own = tls_secret("own", *authority.issue("h1.test"), namespace="tenant")

    def listener_set(version: int, count: int) -> Resource:
        found = made("ListenerSet", "set", namespace="tenant", version=LISTENER_SETS)
        found["spec"] = {"parentRef": {"name": "gw", "namespace": "infra"}, "listeners": tls_listeners(count)}
        found["metadata"] |= {"resourceVersion": str(version), "uid": "set"}
        return found

    def shared(version: int, count: int) -> Resource:
        tls = {"certificateRefs": [{"name": "infra"}]}
        listeners = [
            {"name": f"own-{number}", "port": 6443, "protocol": "HTTPS", "hostname": f"i{number}.test", "tls": tls}
            for number in range(count)
        ]
        found = gateway("gw", *listeners, allowedListeners={"namespaces": {"from": "All"}})
        found["metadata"] |= {"namespace": "infra", "resourceVersion": str(version), "uid": "gw"}
        return found

    permitted = grant("other", origin="tenant", kind="ListenerSet", to="Secret")
    withdrawn = grant("other", origin="somebody", kind="ListenerSet", to="Secret")
    withdrawn["metadata"]["resourceVersion"] = "2"
    infra = tls_secret("infra", *authority.issue("i0.test"), namespace="infra")
    controller = Succession(GATEWAY, limits=GATEWAY_LIMITS)
    controller.render(gateway_class(), certificate, own, infra, permitted, shared(1, 1), listener_set(1, 1))
    changed = listener_set(2, 6) if is_broken == "ListenerSet" else shared(2, 6)
    rendered = controller.render(changed)
    assert "ssl/other_tls.pem" in rendered.texts
    assert {one.subject.kind for one in rendered.rejections} == {is_broken}

    assert "ssl/other_tls.pem" not in controller.render(withdrawn).texts


def test_a_service_beyond_its_limit_keeps_no_former_filter_of_the_administrator() -> None:
    filters: dict[str, Any] = {"gatewayFilters": {"access": ["*"]}, "rateLimitExempt": ["10.0.0.0/8"]}
    one = gateway_rule("/", filters=[extension("access")])
    limited = gateway_route("web", one, hostnames=["a.test"])
    limited["metadata"]["annotations"] = {"haptic-trio/rate-limit": "5"}

    def slices(count: int) -> Resource:
        addresses = (endpoint(f"10.1.0.{number}") for number in range(1, count + 1))
        return endpoint_slice("app", *addresses, ports=80, namespace="web")

    controller = Succession((*LIBRARIES, "gateway"), limits={"max_namespace_servers": 8}, **filters)
    controller.render(gateway_class(), gateway(), limited, service("app", namespace="web"), slices(1))
    rendered = controller.render(slices(9))
    assert [str(one.subject) for one in rendered.rejections][:1] == ["Service web/app"]
    assert "# filter access" in rendered.text

    assert "# filter access" not in controller.configure(**{**filters, "rateLimitExempt": []}).text
    assert "# filter access" in controller.render(slices(2)).text


@pytest.mark.parametrize("is_at_once", [True, False])
@pytest.mark.parametrize("gone", [0, 1])
@pytest.mark.parametrize(
    "annotations",
    [
        {"auth-tls-secret": "tenant/authority", "auth-tls-verify-client": "on"},
        {
            "backend-protocol": "HTTPS",
            "proxy-ssl-secret": "tenant/authority",
            "proxy-ssl-verify": "on",
            "proxy-ssl-name": "a.test",
        },
    ],
)
def test_a_good_version_has_its_files_although_the_object_that_registered_them_is_deleted(
    annotations: dict[str, str], gone: int, *, is_at_once: bool
) -> None:
    """HAProxy rejects a configuration that names an absent file, also for changes of other tenants."""
    issuer = trustme.CA()
    issued = issuer.issue_cert("*.test", key_type=trustme.KeyType.ECDSA)
    pair = tls_secret("pair", issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes(), namespace="tenant")
    authority = secret("authority", data={"ca.crt": issuer.cert_pem.bytes().decode()})
    own: dict[str, Any] = {
        "namespace": "tenant",
        "annotations": {NGINX + name: text for name, text in annotations.items()},
    }
    services = [service(name, namespace="tenant") for name in "ab"]
    slices = [endpoint_slice(name, endpoint("10.0.0.1"), ports=80, namespace="tenant") for name in "ab"]
    ingresses = [
        ingress(
            name, rule(f"{name}.test", path("/", name)), tls=[{"hosts": [f"{name}.test"], "secretName": "pair"}], **own
        )
        for name in "ab"
    ]
    controller = Succession(LIBRARIES, httpsPort=8443)
    before = controller.render(pair, authority, *services, *slices, *ingresses)
    assert (len(named_files(before)), before.rejections) == (1, ())
    assert named_files(before) <= before.texts.keys()

    controller.delete(authority)
    if not is_at_once:
        controller.render()
    controller.delete(ingresses[gone])
    rendered = controller.render()

    assert fallbacks(rendered) == {(f"Ingress tenant/{'ba'[gone]}", True)}
    assert named_files(rendered) == named_files(before)
    assert named_files(rendered) <= rendered.texts.keys()


def named_files(rendered: Rendered) -> set[str]:
    """Return the files of CA certificates that the configuration names."""
    return set(re.findall(r"ca-file \"?([\w./-]+)", everything(rendered)))
