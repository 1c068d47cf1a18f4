"""Fetches the script that draws diagrams in the reader's browser: `python -m tools.site.mermaid DIRECTORY`.

It comes from the package registry that npm is configured for, in the version that the theme is made for, and is checked
by its hash. The site has a copy, so that browsers load nothing from elsewhere.
"""

import base64
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

VERSION: Final = "11.17.2"
SHA512: Final = "V6K3C8EBdEsPFZXSKMJe6ppQOENxuHARr9GvHX4hh47lAbhMRD9qf4oEK7LoaRQxULMa80/qt5gHO73aCleBBg=="
"""Of the package, as the registry and lock files of npm write it."""
FILES: Final = {"package/dist/mermaid.min.js": "mermaid.min.js", "package/LICENSE": "mermaid.LICENSE"}


class HashError(Exception):
    """The package is not the one that was chosen."""


def unpack(package: bytes, directory: Path, sha512: str) -> None:
    """Write the script and its licence to *directory* from *package*, a .tgz of npm; raises HashError."""
    found = base64.b64encode(hashlib.sha512(package).digest()).decode()
    if found != sha512:
        raise HashError(f"mermaid {VERSION}: SHA-512 is {found}, not {sha512}")
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile() as file:
        file.write(package)
        file.seek(0)
        with tarfile.open(fileobj=file) as archive:
            for member, name in FILES.items():
                content = archive.extractfile(member)
                assert content is not None, member
                (directory / name).write_bytes(content.read())


def fetch(directory: Path) -> None:
    """Fetch the script into *directory*; raises CalledProcessError, HashError, and FileNotFoundError without npm."""
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(
            ["npm", "pack", "--silent", "--ignore-scripts", f"mermaid@{VERSION}"],
            cwd=scratch,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (package,) = Path(scratch).glob("*.tgz")
        unpack(package.read_bytes(), directory, SHA512)


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
