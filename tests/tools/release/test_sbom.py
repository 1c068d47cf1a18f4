"""The SBOM has every locked package, and is the same for the same inputs."""

import hashlib
import json
import re
from pathlib import Path

from tools.release.project import ROOT
from tools.release.sbom import components, write_sbom

LOCKED = """\
b-c==2.0 ; python_full_version < '3.12' \\
    --hash=sha256:00
    # via a
A_b==1.0.post1 \\
    --hash=sha256:00
"""


def test_each_locked_package_is_a_component() -> None:
    assert components(LOCKED) == [
        {"type": "library", "name": "a-b", "version": "1.0.post1", "purl": "pkg:pypi/a-b@1.0.post1"},
        {
            "type": "library",
            "name": "b-c",
            "version": "2.0",
            "purl": "pkg:pypi/b-c@2.0",
            "properties": [{"name": "python:marker", "value": "python_full_version < '3.12'"}],
        },
    ]


def test_no_line_of_the_real_lock_file_is_missed() -> None:
    text = (ROOT / "requirements/run.txt").read_text("utf-8")

    found = components(text)

    assert len(found) == len(re.findall(r"(?m)^\S+==", text)) > 20


def test_the_sbom_names_the_wheel_by_its_hash(tmp_path: Path) -> None:
    wheel, locked = tmp_path / "a.whl", tmp_path / "run.txt"
    wheel.write_bytes(b"wheel")
    locked.write_text(LOCKED)

    write_sbom(wheel, locked, "1.0", tmp_path / "one.json")
    write_sbom(wheel, locked, "1.0", tmp_path / "two.json")

    document = json.loads((tmp_path / "one.json").read_text("utf-8"))
    assert document["metadata"]["component"]["hashes"][0]["content"] == hashlib.sha256(b"wheel").hexdigest()
    assert len(document["components"]) == 2
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
