"""Filters for certificate verification: bundles of authorities, and revocation lists.

HAProxy refuses a whole configuration for one bundle that it cannot read, so each
block is read here before.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from haptic_trio.templating.filters.emit import EmitError, Emitted

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,64})-----[^-]*-----END \1-----")
_CERTIFICATE: Final = frozenset({"CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE"})
_MOST_BLOCKS: Final = 1_000


def authorities(value: Any) -> Emitted:
    """The certificates of a PEM bundle, each once; anything else in it, such as a key, is refused."""
    return _read(str(value), "authorities")


def revocations(value: Any) -> Emitted:
    """The lists of revoked certificates of a PEM bundle."""
    return _read(str(value), "revocations")


@lru_cache(maxsize=512)
def _read(text: str, name: str) -> Emitted:
    blocks = list(_BLOCK.finditer(text))
    if not blocks or len(blocks) != text.count("-----BEGIN ") or len(blocks) > _MOST_BLOCKS:
        raise EmitError(f"{name}: the value is not a sequence of 1 to {_MOST_BLOCKS} PEM blocks")
    allowed = _CERTIFICATE if name == "authorities" else frozenset({"X509 CRL"})
    if any(block[1] not in allowed for block in blocks):
        raise EmitError(f"{name}: the value holds blocks other than {', '.join(sorted(allowed))}")
    try:
        found = [_normal(block[0], name) for block in blocks]
    except ValueError:
        raise EmitError(f"{name}: a block cannot be read") from None
    return Emitted("".join(dict.fromkeys(found)))


def _normal(block: str, name: str) -> str:
    if name == "authorities":
        return x509.load_pem_x509_certificate(block.encode()).public_bytes(Encoding.PEM).decode()
    return x509.load_pem_x509_crl(block.encode()).public_bytes(Encoding.PEM).decode()


AUTHORITIES: Final[dict[str, Callable[..., Any]]] = {
    function.__name__: function for function in (authorities, revocations)
}
