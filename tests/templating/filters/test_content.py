"""Whole contents and made-up names."""

import base64
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.templating.filters.content import (
    MAX_IDENT,
    b64decode,
    b64encode,
    debug,
    ident,
    pem,
    short_hash,
    to_json,
)
from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.filters.emitters import name
from haptic_trio.templating.values.faults import TemplateFaultError
from haptic_trio.templating.values.text import Emitted
from tests.templating.rendering import render

BODY = base64.b64encode(bytes(range(120))).decode()


def block(label: str = "CERTIFICATE", body: str = BODY, end: str = "\n") -> str:
    """Return a PEM block."""
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    return end.join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


parts = st.lists(st.text(st.sampled_from("ab-._:/é0"), max_size=6), min_size=1, max_size=4)


@given(one=parts, other=parts)
def test_identifiers_of_different_parts_differ(one: list[str], other: list[str]) -> None:
    if any(one) and any(other) and one != other:
        assert ident(*one) != ident(*other)


kinds = st.sampled_from(["", "clients", "tls", "gateway", "gateway-entry", "a", "a-b", "x" * 32])


@given(one=st.tuples(kinds, parts), other=st.tuples(kinds, parts))
def test_identifiers_of_different_kinds_differ(one: tuple[str, list[str]], other: tuple[str, list[str]]) -> None:
    if any(one[1]) and any(other[1]) and one != other:
        assert ident(*one[1], kind=one[0]) != ident(*other[1], kind=other[0])


@given(kind=kinds.filter(bool), long=st.lists(st.text(min_size=60, max_size=150), min_size=2, max_size=4))
def test_a_shortened_identifier_never_looks_like_one_of_a_kind(kind: str, long: list[str]) -> None:
    assert not ident(*long).startswith(f"{kind}::")
    assert ident(*long, kind=kind).startswith(f"{kind}::")
    assert len(ident(*long, kind=kind)) <= MAX_IDENT


@pytest.mark.parametrize("kind", ["A", "a_b", "a:", "a.b", "-a", "x" * 33])
def test_a_kind_is_a_short_word(kind: str) -> None:
    with pytest.raises(TemplateFaultError):
        ident("a", kind=kind)


@given(given_parts=st.lists(st.text(max_size=150), min_size=1, max_size=4))
def test_an_identifier_is_a_name_for_haproxy(given_parts: list[str]) -> None:
    if "".join(given_parts) or len(given_parts) > 1:
        made = ident(*given_parts)
        assert name(made) == made
        assert len(made) <= MAX_IDENT
        assert type(made) is Emitted


def test_identifiers_are_readable_and_shortened_with_a_hash() -> None:
    assert ident("default", "web", 80) == "default_web_80"
    assert ident("a-b", "c") != ident("a", "b-c")
    long = ident("n" * 300, "x")
    assert len(long) == MAX_IDENT
    assert long != ident("n" * 300, "y")
    assert ident(["a", "b"]) == ident("a", "b") == render("{{ 'a' | ident('b') }}")


@pytest.mark.parametrize("given_parts", [(), ("",), (None,), ("a", None), ({},)])
def test_an_identifier_of_nothing_is_rejected(given_parts: tuple[object, ...]) -> None:
    with pytest.raises(EmitError):
        ident(*given_parts)


def test_pem_blocks_are_bundled_in_their_order() -> None:
    text = pem("subject=CN = x\n" + block("DH PARAMETERS", end="\r\n"), block("EC PARAMETERS").rstrip())
    assert text == block("DH PARAMETERS") + block("EC PARAMETERS")
    assert type(text) is Emitted


def test_pem_that_haproxy_could_not_read_is_rejected_for_what_is_wrong_with_it() -> None:
    certificate, key = _pair()
    for blocks, message in (
        ((block(), key), "certificate 1 cannot be read"),
        ((certificate, block(), key), "certificate 2 cannot be read"),
        ((certificate, block("PRIVATE KEY")), "the private key cannot be read"),
        ((block("EC PRIVATE KEY"),), "the private key cannot be read"),
    ):
        with pytest.raises(EmitError, match=message):
            pem(*blocks)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "no pem",
        block(body="%%%%"),
        block(body="abcde"),
        block().replace("END CERTIFICATE", "END KEY"),
        block() + "-----BEGIN CERTIFICATE-----\n",
        block("ENCRYPTED PRIVATE KEY"),
        block("RSA PRIVATE KEY").replace("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\n", 1),
        None,
    ],
)
def test_what_is_not_usable_pem_is_rejected(value: object) -> None:
    with pytest.raises(EmitError) as caught:
        pem(value)
    assert BODY[:10] not in str(caught.value)


def test_base64_of_text_and_back() -> None:
    assert b64decode(b64encode("käse")) == "käse"
    assert type(b64decode(b64encode("x"))) is str
    assert b64decode("YQ==\n") == "a"


@pytest.mark.parametrize("value", ["a", "!!!!", base64.b64encode(b"\xff\xfe").decode(), None])
def test_what_is_not_base64_of_text_is_rejected(value: object) -> None:
    with pytest.raises(EmitError):
        b64decode(value)


def test_a_hash_is_short_stable_and_of_anything() -> None:
    assert short_hash("a") == "ca978112ca1bbdca"
    assert short_hash({"b": 1, "a": 2}, 8) == short_hash({"a": 2, "b": 1}, 8)
    with pytest.raises(TemplateFaultError):
        short_hash("a", 0)


@given(
    value=st.recursive(
        st.text() | st.none() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_debug_output_is_comments_only(value: object) -> None:
    text = debug(value, "label\nx")
    assert all(line.startswith("# ") for line in text.splitlines())
    assert text.isascii()


def test_json_is_data_with_sorted_keys() -> None:
    assert to_json({"b": "é", "a": [1]}) == '{"a": [1], "b": "\\u00e9"}'
    assert type(to_json("a")) is str


def test_json_of_what_nests_too_deeply_is_the_fault_of_the_value() -> None:
    value: list[object] = []
    # Python 3.13 writes thousands of levels.
    for _ in range(100_000):
        value = [value]
    with pytest.raises(TemplateFaultError):
        to_json(value)


def _pair() -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "demo.localhost")])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
        .decode()
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return certificate, private


def test_pem_takes_a_certificate_with_its_key_and_rejects_it_with_another() -> None:
    certificate, key = _pair()
    _other, other_key = _pair()

    assert pem(certificate, key) == certificate + key
    with pytest.raises(EmitError, match="not that of the first certificate"):
        pem(certificate, other_key)
