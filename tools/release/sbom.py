"""The bill of materials of a wheel: what it is installed with when the locked requirements are used."""

import hashlib
import re
from pathlib import Path
from typing import Any, Final

import msgspec

_LOCKED: Final = re.compile(
    r"(?m)^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?: *; *(?P<marker>[^\\\n]+?))? *\\?$"
)


def write_sbom(wheel: Path, requirements: Path, version: str, file: Path) -> None:
    """Write the SBOM of *wheel* to *file*, as CycloneDX 1.6: the packages of the lock file *requirements*.

    The same inputs make the same bytes: no time and no serial number are in it.
    """
    hashed = hashlib.sha256(wheel.read_bytes()).hexdigest()
    program = {
        "type": "application",
        "bom-ref": "haptic-trio",
        "name": "haptic-trio",
        "version": version,
        "purl": f"pkg:pypi/haptic-trio@{version}",
        "licenses": [{"expression": "Apache-2.0"}],
        "hashes": [{"alg": "SHA-256", "content": hashed}],
    }
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "metadata": {"component": program},
        "components": components(requirements.read_text("utf-8")),
    }
    file.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def components(locked: str) -> list[dict[str, Any]]:
    """Return a component for each package of the lock file; those for some platforms alone have their marker."""
    found: list[dict[str, Any]] = []
    for match in _LOCKED.finditer(locked):
        name = re.sub(r"[-_.]+", "-", match["name"]).lower()
        component: dict[str, Any] = {
            "type": "library",
            "name": name,
            "version": match["version"],
            "purl": f"pkg:pypi/{name}@{match['version']}",
        }
        if match["marker"]:
            component["properties"] = [{"name": "python:marker", "value": match["marker"]}]
        found.append(component)
    return sorted(found, key=lambda one: str(one["purl"]))
