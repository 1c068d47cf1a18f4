"""The text of a target is parsed or rejected without knowledge of the site."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.explain.targets import (
    LONGEST,
    CertificateTarget,
    FileTarget,
    HostTarget,
    LineTarget,
    MalformedTargetError,
    NameTarget,
    ObjectTarget,
    SectionTarget,
    as_line,
    as_request,
    parse_target,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("backend shop", SectionTarget("backend", "shop")),
        ("Backend  shop ", SectionTarget("backend", "shop")),
        ("global", SectionTarget("global", "")),
        ("host a.example.com", HostTarget("a.example.com", "")),
        ("host a.example.com/x?y=/z", HostTarget("a.example.com", "/x")),
        ("https://user@a.example.com:8443/x/?y#z", HostTarget("a.example.com:8443", "/x/")),
        ("https://a.example.com", HostTarget("a.example.com", "/")),
        ("sni a.example.com", CertificateTarget("a.example.com")),
        ("certificate *.example.com", CertificateTarget("*.example.com")),
        ("file maps/host.map", FileTarget("maps/host.map")),
        ("Ingress default/shop", ObjectTarget("Ingress", "default", "shop")),
        ("ingressclass haptic", ObjectTarget("ingressclass", None, "haptic")),
        ("shop.example.com/cart", NameTarget("shop.example.com/cart")),
        ("haproxy.cfg:12", NameTarget("haproxy.cfg:12")),
    ],
)
def test_targets(text: str, expected: object) -> None:
    assert parse_target(text) == expected


@pytest.mark.parametrize("text", ["", "   ", "http://", "http://[/x", "a\ud800", "x" * (LONGEST + 1)])
def test_what_means_nothing_is_rejected(text: str) -> None:
    with pytest.raises(MalformedTargetError):
        parse_target(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("haproxy.cfg:12", LineTarget("haproxy.cfg", 12)),
        ("[/etc/haproxy/haproxy.cfg:12]", LineTarget("/etc/haproxy/haproxy.cfg", 12)),
        ("haproxy.cfg:12:7", LineTarget("haproxy.cfg", 12)),
        ("ssl/a:2f.pem:3", LineTarget("ssl/a:2f.pem", 3)),
        ("haproxy.cfg", None),
        ("haproxy.cfg:x", None),
    ],
)
def test_lines(text: str, expected: object) -> None:
    assert as_line(text) == expected


@given(st.text())
def test_any_text_is_understood_or_rejected(text: str) -> None:
    try:
        parse_target(text)
    except MalformedTargetError:
        return
    as_line(text)
    as_request(text)
