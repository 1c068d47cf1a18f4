"""Placeholder certificate: for TLS clients whose host name has no certificate; an administrator may set another one.

It proves nothing: its key is made from a constant, so that every replica has
the same one, and everybody can have it. Without it HAProxy would show the
first certificate of its list, which is for the hosts of another object.
"""

import hashlib
from functools import cache
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from haptic_trio.templating.values.text import Emitted

_SEED: Final = b"haptic-trio placeholder certificate"
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of the curve P-256: private keys are the numbers from 1 to below it."""
_CERTIFICATE: Final = """\
-----BEGIN CERTIFICATE-----
MIIBZTCCAQugAwIBAgIBATAKBggqhkjOPQQDAjAiMSAwHgYDVQQDDBdoYXB0aWMt
dHJpbyBwbGFjZWhvbGRlcjAgFw0yNjAxMDEwMDAwMDBaGA8yMTI2MDEwMTAwMDAw
MFowIjEgMB4GA1UEAwwXaGFwdGljLXRyaW8gcGxhY2Vob2xkZXIwWTATBgcqhkjO
PQIBBggqhkjOPQMBBwNCAATiebKfPryz5NZz8wbnc9RJNFwY81K32rwpPU0v+xhi
QXStfA5d9p5CuwQLpPzGoRjYH3/NinGV8qg3kcmpm1nCozAwLjAeBgNVHREEFzAV
ghNwbGFjZWhvbGRlci5pbnZhbGlkMAwGA1UdEwEB/wQCMAAwCgYIKoZIzj0EAwID
SAAwRQIgH97aLvBreDWsEzOoHo2pfSZXngrFfqnm0DB+DFMWSeQCIQDIY7xtAbO6
+0ywdtQobgXNf3y3BV2BFbEfnQQt61s/4g==
-----END CERTIFICATE-----
"""


@cache
def placeholder_certificate() -> Emitted:
    """Return a certificate for `placeholder.invalid` and its key, as PEM: always the same, and of no worth."""
    number = int.from_bytes(hashlib.sha256(_SEED).digest()) % (_ORDER - 1) + 1
    key = ec.derive_private_key(number, ec.SECP256R1())
    return Emitted(_CERTIFICATE + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
