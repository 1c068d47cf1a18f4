"""Both names of a file: its path in the configuration, and its name in the Data Plane API.

A generation uses relative paths, the same for every endpoint. The API chooses
directories, and finds maps and certificates in the process by its own paths.
So paths are replaced in everything that is sent, and replaced back in
everything that is read.
"""

import re
from collections.abc import Mapping
from typing import Final

from haptic_trio.haproxy.model import BY_LINE, AuxFile, FileKind

_PLAIN: Final = r"[\w./-]+"


class Paths:
    """Paths in the API by the paths of a generation; absolute paths are the same in both."""

    def __init__(self, stored: Mapping[str, str]) -> None:
        self.outward = {path: at for path, at in stored.items() if at and not path.startswith("/") and path != at}
        self._inward = {at: path for path, at in self.outward.items()}

    def joined(self, other: "Paths") -> "Paths":
        """Return these paths together with those of *other*, which win."""
        return Paths({**self.outward, **other.outward})

    def of(self, path: str) -> str:
        """Return the path of the file *path* in the API and the process."""
        return self.outward.get(path, path)

    def send(self, text: str) -> str:
        """Return *text* (a configuration or crt-list) with the paths of the API."""
        return _replace(text, self.outward)

    def take(self, text: str) -> str:
        """Return *text* from the API with the paths of the generation; the reverse of `send`."""
        return _replace(text, self._inward)

    def send_file(self, file: AuxFile) -> bytes:
        """Return the content of *file* for the API: crt-lists contain paths of other files."""
        content = file.content
        if file.kind is FileKind.CRT_LIST and self.outward:
            content = self.send(content.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        # The API rejects a request without a body. A blank line has no meaning in maps and crt-lists.
        return content + b"\n" if file.kind in BY_LINE and _is_blank(content) else content

    def take_file(self, kind: FileKind, content: bytes) -> bytes:
        """Return *content* from the API as in a generation; the reverse of `send_file`."""
        if kind in BY_LINE and content and _is_blank(content):
            return content[:-1]
        if kind is not FileKind.CRT_LIST or not self._inward:
            return content
        return self.take(content.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def _is_blank(content: bytes) -> bool:
    return not content.strip(b"\n")


def _replace(text: str, names: Mapping[str, str]) -> str:
    if not names:
        return text
    # As long as can be, so that no path is found within a longer one.
    odd = sorted((name for name in names if not re.fullmatch(_PLAIN, name)), key=len, reverse=True)
    words = "|".join([*(rf"{re.escape(name)}(?![\w./-])" for name in odd), _PLAIN])
    return re.sub(rf"(?<![\w./-])(?:{words})", lambda match: names.get(match[0], match[0]), text)
