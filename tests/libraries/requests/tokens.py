"""Tokens, their keys, and Ingresses that ask for them."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

from haptic_trio.k8s.resource import Resource
from tests.support.kubernetes import ingress, meta, path, rule

HOST = "a.example.com"
LIBRARIES = ("base", "ssl", "ingress", "nginx-annotations", "haptic-annotations")
RSA_KEY, OTHER_RSA = (rsa.generate_private_key(65_537, 2048) for _ in range(2))
EC_KEY = ec.generate_private_key(ec.SECP256R1())
WIDE_EC = ec.generate_private_key(ec.SECP384R1())
SECRET = b'a secret with " and \xff, of forty bytes or more'
NEVER = 4_102_444_800
CLAIMS: dict[str, Any] = {"iss": "https://issuer.test/", "aud": "shop", "exp": NEVER, "sub": "joe"}
GIVEN = {"jwt-secret": "keys", "jwt-issuer": "https://issuer.test/", "jwt-audience": "shop, cart"}
Sign = Callable[[bytes], bytes]


def public_pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def by_rsa(key: rsa.RSAPrivateKey, digest: hashes.HashAlgorithm = hashes.SHA256()) -> Sign:  # noqa: B008
    return lambda text: key.sign(text, padding.PKCS1v15(), digest)


def by_ec(key: ec.EllipticCurvePrivateKey, digest: hashes.HashAlgorithm = hashes.SHA256()) -> Sign:  # noqa: B008
    def sign(text: bytes) -> bytes:
        size = (key.key_size + 7) // 8
        return b"".join(part.to_bytes(size) for part in utils.decode_dss_signature(key.sign(text, ec.ECDSA(digest))))

    return sign


def by_secret(secret: bytes) -> Sign:
    return lambda text: hmac.new(secret, text, hashlib.sha256).digest()


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def token(algorithm: str, sign: Sign, claims: Mapping[str, Any] | bytes = CLAIMS) -> str:
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    head = f"{encoded(json.dumps({'alg': algorithm, 'typ': 'JWT'}).encode())}.{encoded(payload)}"
    return f"{head}.{encoded(sign(head.encode()))}"


def secret(name: str, **data: bytes) -> Resource:
    entries = {key.replace("__", "."): base64.b64encode(value).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta(name), "data": entries}


KEYS = secret("keys", rsa__pem=public_pem(RSA_KEY), ec__pem=public_pem(EC_KEY), shared__hmac=SECRET)


def protected(annotations: Mapping[str, str], **others: str) -> Resource:
    given = {f"haptic-trio/{name}": value for name, value in annotations.items()}
    return ingress("web", rule(HOST, path("/", "web")), annotations={**given, **others})


def key_set(*keys: Mapping[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def of_rsa(key: rsa.RSAPrivateKey, **fields: Any) -> dict[str, Any]:
    numbers = key.public_key().public_numbers()
    return {
        "kty": "RSA",
        "n": encoded(numbers.n.to_bytes(key.key_size // 8)),
        "e": encoded(numbers.e.to_bytes(3)),
        **fields,
    }


def of_ec(key: ec.EllipticCurvePrivateKey, curve: str) -> dict[str, Any]:
    numbers, size = key.public_key().public_numbers(), (key.key_size + 7) // 8
    return {"kty": "EC", "crv": curve, "x": encoded(numbers.x.to_bytes(size)), "y": encoded(numbers.y.to_bytes(size))}
