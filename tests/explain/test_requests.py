"""The match of a request has the map line, the backend and its servers."""

import msgspec
import pytest

from haptic_trio.explain.requests import RequestQuestion, match_request
from haptic_trio.explain.targets import MalformedTargetError
from tests.explain.sites import number_of, secret, site_of
from tests.explain.test_gateways import mixed
from tests.explain.test_route_list import web
from tests.explain.test_secrets import PASSWORD
from tests.support.kubernetes import ingress, path, rule

SERVER = """\
{% each secret in resources.tlsSecrets %}
backend planted
    server {{ ident(secret.data.password | b64decode) }} 10.0.0.9:80
{% endeach %}
"""


def test_a_request_has_its_entry_backend_and_servers() -> None:
    site = site_of(*web(), ingress("i", rule("a.test", path("/shop", "web"))))

    found = match_request(site, RequestQuestion(target="https://A.test:8443/shop/cart?x=1"))

    assert (found.route["host"], found.route["path"], found.route["backend"]) == (
        "a.test",
        "/shop/cart",
        "default_web_80",
    )
    assert found.route["winner"]["made_by"]["object"]["name"] == "i"
    (backend,) = found.backends
    assert backend.object is not None
    assert (str(backend.object), backend.servers_count) == ("Service default/web", 2)
    assert [one.address for one in backend.servers] == ["10.0.0.1:80", "10.0.0.2:80"]
    assert backend.servers[0].line == number_of(site, "haproxy.cfg", "server s1 10.0.0.1:80")
    assert backend.line == number_of(site, "haproxy.cfg", "backend default_web_80 from profile-http")


def test_a_request_without_a_route_or_backend_says_so() -> None:
    site = site_of(*web(), ingress("i", rule("a.test", path("/gone", "gone"))))

    lost, unknown = (match_request(site, RequestQuestion(target=target)) for target in ("a.test/gone", "b.test"))

    assert (lost.route["status"], lost.backends[0].line, lost.backends[0].servers) == (503, 0, ())
    assert (unknown.route["status"], unknown.backends) == (404, ())


def test_a_request_to_a_gateway_has_its_routes() -> None:
    visits = match_request(mixed(), RequestQuestion(target="shop.test/shop/1")).visits

    (visit,) = [one for one in visits if one.routes]
    (route,) = visit.routes
    assert (visit.listener, route.verdict, str(route.object)) == ("web/gw/web", "yes", "HTTPRoute web/web")


def test_servers_that_derive_from_a_secret_are_hidden() -> None:
    holder = secret("tls", "a.test")
    holder = {**holder, "data": {**holder["data"], "password": "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5"}}
    line = "{% each ingress in resources.ingresses %}\nb.test|/ planted\n{% endeach %}\n"
    site = site_of(
        holder, *web(), ingress("i", rule("a.test", path("/", "web"))),
        snippets={"backends-planted": SERVER, "map-path-prefix-planted": line},
    )  # fmt: skip

    found = match_request(site, RequestQuestion(target="b.test/"))

    assert PASSWORD in site.texts["haproxy.cfg"].text
    assert [one.address for one in found.backends[0].servers] == [""]
    assert PASSWORD not in msgspec.json.encode(found).decode()


@pytest.mark.parametrize("target", ["", "/only-a-path", "http://[::1/x", "a.test/\udc80", "a" * 5000])
def test_what_is_not_a_request_is_rejected(target: str) -> None:
    with pytest.raises(MalformedTargetError):
        match_request(site_of(*web()), RequestQuestion(target=target))
