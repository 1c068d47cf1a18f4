"""Files that are published apart from the repository stand alone."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from tools.release.build import PAGES, published, set_times, write_sums
from tools.release.project import ROOT, metadata
from tools.site.markdown import with_links


@pytest.mark.parametrize("page", PAGES)
def test_a_published_page_has_no_relative_link_and_no_drawing(page: str) -> None:
    text = published((ROOT / page).read_text("utf-8"), page)

    targets = list[str]()

    def note(target: str) -> str:
        targets.append(target)
        return target

    with_links(text, note)
    assert targets
    assert [target for target in targets if "://" not in target and not target.startswith("#")] == []
    assert "```mermaid" not in text


def test_a_drawing_becomes_a_link() -> None:
    site = metadata()["urls"]["Documentation"]

    text = published("a\n\n```mermaid\nflowchart LR\n  A --> B\n```\n\nb\n", "README.md")

    assert text == f"a\n\n[Diagram]({site}architecture/#5-the-path-of-a-change)\n\nb\n"


def test_a_package_is_the_same_whenever_it_was_made(tmp_path: Path) -> None:
    packages = [tmp_path / "one.tgz", tmp_path / "two.tgz"]
    for package, time in zip(packages, (1, 2), strict=True):
        with tarfile.open(package, "w:gz") as archive:
            member = tarfile.TarInfo("chart/Chart.yaml")
            member.size, member.mtime = 4, time
            archive.addfile(member, io.BytesIO(b"a: 1"))

        set_times(package, 1_000_000_000)

    assert packages[0].read_bytes() == packages[1].read_bytes()
    with tarfile.open(packages[0]) as archive:
        content = archive.extractfile("chart/Chart.yaml")
        assert content is not None
        assert content.read() == b"a: 1"


def test_sums_are_what_sha256sum_reads(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"b")
    (tmp_path / "a").write_bytes(b"a")

    write_sums(tmp_path)
    write_sums(tmp_path)

    assert (tmp_path / "SHA256SUMS").read_text("utf-8").splitlines() == [
        f"{hashlib.sha256(name.encode()).hexdigest()}  {name}" for name in ("a", "b")
    ]
