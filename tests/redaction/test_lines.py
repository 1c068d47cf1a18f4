"""Problems show nothing that follows the name of a secret on a line of HAProxy."""

import pytest

from haptic_trio.redaction.lines import find_in_lines
from haptic_trio.redaction.sources import without_credentials
from haptic_trio.redaction.tags import read_tags


@pytest.mark.parametrize(
    "line",
    [
        "    http-request set-header X-Api-Key S3CRET-x",
        "    http-request set-header X-Api-Key 'a b S3CRET-x' if is_api",
        '    http-request add-header Cookie "session=S3CRET-x"',
        "    http-request replace-header X-Token .* S3CRET-x",
        "    http-request set-var(txn.token) str(S3CRET-x)",
        "    http-request set-var(txn.api_key) str(S3CRET-x),upper",
        "    http-request deny unless { req.hdr(X-Api-Key) -m str S3CRET-x }",
        "    http-request deny unless { str(S3CRET-x),strcmp(txn.token) eq 0 }",
        "    http-request set-header x-sig %[str(S3CRET-x),hmac(sha256,txn.signing_key)]",
        "    acl ok req.hdr(authorization) -m str S3CRET-x T0",
        "    http-check send meth GET hdr Authorization S3CRET-x",
        "    option httpchk GET / HTTP/1.1\\r\\nAuthorization:\\ S3CRET-x",
        "    stats auth admin:S3CRET-x",
        "    # http-request set-header X-Api-Key S3CRET-x",
        "    server s1 10.0.0.1:80 check send-proxy-v2 set-proxy-v2-tlv-fmt(0xE1) token S3CRET-x",
        "    setenv API_KEY S3CRET-x",
        "    password S3CRET-x",
        '    http-request return status 200 hdr Set-Cookie "id=S3CRET-x"',
        "    http-request set-header x-token %[env(X)]S3CRET-x",
        "local token = 'S3CRET-x'",
        'local api_key = "S3CRET-x"',
        "    token=S3CRET-x",
    ],
)
def test_no_value_after_the_name_of_a_secret_is_shown(line: str) -> None:
    shown = without_credentials(line)

    assert "S3CRET-x" not in shown
    assert "…" in shown


def test_a_line_ends_at_its_end() -> None:
    assert without_credentials("http-request set-header X-Key a\nserver s1 10.0.0.1:80").endswith(
        "server s1 10.0.0.1:80"
    )


def test_names_in_a_tag_on_the_line_are_found() -> None:
    source = "{% if a %}\n  http-request set-header X-Key {{ key | word }}\n{{ other }}"
    assert {one for one in find_in_lines(source, list(read_tags(source))) if isinstance(one, str)} == {"key", "word"}


def test_a_key_of_a_mapping_does_not_concern_the_rest_of_the_line() -> None:
    line = '{"secretName": "web", "hosts": ["a"]}'
    assert without_credentials(line) == line
