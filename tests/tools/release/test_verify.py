"""Packages with incomplete metadata, or with links that lead nowhere, are found."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from haptic_trio import __version__
from tools.release.project import metadata
from tools.release.verify import TRAFFIC_LIMIT, VerificationError, faults_of_text, require_speed

COMPLETE = """\
Metadata-Version: 2.4
Name: haptic-trio
Version: 1
Summary: s
Author: a
License-Expression: Apache-2.0
Requires-Python: >=3.11
Keywords: k
Classifier: c
Project-URL: Homepage, https://a.test/
"""


def packages(folder: Path, described: str, page: str) -> tuple[Path, Path, Path]:
    """Return a wheel with these metadata, a chart with that page, and a documentation site with a page `fleet`."""
    wheel, chart, site = folder / "a.whl", folder / "a.tgz", folder / "site"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"haptic_trio-{__version__}.dist-info/METADATA", described)
    with tarfile.open(chart, "w:gz") as archive:
        entry = tarfile.TarInfo("haptic-trio/README.md")
        entry.size = len(page.encode())
        archive.addfile(entry, io.BytesIO(page.encode()))
    (site / "fleet").mkdir(parents=True)
    (site / "fleet/index.html").write_text("")
    return wheel, chart, site


def test_complete_packages_have_no_fault(tmp_path: Path) -> None:
    base = metadata()["urls"]["Documentation"]

    found = faults_of_text(*packages(tmp_path, f"{COMPLETE}\n[a]({base}fleet/#pods)\n", "[b](#c)\n"))

    assert list(found) == []


def test_missing_metadata_are_found(tmp_path: Path) -> None:
    described = COMPLETE.replace("Author: a\n", "").replace("Project-URL: Homepage, https://a.test/\n", "")

    found = faults_of_text(*packages(tmp_path, described, ""))

    assert list(found) == ["a.whl: the metadata have no Author", "a.whl: the metadata have no Project-URL"]


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    base = metadata()["urls"]["Documentation"]

    found = faults_of_text(*packages(tmp_path, f"{COMPLETE}\n[a](docs/fleet.md)\n", f"[b]({base}absent/)\n"))

    assert list(found) == [
        "a.whl: docs/fleet.md is a relative link",
        f"a.tgz: {base}absent/ is not a page of the site",
    ]


def test_slow_way_from_an_empty_directory_to_traffic_is_a_fault() -> None:
    times = {"environment": 10.0, "installation": TRAFFIC_LIMIT - 15, "start to traffic": 5.0, "change to traffic": 1.0}
    require_speed(times)
    with pytest.raises(
        VerificationError, match=r"to traffic: 121 s, more than 120 \(environment 11.0 s, installation 105.0 s"
    ):
        require_speed({**times, "environment": 11.0})
