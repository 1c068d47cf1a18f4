"""Costs of a fragment that its text does not show: password hashes, certificates, and lists of CA certificates.

Weights are relative to a usual certificate line (0.2 ms of CPU time and 14 KiB
in HAProxy, measured) and to a server without TLS (0.01 ms, 4 to 6 KiB). On
HAProxy 2.8 a list of CA certificates costs each line and each server that
refers to it in proportion to the square of their number: 0.5 ms and 0.2 ms for
100, 27 ms and 23 ms for 1,000 (measured). Later versions take less.
"""

from typing import Final

import msgspec

from haptic_trio.templating.values.paths import FileKind

SYSTEM_AUTHORITIES: Final = 150
"""About as many CA certificates as an operating system has."""
_BLOCK: Final = "-----BEGIN "
_BLOCKS_PER_LINE: Final = 8
"""So many PEM blocks of one file count as one more line; usual certificates have fewer."""
_TLS_WEIGHT: Final = 10
"""A server with TLS takes 0.16 ms and 17 to 22 KiB (measured)."""


class Costs(msgspec.Struct):
    """Work and data that one fragment costs HAProxy, counted while the fragment renders."""

    rounds: int = 0
    """Of all its password hashes."""
    lines: int = 0
    """References to certificates: lines of crt-lists, and certificates of servers."""
    long_files: int = 0
    """Lines that the PEM blocks of the files that it registers or refers to count as."""
    authorities: int = 0
    """PEM blocks of the largest list of CA certificates that it, or a fragment around it, refers to."""

    def add_file(self, kind: FileKind, content: str, lines: int) -> None:
        """Count a file of *kind* with *content*, and the *lines* that refer to it if it is a certificate."""
        blocks = content.count(_BLOCK)
        self.long_files += blocks // _BLOCKS_PER_LINE
        if kind is FileKind.CERT:
            self.lines += lines
        elif blocks:
            self.authorities = max(self.authorities, blocks)

    @property
    def certificates(self) -> int:
        """Certificate lines, where many PEM blocks or long lists of CA certificates count as further lines."""
        return self.lines * (1 + self.authorities // 64 + self.authorities**2 // 8_000) + self.long_files


def weight_of_tls_server(authorities: int) -> int:
    """Return the number of servers without TLS that a server counts as that *authorities* CA certificates verify."""
    return _TLS_WEIGHT + authorities**2 // 600
