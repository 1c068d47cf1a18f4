"""Sites of several versions in one directory, for the selector in the header of each page.

    python -m tools.site.versions HTML DIRECTORY [VERSION]

copies the built site HTML to DIRECTORY/VERSION, and writes the list of versions, which the pages of all versions
read. At the root, each page of the newest release has one that leads to it, so that addresses without a version, such
as those in the packages' descriptions, stay valid. VERSION is by default that of this checkout.
"""

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from haptic_trio import __version__

LIST: Final = "versions.json"
_LEADING: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>haptic-trio</title>
<link rel="canonical" href="{target}">
<meta http-equiv="refresh" content="0; url={target}">
<script>location.replace("{target}" + location.hash)</script>
<a href="{target}">Documentation of version {newest}</a>
</html>
"""


class Version(msgspec.Struct, frozen=True):
    """An entry of the list, as Material for MkDocs reads it."""

    version: str
    """Name of the directory."""
    title: str
    aliases: list[str] = []


def publish(html: Path, directory: Path, version: str) -> None:
    """Put the site *html* into *directory* as that of *version*, replacing that one; other versions stay."""
    target = directory / version
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(html, target)
    known = {version, *(each.version for each in _listed(directory) if (directory / each.version).is_dir())}
    names = sorted(known, key=_order, reverse=True)
    listed = [Version(version=name, title=name) for name in names]
    (directory / LIST).write_bytes(msgspec.json.format(msgspec.json.encode(listed)) + b"\n")
    _lead(directory, next((name for name in names if _numbers(name)), names[0]))


def _listed(directory: Path) -> list[Version]:
    try:
        return msgspec.json.decode((directory / LIST).read_bytes(), type=list[Version])
    except FileNotFoundError:
        return []


def _lead(directory: Path, newest: str) -> None:
    """Write the pages at the root; one whose page the version *newest* lacks leads to the last version that has it."""
    for page in (directory / newest).rglob("index.html"):
        place = page.parent.relative_to(directory / newest)
        target = "/".join([*[".."] * len(place.parts), newest, *place.parts, ""])
        leading = directory / place / "index.html"
        leading.parent.mkdir(parents=True, exist_ok=True)
        leading.write_text(_LEADING.format(target=target, newest=newest), "utf-8")


def _order(name: str) -> tuple[bool, list[int], str]:
    # Names without a number, such as `main`, come last.
    return bool(_numbers(name)), _numbers(name), name


def _numbers(name: str) -> list[int]:
    return [int(part) for part in name.split(".")] if re.fullmatch(r"\d+(\.\d+)*", name) else []


def main(arguments: Sequence[str]) -> None:
    """Publish as the arguments say."""
    html, directory, *version = arguments
    publish(Path(html), Path(directory), version[0] if version else __version__)


if __name__ == "__main__":
    main(sys.argv[1:])
