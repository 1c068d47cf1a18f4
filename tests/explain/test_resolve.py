"""From a target to its answer: every kind of target, what is unknown, and what means several things."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptic_trio.explain.answers import (
    CertificateAnswer,
    FileAnswer,
    HostAnswer,
    LineAnswer,
    ObjectAnswer,
    RouteAnswer,
    SectionAnswer,
    to_json,
)
from haptic_trio.explain.resolve import explain
from haptic_trio.explain.site import Site
from haptic_trio.explain.targets import AmbiguousTargetError, MalformedTargetError, TargetError, UnknownTargetError
from tests.explain.sites import number_of, secret, site_of
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service, service_backend

SHOP = (
    ingress(
        "shop",
        rule("shop.example.com", path("/", "web"), path("/cart", "cart", "http")),
        rule("*.example.com", path("/", "web")),
        tls=[{"hosts": ["shop.example.com"], "secretName": "tls"}],
    ),
    service("web"),
    service("cart", {"name": "http", "port": 8080, "protocol": "TCP"}),
    endpoint_slice("cart", endpoint("10.0.0.1"), endpoint("10.0.0.2"), ports={"http": 80}),
    secret("tls", "shop.example.com", "*.example.com"),
)


@pytest.fixture(scope="module")
def site() -> Site:
    return site_of(*SHOP, sslRedirect=True)


def test_a_line_leads_to_template_fragment_object_and_lookups(site: Site) -> None:
    number = number_of(site, "haproxy.cfg", "server s2 10.0.0.2:80")

    answer = explain(site, f"haproxy.cfg:{number}")

    assert isinstance(answer, LineAnswer)
    assert (answer.section, answer.line.text, answer.line.is_secret) == (
        "backend default_cart_8080",
        "    server s2 10.0.0.2:80",
        False,
    )
    maker = answer.made_by
    assert (maker.output, maker.fragment, maker.template, str(maker.object)) == (
        "haproxy.cfg",
        "ingress-backends",
        "backends-ingress",
        "Service default/cart",
    )
    assert maker.object is not None
    assert maker.object.resource_version == "1"
    assert site.templates[maker.template].split("\n")[maker.line - 1].startswith("{% each")
    assert [source.template for source in answer.sources] == ["backends-ingress"]
    assert {lookup.question: [str(one) for one in lookup.found] for lookup in answer.depends_on} == {
        "resources.endpointSlices.get('default', 'cart')": ["EndpointSlice default/cart-1"],
        "resources.ingressesByService.get('default', 'cart')": ["Ingress default/shop"],
    }


def test_a_line_of_the_frame_has_no_object_but_a_template_line(site: Site) -> None:
    number = number_of(site, "haproxy.cfg", "timeout tunnel 1h")

    answer = explain(site, f"[haproxy.cfg:{number}]")

    assert isinstance(answer, LineAnswer)
    assert (answer.made_by.object, answer.made_by.fragment, answer.section) == (None, "", "defaults profile-http")
    (source,) = answer.sources
    assert site.templates[source.template].split("\n")[source.line - 1].strip().startswith("timeout tunnel")


def test_a_file_may_be_named_by_its_end_or_by_a_longer_path(site: Site) -> None:
    answers = [explain(site, f"{path_}:1") for path_ in ("path-prefix.map", "/srv/x/maps/path-prefix.map")]

    assert answers[0] == answers[1] == explain(site, "maps/path-prefix.map:1")


def test_a_section_names_its_makers_and_the_routes_to_it(site: Site) -> None:
    answer = explain(site, "backend default_cart_8080")

    assert isinstance(answer, SectionAnswer)
    assert site.lines_of("haproxy.cfg")[answer.first - 1].startswith("backend default_cart_8080")
    assert site.lines_of("haproxy.cfg")[answer.last - 1].strip() == "server s2 10.0.0.2:80"
    assert [str(part.made_by.object) for part in answer.parts] == ["Service default/cart"]
    assert [(entry.scope, entry.path, str(entry.made_by.object)) for entry in answer.routes] == [
        ("shop.example.com", "/cart/", "Ingress default/shop")
    ]
    assert explain(site, "default_cart_8080") == answer


def test_a_host_lists_its_routes_in_lookup_order_and_its_certificates(site: Site) -> None:
    answer = explain(site, "SHOP.example.com")

    assert isinstance(answer, HostAnswer)
    assert [(entry.scope, entry.path) for entry in answer.entries] == [
        ("shop.example.com", "/cart/"),
        ("shop.example.com", "/"),
        ("*.example.com", "/"),
    ]
    assert [str(certificate.made_by.object) for certificate in answer.certificates] == ["Secret default/tls"]
    assert answer.notes == ("plain HTTP is redirected to HTTPS: maps/tls-host.map has shop.example.com",)
    assert isinstance(explain(site, "*.example.com"), HostAnswer)


def test_a_wildcard_of_another_namespace_does_not_redirect_an_older_host() -> None:
    shop = ingress("shop", rule("shop.example.com", path("/", "web")))
    wildcard = ingress("all", rule("*.example.com", path("/", "web")), namespace="other", age=2)
    wildcard["spec"]["tls"] = [{"hosts": ["*.example.com"]}]
    found = site_of(shop, wildcard, sslRedirect=True)

    def notes(host: str) -> str:
        answer = explain(found, host)
        return "; ".join(answer.notes) if isinstance(answer, HostAnswer) else ""

    assert "redirected" not in notes("shop.example.com")
    assert "redirected" in notes("new.example.com")


def test_a_request_names_the_entry_that_wins_and_those_behind_it(site: Site) -> None:
    answer = explain(site, "https://shop.example.com:8443/cart/7?x=1")

    assert isinstance(answer, RouteAnswer)
    assert (answer.host, answer.path, answer.status, answer.backend) == (
        "shop.example.com",
        "/cart/7",
        0,
        "default_cart_8080",
    )
    assert answer.winner is not None
    assert (answer.winner.match, answer.winner.path, str(answer.winner.made_by.object)) == (
        "prefix",
        "/cart/",
        "Ingress default/shop",
    )
    assert answer.backend_made_by is not None
    assert str(answer.backend_made_by.object) == "Service default/cart"
    assert [(entry.scope, entry.path) for entry in answer.others] == [("shop.example.com", "/"), ("*.example.com", "/")]
    assert [(step.match, step.key, step.found) for step in answer.steps] == [
        ("exact", "shop.example.com|/cart/7", False),
        ("prefix", "shop.example.com|/cart/7/", True),
    ]
    assert [lookup.question for lookup in answer.depends_on] == [
        "resources.ingressesByHost.has('*.example.com')",
        "resources.ingressesByHost.has('shop.example.com')",
        "resources.services.has('default', 'cart')",
        "resources.services.has('default', 'web')",
        "resources.tlsSecrets.has('default', 'tls')",
    ]
    assert explain(site, "shop.example.com/cart/7") == answer


def test_a_request_without_a_route_or_without_a_backend_is_answered_by_haproxy_itself() -> None:
    site = site_of(ingress("a", rule("a.example.com", path("/x", "gone", kind="Exact"))))

    missing, absent = explain(site, "a.example.com/x"), explain(site, "a.example.com/y")

    assert isinstance(missing, RouteAnswer)
    assert isinstance(absent, RouteAnswer)
    assert (missing.status, missing.backend, missing.backend_made_by) == (503, "default_gone_80", None)
    assert (absent.status, absent.backend, absent.winner, len(absent.steps)) == (404, "", None, 6)


def test_a_host_that_only_the_catch_all_serves_is_explained_by_it() -> None:
    site = site_of(ingress("all", defaultBackend=service_backend("web")), service("web"))

    answer = explain(site, "never.heard.of/x")

    assert isinstance(answer, RouteAnswer)
    assert answer.winner is not None
    assert (answer.status, answer.winner.scope, answer.winner.match) == (0, "*", "default")


def test_a_request_for_an_unknown_host_is_explained() -> None:
    site = site_of(ingress("a", rule("a.example.com", path("/", "web"))), service("web"))

    stray, typo = explain(site, "never.heard.of/"), explain(site, "b.example.com/x")

    assert isinstance(stray, RouteAnswer)
    assert isinstance(typo, RouteAnswer)
    assert (stray.status, stray.backend, typo.status) == (404, "", 404)
    assert "a.example.com" not in " ".join(stray.notes)
    assert "there are routes for a.example.com" in typo.notes[0]
    with pytest.raises(UnknownTargetError, match="nothing is named"):
        explain(site, "never.heard.of")


def test_a_server_name_leads_to_its_certificate_by_name_before_wildcard() -> None:
    own, wild = rule("a.x.org", path("/", "w")), rule("*.x.org", path("/", "w"))
    names = [{"secretName": "wild", "hosts": ["*.x.org"]}, {"secretName": "own", "hosts": ["a.x.org"]}]
    site = site_of(
        ingress("i", own, wild, tls=names),
        secret("wild", "*.x.org"),
        secret("own", "a.x.org", age=2),
    )

    answer = explain(site, "certificate a.x.org")

    assert isinstance(answer, CertificateAnswer)
    assert [str(one.made_by.object) for one in answer.certificates] == ["Secret default/own"]
    other = explain(site, "sni b.x.org")
    assert isinstance(other, CertificateAnswer)
    assert [one.names for one in other.certificates] == [("*.x.org",)]


def test_an_object_is_found_by_kind_plural_case_and_without_its_namespace(site: Site) -> None:
    answers = [
        explain(site, text)
        for text in ("Service default/cart", "services default/cart", "SERVICE cart", "default/cart", "cart")
    ]

    assert all(answer == answers[0] for answer in answers)
    assert isinstance(answers[0], ObjectAnswer)
    assert str(answers[0].object) == "Service default/cart"


def test_a_file_without_a_line_names_all_its_makers(site: Site) -> None:
    answer = explain(site, "file maps/path-prefix.map")

    assert isinstance(answer, FileAnswer)
    assert (answer.kind, answer.lines, answer.parts_count) == ("map", 3, 1)
    assert [(part.first, part.last, str(part.made_by.object)) for part in answer.parts] == [
        (1, 3, "Ingress default/shop")
    ]


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("haproxy.cf:3", "haproxy.cfg:3"),
        ("maps/path-prefx.map:1", "maps/path-prefix.map:1"),
        ("haproxy.cfg:99999", "haproxy.cfg:"),
        ("backend default_crt_8080", "backend default_cart_8080"),
        ("Service default/crt", "Service default/cart"),
        ("service default/webb", "Service default/web"),
        ("shop.exmple.com", "shop.example.com"),
        ("host shop.exmple.com", "shop.example.com"),
        ("certificate shop.exmple.com", "certificate shop.example.com"),
        ("default_cart_808", "backend default_cart_8080"),
        ("file path-exct.map", "maps/path-exact.map"),
    ],
)
def test_what_is_unknown_is_rejected_with_the_nearest(text: str, suggestion: str) -> None:
    site = site_of(
        ingress("shop", rule("shop.example.com", path("/", "cart", 8080)), tls=[{"secretName": "tls"}]),
        service("web"),
        service("cart", {"port": 8080}),
        secret("tls", "shop.example.com"),
    )
    with pytest.raises(UnknownTargetError) as caught:
        explain(site, text)

    assert caught.value.suggestions[0].startswith(suggestion)


def test_an_object_of_an_unknown_kind_names_the_kinds_that_are_known(site: Site) -> None:
    with pytest.raises(UnknownTargetError) as caught:
        explain(site, "Pod default/web")

    assert caught.value.hint == "watched kinds with objects: EndpointSlice, Ingress, Secret, Service"


def test_what_means_several_things_is_rejected_with_all_of_them() -> None:
    site = site_of(ingress("web", rule("web", path("/", "web"))), service("web"), service("web", namespace="other"))
    with pytest.raises(AmbiguousTargetError) as caught:
        explain(site, "web")
    with pytest.raises(AmbiguousTargetError) as of_kind:
        explain(site, "Service web")

    assert caught.value.suggestions == ("Ingress default/web", "Service default/web", "Service other/web", "host web")
    assert of_kind.value.suggestions == ("Service default/web", "Service other/web")
    for suggestion in caught.value.suggestions:
        explain(site, suggestion)


@pytest.mark.parametrize("text", ["haproxy.cfg:0", "", "host :80", "host /x"])
def test_what_means_nothing_is_rejected(site: Site, text: str) -> None:
    with pytest.raises(MalformedTargetError):
        explain(site, text)


PIECES = st.sampled_from(
    [
        "backend",
        "host",
        "sni",
        "file",
        "Service",
        "default",
        "shop",
        "cart",
        "/",
        ":",
        ".",
        "*",
        "|",
        "-1",
        "9" * 9,
        "haproxy.cfg",
        "maps/path-exact.map",
        "shop.example.com",
        "https://",
        "[",
        "]",
        " ",
        "\x1b[31m",
        "\0",
        "ü",
        "\ud800",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=6).map("".join) | st.text(max_size=30))
def test_any_target_is_answered_or_rejected(text: str) -> None:
    try:
        msgspec.json.encode(to_json(explain(_site(), text)))
    except TargetError:
        return


_SITES: list[Site] = []


def _site() -> Site:
    if not _SITES:
        _SITES.append(site_of(*SHOP))
    return _SITES[0]
