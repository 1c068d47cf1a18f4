"""The normal form of URL paths: several spellings of a path mean one and the same (RFC 3986, 6.2.2)."""

import re
from typing import Final

_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_KEPT: Final = b"%/\\;?# "


def normal_path(path: str) -> str:
    """Return *path* without needless escapes, as HAProxy compares it with the path of a request.

    `%61` is `a`, `%40` is `@`, `%C3%A9` is `é`; `%2F` and other separators, blanks and `%` stay encoded.
    """
    if "%" not in path and path.isascii():
        return path
    plain = _ESCAPE.sub(_decoded, path.encode(errors="surrogatepass")).decode(errors="surrogateescape")
    return re.sub("[\ud800-\udfff]", lambda match: f"%{ord(match.group()) & 0xFF:02X}", plain)


def _decoded(match: re.Match[bytes]) -> bytes:
    byte = bytes.fromhex(match.group(1).decode())
    return byte if byte > b" " and byte != b"\x7f" and byte not in _KEPT else match.group().upper()
