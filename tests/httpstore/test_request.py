"""Requests of templates: what is allowed, what messages show, and which requests are equal."""

import base64
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.httpstore.request import FetchPolicy, FetchRequest, RequestFaultError, make_request
from haptic_trio.templating.values.text import Emitted

URL = "https://lists.example.com/deny.txt"
POLICY = FetchPolicy()


def encoded(**values: str) -> dict[str, Any]:
    return {"data": {key: base64.b64encode(text.encode()).decode() for key, text in values.items()}}


def find_secret(namespace: str, name: str) -> Mapping[str, Any] | None:
    known: dict[tuple[str, str], Mapping[str, Any]] = {
        ("default", "token"): encoded(token="s3cret-token\n"),
        ("default", "basic"): encoded(username="me", password="s3cret-password"),
        ("default", "other"): encoded(colour="s3cret-colour"),
        ("default", "broken"): {"data": {"token": "s3cret!"}},
    }
    return known.get((namespace, name))


def request(url: Any = URL, *, policy: FetchPolicy = POLICY, **options: Any) -> FetchRequest:
    return make_request(url, options, policy, find_secret)


def authorization(auth: Any) -> str | None:
    return dict(request(auth=auth).headers).get("authorization")


def test_equal_requests_are_one_and_others_are_not() -> None:
    keys = {
        request().key,
        request(interval="60s").key,
        request(auth={"token": "a"}).key,
        request(auth={"token": "b"}).key,
        request(critical=True).key,
        request(headers={"accept": "a"}).key,
        request("https://lists.example.com/deny.txt?a").key,
    }

    assert len(keys) == 7
    assert request(interval="1m", headers={"Accept": "x"}).key == request(interval=60, headers={"accept": "x"}).key
    assert request(Emitted(URL) + "#part").key == request().key


def test_a_path_from_a_secret_is_not_shown_and_makes_no_other_content() -> None:
    secret, other = (
        make_request(f"https://lists.example.com/S3CRET{end}", {}, POLICY, find_secret, is_secret=True) for end in "ab"
    )

    assert secret.label.startswith("https://lists.example.com/… (digest ")
    assert secret.label != other.label
    assert secret.key == request("https://lists.example.com/S3CRETa").key


def test_messages_about_a_request_have_neither_its_query_nor_its_credentials() -> None:
    found = request(
        "https://lists.example.com:8443/deny?token=s3cret", auth={"token": "s3cret"}, headers={"x-key": "s3cret"}
    )

    assert found.label == "https://lists.example.com:8443/deny?…"
    assert "s3cret" not in f"{found!r} {found.__rich_repr__()} {found.key}"


def test_credentials_come_from_variables_or_secrets() -> None:
    basic = "Basic " + base64.b64encode(b"me:s3cret-password").decode()

    assert authorization({"token": "abc"}) == "Bearer abc"
    assert authorization({"username": "me", "password": "s3cret-password"}) == basic
    assert authorization({"secret": "default/token"}) == "Bearer s3cret-token"
    assert authorization({"secret": "default/basic"}) == basic
    assert authorization({"secret": encoded(token="from-an-object")}) == "Bearer from-an-object"
    assert authorization(None) is None


@pytest.mark.parametrize(
    ("auth", "message"),
    [
        ("s3cret", "not a mapping"),
        ({"token": "s3cret\r\nx: y"}, "the token is not a valid header value"),
        ({"token": 5}, "the token is not a valid header value"),
        ({"username": "s3:cret", "password": "s3cret"}, "colon"),
        ({"username": "me"}, "neither"),
        ({"token": "s3cret", "username": "me"}, "neither"),
        ({"secret": "default/absent"}, "is not there"),
        ({"secret": None}, "is not there"),
        ({"secret": "absent"}, "names no Secret"),
        ({"secret": "default/other"}, "has neither"),
        ({"secret": "default/broken"}, "not text in base64"),
        ({"secret": "default/token", "token": "s3cret"}, "something beside"),
    ],
)
def test_credentials_that_are_none_are_rejected_without_repeating_them(auth: Any, message: str) -> None:
    with pytest.raises(RequestFaultError, match=message) as caught:
        request(auth=auth)

    assert "s3cret" not in f"{caught.value} {caught.value.hint}"
    # A traceback shows the cause.
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://lists.example.com/", "neither"),
        ("file:///etc/passwd", "neither"),
        ("/deny.txt", "neither"),
        ("https://", "names no host"),
        ("https://me:s3cret@lists.example.com/", "credentials"),
        ("https://lists.example.com/a b", "character"),
        ("https://lists.example.com/\r\nhost: x", "character"),
        ("https://lists.example.com/ü", "character"),
        ("https://lists.example.com:99999/", "cannot be read"),
        ("https://[::1/", "cannot be read"),
        ("https://lists.example.com\\@127.0.0.1/", "character"),
        ("https://" + "a" * 2_048, "longer"),
        (None, "not text"),
    ],
)
def test_what_is_not_an_http_url_is_rejected(url: Any, message: str) -> None:
    with pytest.raises(RequestFaultError, match=message) as caught:
        request(url)

    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"intervall": "5m"}, "no option 'intervall'"),
        ({"interval": "soon"}, "interval is not a valid duration"),
        ({"interval": -1}, "interval is not a valid duration"),
        ({"interval": "100ms"}, "shorter than 1 s"),
        ({"timeout": "1m"}, "between 0 and 30 s"),
        ({"timeout": 0}, "between 0 and 30 s"),
        ({"retries": 11}, "`retries`"),
        ({"retries": True}, "`retries`"),
        ({"critical": "yes"}, "`critical`"),
        ({"empty": 0}, "`empty`"),
        ({"headers": ["a"]}, "`headers`"),
        ({"headers": {"a b": "c"}}, "name"),
        ({"headers": {"Host": "c"}}, "is reserved"),
        ({"headers": {"x": "a\nb"}}, "the header 'x'"),
        ({"ca": "nothing"}, "PEM"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestFaultError, match=message):
        request(**options)


def test_durations_are_numbers_of_seconds_or_written_out() -> None:
    assert request(interval=90).interval == request(interval="1m30s").interval == 90
    assert request(timeout="500ms").timeout == 0.5
    assert request().interval == 0


def test_allowed_hosts_are_names_or_patterns() -> None:
    policy = FetchPolicy(allowed_hosts=("lists.example.com", "*.Example.ORG"))

    for url in ("https://LISTS.example.com./x", "https://a.b.example.org/"):
        assert request(url, policy=policy).url == url
    for url in ("https://example.org/", "https://lists.example.com.evil.net/", "https://10.0.0.1/"):
        with pytest.raises(RequestFaultError, match="nothing may be fetched"):
            request(url, policy=policy)


@given(st.text(), st.dictionaries(st.text(max_size=9), st.text(max_size=9) | st.integers() | st.none(), max_size=3))
def test_whatever_comes_is_a_request_or_rejected(url: str, options: dict[str, Any]) -> None:
    for tried in (url, f"https://lists.example.com/{url}", f"http://{url}/"):
        try:
            found = make_request(tried, options, POLICY, find_secret)
        except RequestFaultError:
            continue
        assert found.url.isascii()
        assert "@" not in found.label.split("/")[2]
