"""The site has every page, and its links stay in it."""

from pathlib import Path

import pytest

from tools.site.pages import BESIDE, MERMAID, LinkError, site_path, write_site


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    for name, text in {
        **dict.fromkeys(BESIDE, "# Beside\n"),
        "docs/README.md": "[a](how-to/a.md#b) [changes](../CHANGELOG.md)\n",
        "docs/how-to/a.md": "# B\n\n[values](../../chart/values.yaml) [up](../README.md) [out](https://example.org/x.md)\n",
        "docs/images/a.png": "picture",
        "docs/drawn.md": "```mermaid\nflowchart LR\n```\n",
        "chart/values.yaml": "a: 1\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    return root


def test_links_lead_to_the_places_of_the_site(checkout: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    write_site(checkout, out)

    assert (out / "README.md").read_text("utf-8") == "[a](how-to/a.md#b) [changes](changes.md)\n"
    page = (out / "how-to/a.md").read_text("utf-8")
    assert "[values](../source/chart/values.yaml.md) [up](../README.md) [out](https://example.org/x.md)" in page
    assert "a: 1" in (out / "source/chart/values.yaml.md").read_text("utf-8")
    assert (out / "images/a.png").read_text("utf-8") == "picture"
    assert all((out / place).is_file() for place in BESIDE.values())


def test_a_former_page_does_not_stay(checkout: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "former.md").write_text("")

    write_site(checkout, out)

    assert not (out / "former.md").exists()


def test_only_pages_with_diagrams_load_the_script_that_draws(checkout: Path, tmp_path: Path) -> None:
    write_site(checkout, tmp_path / "out")

    # MkDocs makes drawn/index.html of it.
    assert f'<script src="../{MERMAID}"></script>' in (tmp_path / "out/drawn.md").read_text("utf-8")
    assert "<script" not in (tmp_path / "out/README.md").read_text("utf-8")


def test_a_dead_link_fails(checkout: Path, tmp_path: Path) -> None:
    (checkout / "docs/bad.md").write_text("[a](nothing.md)\n", "utf-8")

    with pytest.raises(LinkError, match=r"docs/bad.md: nothing.md"):
        write_site(checkout, tmp_path / "out")


def test_places_of_files_do_not_collide() -> None:
    names = ["docs/README.md", "docs/chart.yaml", "chart/README.md", "chart/values.yaml", "LICENSE", ".ci/run"]

    assert [site_path(name) for name in names] == [
        "README.md",
        "chart.yaml",
        "chart.md",
        "source/chart/values.yaml.md",
        "source/LICENSE.md",
        "source/ci/run.md",
    ]
