"""Check of the built site: `python -m tools.site.check DIRECTORY` exits with 1 and each fault.

Links lead to files of the site, and to anchors in them. Nothing is loaded from elsewhere: scripts, styles, images and
frames are files of the site. Links to other sites, which a reader follows on purpose, are not requested.
"""

import posixpath
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

_LOADED: Final = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
}
_CSS_URL: Final = re.compile(r"""url\(\s*["']?(?!data:)([^"')]+)|@import\s+["']([^"']+)""")


class Document(msgspec.Struct, kw_only=True):
    """What a page of HTML names."""

    anchors: set[str] = msgspec.field(default_factory=set)
    links: list[str] = msgspec.field(default_factory=list)
    """Targets that a reader follows."""
    loaded: list[str] = msgspec.field(default_factory=list)
    """Addresses that a browser loads by itself."""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.document = Document()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.document.anchors.add(values["id"])
        if tag == "a" and "href" in values:
            self.document.links.append(values["href"])
        elif tag == "link":
            # Of the kinds of <link>, browsers follow these two by themselves never.
            followed = values.get("rel") in {"prev", "next", "canonical"}
            (self.document.links if followed else self.document.loaded).append(values.get("href", ""))
        elif (name := _LOADED.get(tag)) is not None and values.get(name):
            self.document.loaded.append(values[name])


def read(html: str) -> Document:
    """Return what the page *html* names."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.document


def faults_of(site: Path) -> list[str]:
    """Return every fault of the built site in the directory *site*."""
    documents = {file.relative_to(site).as_posix(): read(file.read_text("utf-8")) for file in site.rglob("*.html")}
    faults = [] if documents else [f"{site}: there are no pages"]
    for name, document in sorted(documents.items()):
        for address in document.loaded:
            if _leaves(address):
                faults.append(f"{name}: loads {address} from elsewhere")
            elif not address.startswith("data:"):
                faults += _dead(site, name, address, documents)
        for address in document.links:
            if not _leaves(address):
                faults += _dead(site, name, address, documents)
    for file in sorted(site.rglob("*.css")):
        for found in _CSS_URL.finditer(file.read_text("utf-8")):
            if _leaves(address := found[1] or found[2]):
                faults.append(f"{file.relative_to(site)}: loads {address} from elsewhere")
    return faults


def _leaves(address: str) -> bool:
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme in {"http", "https", "mailto"}


def _dead(site: Path, page: str, address: str, documents: dict[str, Document]) -> list[str]:
    parts = urlsplit(address)
    # The page for errors is shown at any path, so its addresses begin at the root.
    path = posixpath.normpath(posixpath.join("/", posixpath.dirname(page), unquote(parts.path))).lstrip("/")
    target = page if not parts.path else path
    if (site / target).is_dir():
        target = posixpath.normpath(posixpath.join(target, "index.html"))
    if not (site / target).is_file():
        return [f"{page}: {address}: there is no such page"]
    anchor = unquote(parts.fragment)
    if anchor and target in documents and anchor not in documents[target].anchors:
        return [f"{page}: {address}: there is no such anchor"]
    return []


if __name__ == "__main__":
    found = faults_of(Path(sys.argv[1]))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
