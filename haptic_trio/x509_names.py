"""Names of the hosts that a certificate is for."""

from functools import lru_cache

from cryptography import x509

from haptic_trio.x509_errors import UNREADABLE


@lru_cache(maxsize=20_000)
def names_in(pem: bytes) -> frozenset[str] | None:
    """Return the names in the first certificate of *pem*, in lower case; None if it cannot be read."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        names = {str(one.value) for one in certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)}
        try:
            extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            names.update(extension.value.get_values_for_type(x509.DNSName))
        except x509.ExtensionNotFound:
            pass
    except UNREADABLE:
        return None
    return frozenset(name.lower() for name in names)
