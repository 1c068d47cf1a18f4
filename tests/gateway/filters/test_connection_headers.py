"""Names of headers that only HAProxy sets, and values of Host."""

import pytest

from haptic_trio.gateway.connection_headers import is_authority, is_connection_header


@pytest.mark.parametrize(
    "name",
    [
        "Connection", "CONTENT-LENGTH", "cOnTeNt-lEnGtH", "Content_Length", "content.length", "Transfer-Encoding",
        "transfer~encoding", "Upgrade", "TE", "te", "Trailer", "Keep-Alive", "Proxy-Connection", "HTTP2-Settings",
    ],
)  # fmt: skip
def test_headers_of_a_connection_are_known_in_any_case(name: str) -> None:
    assert is_connection_header(name)


@pytest.mark.parametrize(
    "name", ["Host", "Proxy-Authorization", "Upgrade-Insecure-Requests", "Accept-Encoding", "X-Content-Length", "te-a"]
)
def test_other_headers_are_those_of_applications(name: str) -> None:
    assert not is_connection_header(name)


@pytest.mark.parametrize("text", ["a", "A.test:8080", "my_app.web.svc", "10.0.0.1:1", "[::1]", "[2001:db8::1]:443"])
def test_a_host_has_a_port_or_none(text: str) -> None:
    assert is_authority(text)


@pytest.mark.parametrize(
    "text", ["", " ", "a b", "a,b", "a/b", "*.test", "a:", "a:b", "a:123456", "u@a", "::1", "[a", "a\nb", "a#", "é"]
)
def test_another_text_is_not_a_host(text: str) -> None:
    assert not is_authority(text)
