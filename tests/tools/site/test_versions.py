"""Sites of several versions stand beside each other, the newest one first."""

import shutil
from pathlib import Path

import msgspec
import pytest

from tools.site.versions import LIST, publish


@pytest.fixture
def html(tmp_path: Path) -> Path:
    folder = tmp_path / "html"
    folder.mkdir()
    (folder / "index.html").write_text("first")
    return folder


def test_versions_are_listed_by_number_and_the_root_leads_to_the_newest(html: Path, tmp_path: Path) -> None:
    for version in ("0.9.0", "main", "0.10.0", "0.2.0"):
        publish(html, tmp_path / "sites", version)

    listed = msgspec.json.decode((tmp_path / "sites" / LIST).read_bytes())
    assert [entry["version"] for entry in listed] == ["0.10.0", "0.9.0", "0.2.0", "main"]
    assert 'url=0.10.0/"' in (tmp_path / "sites/index.html").read_text()


def test_address_without_a_version_leads_to_the_page_of_the_newest_one_that_has_it(html: Path, tmp_path: Path) -> None:
    for page in ("how-to/former", "install"):
        (html / page).mkdir(parents=True)
        (html / page / "index.html").write_text("a page")
    publish(html, tmp_path / "sites", "0.1.0")
    shutil.rmtree(html / "how-to")
    publish(html, tmp_path / "sites", "0.2.0")

    listed = msgspec.json.decode((tmp_path / "sites" / LIST).read_bytes())
    assert [entry["version"] for entry in listed] == ["0.2.0", "0.1.0"]
    for page, target in (("install", "../0.2.0/install/"), ("how-to/former", "../../0.1.0/how-to/former/")):
        leading = tmp_path / "sites" / page / "index.html"
        assert f'url={target}"' in leading.read_text()
        assert (leading.parent / target / "index.html").resolve().read_text() == "a page"


def test_version_that_is_built_again_replaces_its_site_only(html: Path, tmp_path: Path) -> None:
    (html / "former.html").write_text("")
    publish(html, tmp_path / "sites", "0.1.0")
    publish(html, tmp_path / "sites", "0.2.0")
    (html / "former.html").unlink()
    (html / "index.html").write_text("second")
    publish(html, tmp_path / "sites", "0.1.0")

    assert (tmp_path / "sites/0.1.0/index.html").read_text() == "second"
    assert not (tmp_path / "sites/0.1.0/former.html").exists()
    assert (tmp_path / "sites/0.2.0/former.html").exists()
