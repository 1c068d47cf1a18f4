#!/usr/bin/env python3
"""Write what an image is made of to standard output: Debian's and Python's packages, as CycloneDX 1.6 in JSON.

    sbom.py DEBIAN_PACKAGES

DEBIAN_PACKAGES is a file with a line for each: name, version, architecture and source package, with tabs between.

The same packages make the same bytes: no time and no serial number are in it.
"""

import json
import sys
from importlib.metadata import distributions
from pathlib import Path
from urllib.parse import quote


def debian_packages(listed: str) -> list[dict[str, object]]:
    """Return a component for each line of *listed*: package, version, architecture, source package."""
    found: list[dict[str, object]] = []
    for line in listed.splitlines():
        name, version, architecture, source = line.split("\t")
        url = f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={architecture}"
        properties = [{"name": "debian:source", "value": source}]
        found.append({"type": "library", "name": name, "version": version, "purl": url, "properties": properties})
    return found


def python_packages() -> list[dict[str, object]]:
    """Return a component for each distribution that this interpreter can import."""
    found: list[dict[str, object]] = []
    for each in distributions():
        name = each.metadata["Name"]
        url = f"pkg:pypi/{quote(name.lower().replace('_', '-'))}@{quote(each.version)}"
        component: dict[str, object] = {"type": "library", "name": name, "version": each.version, "purl": url}
        if licence := each.metadata.get("License-Expression"):
            component["licenses"] = [{"expression": licence}]
        found.append(component)
    return found


if __name__ == "__main__":
    packages = debian_packages(Path(sys.argv[1]).read_text(encoding="utf-8"))
    components = sorted(packages + python_packages(), key=lambda one: str(one["purl"]))
    json.dump({"bomFormat": "CycloneDX", "specVersion": "1.6", "components": components}, sys.stdout, indent=1)
    sys.stdout.write("\n")
