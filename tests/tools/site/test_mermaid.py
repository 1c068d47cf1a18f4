"""The script that draws diagrams is taken from the chosen package only."""

import base64
import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from tools.site.mermaid import FILES, HashError, unpack


def package() -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        for member in FILES:
            entry = tarfile.TarInfo(member)
            entry.size = len(member)
            archive.addfile(entry, io.BytesIO(member.encode()))
    return written.getvalue()


def test_script_and_licence_are_unpacked(tmp_path: Path) -> None:
    content = package()

    unpack(content, tmp_path / "out", base64.b64encode(hashlib.sha512(content).digest()).decode())

    assert {file.name: file.read_text() for file in (tmp_path / "out").iterdir()} == {
        name: member for member, name in FILES.items()
    }


def test_another_package_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(HashError, match="SHA-512"):
        unpack(package(), tmp_path / "out", "AAAA")
    assert not (tmp_path / "out").exists()
