"""Keys of tokens, API keys and claims: what filters write, and that no error has a part of a secret."""

import base64
import hashlib

import pytest

from haptic_trio.templating.filters.credentials import api_keys, claim, jwt_keys
from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.values.faults import TemplateFaultError
from haptic_trio.templating.values.text import Emitted


def data(**entries: bytes) -> dict[str, str]:
    return {name.replace("__", "."): base64.b64encode(value).decode() for name, value in entries.items()}


def test_a_shared_secret_is_written_in_base64() -> None:
    secret = b'"\n%[env(X)]' + b"x" * 32

    [key] = jwt_keys(data(shared__hmac=secret))

    assert key.algorithms == ["HS256"]
    assert base64.b64decode(key.secret) == secret
    assert (type(key.secret), key.pem) == (Emitted, "")


def test_of_an_api_key_only_the_hash_is_written() -> None:
    assert api_keys(data(app=b"0123456789abcdef\n")) == [
        (hashlib.sha256(b"0123456789abcdef").hexdigest().upper(), "app")
    ]


def test_errors_have_no_part_of_a_secret() -> None:
    for entries in (data(app=b"too-secret"), data(app=b"too secret to be shown, with blanks")):
        with pytest.raises(EmitError) as caught:
            api_keys(entries)
        assert "secret" not in str(caught.value)
    with pytest.raises(EmitError) as caught:
        jwt_keys(data(a__hmac=b"too-secret"))
    assert "too-secret" not in str(caught.value)


@pytest.mark.parametrize("filter_", [api_keys, jwt_keys])
def test_data_of_another_form_is_rejected(filter_: object) -> None:
    with pytest.raises(EmitError, match="not base64"):
        filter_({"app.pem": "!"})  # type: ignore[operator]
    with pytest.raises(TemplateFaultError):
        filter_(None)  # type: ignore[operator]
    assert filter_({}) == []  # type: ignore[operator]


def test_a_claim_is_a_path_of_names() -> None:
    assert claim("sub") == "'$.sub'"
    assert claim("realm_access.org-id") == "'$.realm_access.org-id'"


@pytest.mark.parametrize(
    "text", ["", ".", "a.", "a..b", "a b", "a'b", "a,b", "a)b", "a[0]", "$", "a\n", "ä", None, 7, "a." * 9 + "a"]
)
def test_no_other_text_is_a_claim(text: object) -> None:
    with pytest.raises(EmitError):
        claim(text)
