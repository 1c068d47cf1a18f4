"""Paths of auxiliary files as templates name them, and the files that a run registers."""

import re
from enum import StrEnum
from typing import Final

import msgspec

from haptic_trio.templating.values.subjects import RenderedText

_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+=-]{0,199}").fullmatch


class FileKind(StrEnum):
    """Purpose of a file, which decides its directory."""

    MAP = "map"
    CERT = "cert"
    CRT_LIST = "crt-list"
    GENERAL = "file"
    CLAIM = "claim"
    """No file: a name that only one object may have. It is decided as if it were one."""


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """Directories of auxiliary files, relative to the configuration's."""

    maps_dir: str = "maps"
    ssl_certs_dir: str = "ssl"
    general_dir: str = "general"
    crt_list_dir: str = ""
    """Empty: beside the certificates."""

    def directory(self, kind: FileKind) -> str:
        """Return the directory of files of *kind*."""
        return {
            FileKind.MAP: self.maps_dir,
            FileKind.CERT: self.ssl_certs_dir,
            FileKind.CRT_LIST: self.crt_list_dir or self.ssl_certs_dir,
            FileKind.GENERAL: self.general_dir,
        }[kind]


class RenderedFile(msgspec.Struct, frozen=True):
    """A file that a template registered."""

    kind: FileKind
    name: str
    path: str
    content: RenderedText
    source: tuple[str, str, str] | None = None
    """Namespace, name and kind of the object that the content is from, if the path is that object's alone."""

    @property
    def text(self) -> str:
        """Content of the file."""
        return self.content.text


def is_safe_name(name: str) -> bool:
    """Whether *name* can be a file's name: no separators, no leading dot, nothing that needs quoting."""
    return _SAFE_NAME(name) is not None
