"""The last good version of a rejected object: it keeps no host, path or certificate that belongs to others by now."""

import base64
from typing import Any

import pytest
import trustme

from haptic_trio.k8s.resource import Resource
from tests.libraries.tenants.tenants import EVIL, HOST, NGINX, VICTIM, evil, secret, secured, victim
from tests.libraries.tenants.test_withdrawn_permissions import everything
from tests.support.components.succession import Succession
from tests.support.kubernetes import meta, path, rule, service

LIBRARIES = ("base", "ssl", "ingress", "nginx-annotations")
OTHER = "other.example.com"
SERVICES = [service("web", namespace=namespace) for namespace in ("attacker", "victim")]
PATHS, LIST = "maps/path-exact.map", "ssl/https.list"
ANNOTATED = {NGINX + "proxy-body-size": "1m"}
AUTHORITY = {
    "apiVersion": "v1",
    "kind": "Secret",
    "type": "Opaque",
    "metadata": meta("ca", "attacker"),
    "data": {"ca.crt": base64.b64encode(trustme.CA().cert_pem.bytes()).decode()},
}


def changed(resource: Resource, version: int = 2, **metadata: Any) -> Resource:
    return {**resource, "metadata": {**resource["metadata"], "resourceVersion": str(version), **metadata}}


def broken(host: str, annotations: dict[str, str]) -> Resource:
    """Return the attacker's Ingress, rejected, and for *host* instead."""
    given = {**annotations, NGINX + "no-such-annotation": "yes"}
    return changed(evil(rule(host, path("/", "web")), annotations=given, tls=secured(host)))


@pytest.mark.parametrize("is_paused", [False, True])
def test_an_exact_path_belongs_to_an_older_ingress_that_takes_it(is_paused: bool) -> None:
    controller = Succession(LIBRARIES)
    login = evil(rule(HOST, path("/login", "web", kind="Exact")), annotations=ANNOTATED)
    controller.render(*SERVICES, victim(rule(HOST, path("/", "web"))), login)
    if is_paused:
        controller.pause("Ingress", "attacker", "evil")
    assert f"{HOST}|/login" in controller.render(broken(OTHER, ANNOTATED)).texts[PATHS].text

    older = changed(victim(rule(HOST, path("/", "web"), path("/login", "web"))))
    rendered = controller.render(older)

    assert HOST not in rendered.texts[PATHS].text
    # As if it were not rejected. A version that is not rendered again ends.
    if not is_paused:
        assert everything(rendered) == everything(Succession(LIBRARIES).render(*SERVICES, older, login))
    assert {(str(one.subject), one.has_fallback) for one in rendered.rejections} == {
        ("Ingress attacker/evil", not is_paused)
    }


def test_connections_of_a_host_pass_through_to_no_former_version_once_an_older_ingress_serves_it() -> None:
    annotations = {NGINX + "ssl-passthrough": "true"}
    controller = Succession(LIBRARIES)
    controller.render(
        *SERVICES, victim(rule(OTHER, path("/", "web"))), evil(rule(HOST, path("/", "web")), annotations=annotations)
    )
    assert (
        HOST in controller.render(broken("third.example.com", annotations)).texts["maps/ingress-passthrough.map"].text
    )

    rendered = controller.render(changed(victim(rule(OTHER, path("/", "web")), rule(HOST, path("/", "web")))))

    assert rendered.texts["maps/ingress-passthrough.map"].text.strip() == ""


def test_clients_of_a_host_are_asked_for_no_certificate_by_a_former_version_once_an_older_ingress_serves_it() -> None:
    annotations, tls = {NGINX + "auth-tls-secret": "ca"}, secret("attacker", "tls", HOST, OTHER, by=EVIL)
    asking = evil(rule(HOST, path("/", "web")), annotations=annotations, tls=secured(HOST))
    controller = Succession(LIBRARIES)
    controller.render(*SERVICES, AUTHORITY, tls, victim(rule("third.example.com", path("/", "web"))), asking)
    assert "verify optional" in controller.render(broken(HOST, annotations)).texts[LIST].text

    rendered = controller.render(
        secret("victim", "tls", HOST, by=VICTIM, age=28),
        changed(victim(rule(HOST, path("/", "web")), tls=secured(HOST))),
    )

    lines = rendered.texts[LIST].text.splitlines()
    assert [line for line in lines if HOST in line or "verify" in line] == [f"ssl/victim_tls.pem {HOST}"]


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_rejected_secret_is_shown_for_no_host_that_its_ingresses_have_left_to_others(is_paused: bool) -> None:
    tls = secret("attacker", "tls", HOST, OTHER, by=EVIL, age=1)
    controller = Succession(LIBRARIES)
    controller.render(
        *SERVICES, tls, evil(rule(HOST, path("/", "web")), rule(OTHER, path("/", "web")), tls=secured(HOST, OTHER))
    )
    controller.render({**changed(tls), "data": {"tls.crt": "", "tls.key": ""}})
    # The good version has the present hosts, although nobody else has the other one yet.
    rendered = controller.render(changed(evil(rule(OTHER, path("/", "web")), tls=secured(OTHER))))
    assert rendered.texts[LIST].text.split() == ["ssl/attacker_tls.pem", OTHER]
    if is_paused:
        controller.pause("Secret", "attacker", "tls")

    shop = victim(rule(HOST, path("/", "web")), tls=secured(HOST), age=28)
    rendered = controller.render(secret("victim", "tls", HOST, by=VICTIM, age=28), shop)

    lines = {f"ssl/victim_tls.pem {HOST}", f"ssl/attacker_tls.pem {OTHER}"}
    assert set(rendered.texts[LIST].text.splitlines()) - {""} == lines


def test_a_rejected_ingress_redirects_no_host_that_an_older_one_takes() -> None:
    controller = Succession(LIBRARIES, sslRedirect=True)
    controller.render(
        *SERVICES,
        victim(rule(OTHER, path("/", "web"))),
        evil(rule(HOST, path("/", "web")), annotations=ANNOTATED, tls=secured(HOST)),
    )
    assert HOST in controller.render(broken("third.example.com", ANNOTATED)).texts["maps/tls-host.map"].text

    rendered = controller.render(changed(victim(rule(OTHER, path("/", "web")), rule(HOST, path("/", "web")))))

    assert HOST not in rendered.texts["maps/tls-host.map"].text
