"""Annotations and Secrets for credentials that cannot be used reject the Ingress, with the reason."""

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.libraries.conftest import Cluster
from tests.libraries.requests.tokens import (
    EC_KEY,
    GIVEN,
    KEYS,
    LIBRARIES,
    RSA_KEY,
    key_set,
    of_ec,
    of_rsa,
    protected,
    public_pem,
    secret,
)
from tests.support.kubernetes import service

PRIVATE = RSA_KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
)
WIDE_KEYS = [ec.generate_private_key(ec.SECP384R1()) for _ in range(5)]
SHORT_KEY = rsa.generate_private_key(65_537, 1024)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"key__pem": b"nothing"}, "neither a public key nor a certificate"),
        ({"key__pem": PRIVATE}, "private key"),
        ({"key__pem": public_pem(SHORT_KEY)}, "2048 to 4096 bits"),
        ({"key__hmac": b"short"}, "at least 32 bytes"),
        ({"key__hmac": b"x" * 40 + b"\0"}, "NUL byte"),
        ({"key": b"x" * 40}, "does not end in .pem, .json or .hmac"),
        ({"jwks__json": b"[]"}, "not a JSON Web Key Set"),
        ({"jwks__json": b"[" * 100_000}, "not a JSON Web Key Set"),
        ({"jwks__json": b'{"keys": "\xff"}'}, "not a JSON Web Key Set"),
        ({"jwks__json": b'{"keys": {}}'}, "no list of keys"),
        ({"jwks__json": key_set(of_rsa(RSA_KEY, d="AQAB"))}, "key 0 of the set: it has a private key"),
        ({"jwks__json": key_set(of_rsa(RSA_KEY, alg="none"))}, "its algorithm is not one of RS256"),
        ({"jwks__json": key_set(of_rsa(RSA_KEY, alg="HS256"))}, "its algorithm is not one of RS256"),
        ({"jwks__json": key_set({"kty": "RSA", "e": "AQAB", "n": "!"})}, "not base64url"),
        ({"jwks__json": key_set({"kty": "RSA", "e": "AQAB"})}, "a field of the key is missing"),
        ({"jwks__json": key_set({**of_ec(EC_KEY, "P-256"), "x": "AQAB"})}, "not those of a public key"),
        ({"jwks__json": key_set(of_ec(EC_KEY, "secp256k1"))}, "its curve is not one of P-256, P-384"),
        ({"jwks__json": key_set({"kty": "OKP"})}, "its type is not RSA, EC or oct"),
        ({f"k{number}__hmac": bytes([97 + number]) * 40 for number in range(17)}, "more than 16 keys"),
        ({f"k{number}__pem": public_pem(key) for number, key in enumerate(WIDE_KEYS)}, "more than 4 keys of P-384"),
    ],
)
def test_a_secret_that_cannot_be_used_rejects_the_ingress(
    cluster: Cluster, data: dict[str, bytes], problem: str
) -> None:
    rendered = cluster.render(protected(GIVEN), service("web"), secret("keys", **data), libraries=LIBRARIES)

    assert problem in rendered.rejected["Ingress default/web"]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"app": b"too short"}, "the key of 'app' cannot be used"),
        ({"app": b"with blanks, and long"}, "the key of 'app' cannot be used"),
        ({"-app": b"0123456789abcdef"}, "not the name of a client"),
        ({"a": b"0123456789abcdef", "b": b"0123456789abcdef"}, "the same key"),
    ],
)
def test_api_keys_that_cannot_be_used_reject_the_ingress(
    cluster: Cluster, data: dict[str, bytes], problem: str
) -> None:
    rendered = cluster.render(
        protected({"api-key-secret": "keys"}), service("web"), secret("keys", **data), libraries=LIBRARIES
    )

    assert problem in rendered.rejected["Ingress default/web"]


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({"jwt-secret": "keys", "jwt-audience": "a"}, "jwt-secret requires jwt-issuer"),
        ({"jwt-secret": "keys", "jwt-issuer": "a"}, "jwt-secret requires jwt-audience"),
        ({"jwt-issuer": "a"}, "jwt-issuer requires jwt-secret or jwt-jwks-url"),
        ({"jwt-jwks-url": "https://a.test/", "jwt-issuer": "a"}, "jwt-jwks-url requires jwt-audience"),
        ({**GIVEN, "jwt-jwks-url": "http://169.254.169.254/x?k=s"}, "does not allow http://169.254.169.254/x;"),
        ({**GIVEN, "jwt-secret": "other/keys"}, "in the namespace of the Ingress"),
        ({**GIVEN, "jwt-audience": ","}, "1 to 20 audiences"),
        ({**GIVEN, "jwt-audience": "shop, *"}, "1 to 20 audiences"),
        ({**GIVEN, "jwt-issuer": "a\n    http-request allow"}, "newline"),
        ({**GIVEN, "jwt-claims-to-headers": "X-User"}, "such as X-User=sub"),
        ({**GIVEN, "jwt-claims-to-headers": "Host=sub"}, "cannot name Host"),
        ({**GIVEN, "jwt-claims-to-headers": "Connection=sub"}, "cannot name Host"),
        ({**GIVEN, "jwt-claims-to-headers": "X-User=a'b"}, "not the name of a claim"),
        ({**GIVEN, "jwt-claims-to-headers": "X-User=sub]"}, "not the name of a claim"),
        ({**GIVEN, "jwt-claims-to-headers": "X User=sub"}, "header"),
        ({"deny-lists": "bots"}, "deny-lists: there is no list bots; the setting denyLists has none"),
        ({"deny-lists": ","}, "1 to 20 names of lists"),
        ({"api-key-header": "X-Key"}, "api-key-header requires api-key-secret"),
        ({"api-key-secret": "none", "api-key-header": "Transfer-Encoding"}, "cannot name Host"),
    ],
)
def test_invalid_annotations_reject_the_ingress(cluster: Cluster, annotations: dict[str, str], problem: str) -> None:
    rendered = cluster.render(protected(annotations), service("web"), KEYS, libraries=LIBRARIES)

    assert problem in rendered.rejected["Ingress default/web"]
