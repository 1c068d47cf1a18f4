"""Annotations and routes can make HAProxy connect only to endpoints of Services and to allowed addresses.

The table in docs/annotations.md lists these annotations.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.filters.external import agent_address, agent_send
from tests.gateway.objects import made, route
from tests.gateway.objects import rule as route_rule
from tests.libraries.gateway.test_gateway import Site
from tests.support.components.rendering import Rendered, render
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service

PAGE = Path(__file__).parents[3] / "docs/annotations.md"
NGINX, ORG, HI = "nginx.ingress.kubernetes.io/", "haproxy.org/", "haproxy-ingress.github.io/"
LIBRARIES = {
    NGINX: ("base", "ssl", "ingress", "nginx-annotations"),
    ORG: ("base", "ssl", "ingress", "haproxy-org-annotations"),
    HI: ("base", "ssl", "ingress", "haproxy-ingress-annotations"),
}
ELSEWHERE = "203.0.113.9"
"""An address that is no endpoint's."""
REJECTED: list[tuple[str, dict[str, str]]] = [
    (HI, {"agent-check-port": "6379", "agent-check-addr": ELSEWHERE}),
    (HI, {"agent-check-port": "6379", "agent-check-addr": "127.0.0.1"}),
    (HI, {"agent-check-port": "6379", "agent-check-addr": "::ffff:169.254.169.254"}),
    (HI, {"auth-url": f"http://{ELSEWHERE}/"}),
    (HI, {"auth-url": "svc://other/app:80/"}),
    (HI, {"health-check-addr": ELSEWHERE}),
    (HI, {"dns-resolvers": f"kube={ELSEWHERE}:53"}),
    (HI, {"modsecurity-endpoints": f"{ELSEWHERE}:9000"}),
    (HI, {"oauth": "oauth2_proxy"}),
    (HI, {"service-upstream": "true"}),
    (HI, {"source-address-intf": "eth0"}),
    (HI, {"syslog-endpoint": f"{ELSEWHERE}:514"}),
    (HI, {"tcp-service-port": "7000"}),
    (HI, {"waf": "modsecurity"}),
    (NGINX, {"auth-url": f"http://{ELSEWHERE}/"}),
    (NGINX, {"auth-url": "http://app.other.svc.cluster.local/"}),
    (NGINX, {"custom-http-errors": "404"}),
    (NGINX, {"default-backend": "other/app"}),
    (NGINX, {"mirror-target": f"http://{ELSEWHERE}/"}),
    (NGINX, {"modsecurity-snippet": f"SecRule http://{ELSEWHERE}"}),
    (NGINX, {"stream-snippet": f"proxy_pass {ELSEWHERE}:80;"}),
    (ORG, {"backend-config-snippet": f"server x {ELSEWHERE}:80"}),
    (ORG, {"cr-backend": "other/app"}),
    (ORG, {"route-acl": f"dst {ELSEWHERE}"}),
    (ORG, {"syslog-server": f"address:{ELSEWHERE}"}),
]
"""Annotations with which an Ingress is served by none of its backends."""
REDIRECTS: list[tuple[str, dict[str, str]]] = [
    (HI, {"redirect-to": f"http://{ELSEWHERE}/"}),
    (HI, {"auth-url": "svc://app:80/", "auth-signin": f"http://{ELSEWHERE}/"}),
    (NGINX, {"permanent-redirect": f"http://{ELSEWHERE}/"}),
    (NGINX, {"upstream-vhost": ELSEWHERE}),
    (NGINX, {"auth-url": "http://app.default.svc/", "auth-signin": f"http://{ELSEWHERE}/"}),
    (ORG, {"request-redirect": ELSEWHERE}),
    (ORG, {"set-host": ELSEWHERE}),
]
"""Values that only a client or an endpoint receives: HAProxy connects to none of them."""
OWN: list[tuple[str, dict[str, str]]] = [
    (HI, {"agent-check-port": "9000", "agent-check-send": "up?\\n"}),
    (HI, {"health-check-port": "9000"}),
    (HI, {"backend-protocol": "h1-ssl", "secure-sni": "host", "proxy-protocol": "v2"}),
    (NGINX, {"backend-protocol": "HTTPS", "proxy-ssl-name": f"{ELSEWHERE}.test", "proxy-ssl-server-name": "on"}),
    (ORG, {"check": "true", "check-http": f"/{ELSEWHERE}", "send-proxy-protocol": "proxy"}),
]
"""What concerns connections to the endpoints themselves."""
_PLACES = re.compile(r"(?:^    server \S+ |agent-addr | addr |nameserver \S+ |source |log )(\S+)", re.MULTILINE)


def objects(prefix: str, annotations: dict[str, str]) -> list[Resource]:
    """Return a Service with an endpoint, and an Ingress with *annotations*."""
    return [
        service("app"),
        endpoint_slice("app", endpoint("10.0.0.1"), ports=8080),
        ingress(
            "web",
            rule("web.test", path("/", "app")),
            annotations={f"{prefix}{name}": value for name, value in annotations.items()},
        ),
    ]


def rendered(prefix: str, annotations: dict[str, str], **context: Any) -> Rendered:
    """Render an Ingress with *annotations*."""
    return render(objects(prefix, annotations), libraries=LIBRARIES[prefix], **context)


def places(text: str) -> set[str]:
    """Return where lines of *text* have HAProxy connect to by themselves."""
    return set(_PLACES.findall(text)) - {"global", "stdout"}


@pytest.mark.parametrize(("prefix", "annotations"), REJECTED, ids=str)
def test_an_annotation_that_leads_elsewhere_is_rejected(prefix: str, annotations: dict[str, str]) -> None:
    found = rendered(prefix, annotations)

    assert list(found.rejected) == ["Ingress default/web"]
    assert ELSEWHERE not in found.text + "".join(found.files.values())
    assert not places(found.text)


@pytest.mark.parametrize(("prefix", "annotations"), [*REDIRECTS, *OWN], ids=str)
def test_other_annotations_lead_to_endpoints_alone(prefix: str, annotations: dict[str, str]) -> None:
    found = rendered(prefix, annotations)

    assert not found.rejected
    assert places(found.text) <= {"10.0.0.1:8080"}


def test_every_name_is_in_the_table() -> None:
    page = PAGE.read_text()
    table = page[page.index("## Where annotations make HAProxy connect") :]
    named = {f"`{name}`" for _, annotations in [*REJECTED, *REDIRECTS, *OWN] for name in annotations}

    assert {name for name in named if name not in table} == set()


def test_an_administrator_lists_addresses_of_agents() -> None:
    annotations = {"agent-check-port": "9000", "agent-check-addr": ELSEWHERE}

    found = rendered(HI, annotations, agentCheckAddresses=["203.0.113.0/24"])

    assert not found.rejected
    assert f"agent-check agent-port 9000 agent-addr {ELSEWHERE}" in found.text


@pytest.mark.parametrize("text", ["", "a\nb", "a\r\n", "caf\u00e9", "a\0", "\x1b[2J", "x" * 256, "a\u2028b"])
def test_what_agents_are_sent_is_printable_ascii(text: str) -> None:
    with pytest.raises(EmitError):
        agent_send(text)


def test_what_agents_are_sent_may_end_a_line() -> None:
    assert agent_send("state of 'web'\\n") == "'state of '\\''web'\\'''\"\\n\""
    assert agent_send("\\n") == '"\\n"'


@pytest.mark.parametrize("text", ["0.0.0.0", "192.0.2.8", "::1", "::ffff:192.0.2.7", "example.com", ""])
def test_an_address_of_an_agent_is_one_of_the_list(text: str) -> None:
    assert agent_address("192.0.2.7", ["192.0.2.7", "2001:db8::/32"]) == "192.0.2.7"
    with pytest.raises(EmitError):
        agent_address(text, ["192.0.2.7", "2001:db8::/32"])


def external_name() -> list[Resource]:
    """Return a Service of type ExternalName, and an EndpointSlice that claims to be its own."""
    spec = {"type": "ExternalName", "externalName": f"{ELSEWHERE}.test", "ports": [{"port": 80}]}
    piece = endpoint_slice("away", endpoint(ELSEWHERE), ports=80, namespace="web")
    return [made("Service", "away", namespace="web", version="v1", spec=spec), piece]


@pytest.mark.parametrize("field", ["backendRef", "mirror", "mirror of a backend", "external auth", "extension"])
def test_a_route_leads_to_endpoints_of_services_alone(field: str) -> None:
    reference: dict[str, Any] = {"name": "away", "port": 80}
    mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": reference}}
    auth = {"type": "ExternalAuth", "externalAuth": {"protocol": "HTTP", "backendRef": reference}}
    extension = {"type": "ExtensionRef", "extensionRef": {"group": "x", "kind": "Y", "name": "away"}}
    rules: dict[str, dict[str, Any]] = {
        "backendRef": route_rule("/a", to="away"),
        "mirror": route_rule("/a", filters=[mirror]),
        "mirror of a backend": {"backendRefs": [{"name": "app", "port": 80, "filters": [mirror]}]},
        "external auth": route_rule("/a", filters=[auth]),
        "extension": route_rule("/a", filters=[extension]),
    }
    site = Site()
    site.put(*external_name(), route("r", rules[field]))

    found = site.render()

    assert not any(ELSEWHERE in text.text for text in found.texts.values())
    assert places(found.text) <= {"10.0.0.1:8080"}
    rule_text = found.texts["maps/gateway-rules.map"].text
    assert "10.0.0.1" not in rule_text
