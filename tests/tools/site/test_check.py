"""The check of the built site finds dead links, and what browsers would load from elsewhere."""

from pathlib import Path

import pytest

from tools.site.check import faults_of


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "how-to").mkdir()
    (tmp_path / "how-to/index.html").write_text('<h1 id="a">A</h1><a href="..">up</a>')
    (tmp_path / "style.css").write_text("a{background:url(data:image/png;base64,x)}b{background:url('a.png')}")
    return tmp_path


@pytest.mark.parametrize(
    "html",
    [
        '<a href="how-to/#a">x</a>',
        '<a href="how-to/">x</a>',
        '<a href="how-to/index.html">x</a>',
        '<a href="/how-to/#a">x</a>',
        '<a href="#b"><i id="b"></i></a>',
        '<a href="https://example.org/#x">x</a>',
        '<link rel="stylesheet" href="style.css">',
        '<link rel="canonical" href="https://example.org/">',
        '<img src="data:image/png;base64,x">',
    ],
)
def test_what_exists_passes(site: Path, html: str) -> None:
    (site / "index.html").write_text(html)

    assert faults_of(site) == []


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ('<a href="how-to/b/">x</a>', "no such page"),
        ('<a href="how-to/#b">x</a>', "no such anchor"),
        ('<a href="#b">x</a>', "no such anchor"),
        ('<img src="a.png">', "no such page"),
        ('<script src="https://example.org/a.js"></script>', "from elsewhere"),
        ('<script src="//example.org/a.js"></script>', "from elsewhere"),
        ('<link rel="stylesheet" href="https://example.org/a.css">', "from elsewhere"),
        ('<iframe src="https://example.org/"></iframe>', "from elsewhere"),
    ],
)
def test_a_fault_is_found(site: Path, html: str, fault: str) -> None:
    (site / "index.html").write_text(html)

    [found] = faults_of(site)

    assert fault in found
    assert found.startswith("index.html: ")


def test_a_style_that_loads_from_elsewhere_is_found(site: Path) -> None:
    (site / "index.html").write_text("")
    (site / "style.css").write_text("@font-face{src:url(https://example.org/a.woff2)}")

    assert faults_of(site) == ["style.css: loads https://example.org/a.woff2 from elsewhere"]


def test_no_site_is_a_fault(tmp_path: Path) -> None:
    assert faults_of(tmp_path) == [f"{tmp_path}: there are no pages"]
