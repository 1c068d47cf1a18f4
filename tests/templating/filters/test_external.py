"""Servers that requests are checked by: which are taken, which are rejected, and that every result is one field."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.templating.filters import external
from haptic_trio.templating.filters.emit import EmitError

FIELD = re.compile(r"[A-Za-z0-9%|*$._~-]+").fullmatch
URLS = st.text(alphabet="abz019.:/@?#&=%$\\'\"{}[]*|, \n\t;é-_", max_size=40)


@pytest.mark.parametrize(
    ("url", "scheme", "host", "path", "service"),
    [
        ("http://auth.shop.svc.cluster.local/a", "http", "auth.shop.svc.cluster.local", "%2Fa", ("shop", "auth", 80)),
        ("http://auth.shop.svc:8080", "http", "auth.shop.svc%3A8080", "%2F", ("shop", "auth", 8080)),
        ("https://AUTH.shop.svc/", "https", "auth.shop.svc", "%2F", ("shop", "auth", 443)),
        ("svc://auth:81/a/b", "http", "auth.shop.svc%3A81", "%2Fa%2Fb", ("shop", "auth", 81)),
        ("svc://shop/auth:81/a:1/b", "http", "auth.shop.svc%3A81", "%2Fa%3A1%2Fb", ("shop", "auth", 81)),
        ("service://auth:80?a=$scheme&b=$host", "http", "auth.shop.svc", "%2F%3Fa%3D|$scheme|%26b%3D|$host", None),
    ],
)
def test_a_url_names_a_service(
    url: str, scheme: str, host: str, path: str, service: tuple[str, str, int] | None
) -> None:
    found = external.auth_target(url, "shop")

    assert (found.scheme, found.host, found.path, found.address) == (scheme, host, path, "")
    assert service is None or (found.namespace, found.service, found.port) == service


@pytest.mark.parametrize(
    ("url", "listed", "address"),
    [
        ("http://192.0.2.1/", "192.0.2.1", "192.0.2.1:80"),
        ("https://[2001:DB8::1]:444/", "2001:db8::1", "[2001:db8::1]:444"),
        ("https://auth.example.com", "auth.example.com", ""),
    ],
)
def test_other_hosts_are_taken_when_they_are_listed(url: str, listed: str, address: str) -> None:
    assert external.auth_target(url, "shop", [listed]).address == address
    with pytest.raises(EmitError, match="not a Service"):
        external.auth_target(url, "shop", ["other.example.com"])


@pytest.mark.parametrize(
    "url",
    [
        "auth.shop.svc/",
        "ftp://auth.shop.svc/",
        "http:///a",
        "http://a@auth.shop.svc/",
        "http://auth.shop.svc:0/",
        "http://auth.shop.svc:99999/",
        "http://auth.other.svc/",
        "http://-.shop.svc/",
        "http://auth.shop.svc.evil.example/",
        "http://$host/",
        "http://auth.shop.svc/#a",
        "http://auth.shop.svc/a b",
        "http://auth.shop.svc/$request_uri",
        "http://auth.shop.svc/$arg_x",
        "http://auth.shop.svc/%zz",
        "http://auth.shop.svc/\nlua",
        "svc://auth/a",
        "svc://other/auth:80",
        "http://metadata/",
        "http://localhost/",
        "",
    ],
)
def test_what_is_not_a_server_of_the_namespace_is_rejected(url: str) -> None:
    with pytest.raises(EmitError):
        external.auth_target(url, "shop")


@given(URLS | URLS.map("http://auth.shop.svc/".__add__))
def test_whatever_is_taken_is_one_field(url: str) -> None:
    try:
        found = external.auth_target(url, "shop")
    except EmitError:
        return
    assert FIELD(found.path)
    assert FIELD(found.host)
    assert found.namespace == "shop"


@given(URLS | URLS.map("https://$host/".__add__), st.sampled_from(["", "rd"]))
def test_where_to_sign_in_is_one_field_and_never_a_script(url: str, parameter: str) -> None:
    try:
        found = external.auth_signin(url, parameter)
    except EmitError:
        return
    assert FIELD(found)
    assert re.match(r"https?%3A%2F%2F|%2F(?!%2F)", found)
    assert not parameter or "rd%3D" in found


@given(st.text(max_size=20))
def test_names_and_texts_are_fields(text: str) -> None:
    for emitter in (external.auth_headers, external.encoded):
        try:
            assert FIELD(emitter(text))
        except EmitError:
            continue


def test_lists_of_headers_may_have_beginnings() -> None:
    assert external.auth_headers("X-User, x-group-*,*") == "x-user|x-group-*|*"
    assert external.auth_headers(" ,") == "-"
    for bad in ("x-*-y", "a b", "a:b", "**"):
        with pytest.raises(EmitError):
            external.auth_headers(bad)


@pytest.mark.parametrize(("value", "number"), [("5s", "5000"), ("1m30s", "90000"), ("250ms", "250")])
def test_a_limit_is_in_milliseconds(value: str, number: str) -> None:
    assert external.auth_limit(value) == number


@pytest.mark.parametrize("value", ["", "5", "1h", "99ms", "11m", "5s\n", "0s"])
def test_a_limit_that_is_none_is_rejected(value: str) -> None:
    with pytest.raises(EmitError):
        external.auth_limit(value)
