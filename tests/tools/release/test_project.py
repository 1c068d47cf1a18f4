"""The parts of the project agree before it is released."""

from pathlib import Path

import pytest

from tools.release.project import NotesError, absolute_links, disagreements, metadata, release_notes, unfinished

CHANGELOG = "# Changes\n\n## Unreleased\n\n- new\n\n## 0.2.0 (2027-01-01)\n\n### Part\n\n- two\n\n## 0.1.0\n\n- one\n"


def checkout(folder: Path, *, chart: str = "0.2.0", container: str = "0.2.0", url: str = "https://a.test/") -> Path:
    (folder / "chart").mkdir()
    images = f"annotations:\n  artifacthub.io/images: '[{{name: a, image: \"registry.test:5000/a:{chart}\"}}]'\n"
    (folder / "chart/Chart.yaml").write_text(f"version: {chart}\nappVersion: {chart}\n{images}")
    (folder / "Containerfile").write_text(f"FROM a\nARG VERSION={container}\nARG REVISION=unknown\n")
    (folder / "pyproject.toml").write_text(f'[project.urls]\nHomepage = "{url}"\n')
    (folder / "CHANGELOG.md").write_text(CHANGELOG)
    return folder


def test_this_checkout_has_one_version() -> None:
    assert disagreements() == []


def test_another_version_is_found_wherever_it_is(tmp_path: Path) -> None:
    root = checkout(tmp_path, chart="0.1.0", container="0.3.0")

    assert disagreements(root, "0.2.0") == [
        "chart/Chart.yaml: version is 0.1.0, the package's version 0.2.0",
        "chart/Chart.yaml: appVersion is 0.1.0, the package's version 0.2.0",
        "chart/Chart.yaml: image a is 0.1.0, the package's version 0.2.0",
        "Containerfile: ARG VERSION is 0.3.0, the package's version 0.2.0",
    ]


def test_placeholders_and_a_missing_section_are_unfinished(tmp_path: Path) -> None:
    root = checkout(tmp_path, url="https://name.example/x")

    assert list(unfinished(root, "0.4.0")) == [
        "pyproject.toml: project.urls.Homepage is a placeholder: https://name.example/x",
        "CHANGELOG.md has no section for 0.4.0",
    ]


def test_a_finished_version_is_not_unfinished(tmp_path: Path) -> None:
    assert list(unfinished(checkout(tmp_path), "0.2.0")) == []


def test_notes_are_the_section_of_the_version() -> None:
    assert release_notes(CHANGELOG, "0.2.0", final=True) == "### Part\n\n- two\n"
    assert release_notes(CHANGELOG, "0.3.0", final=False) == "- new\n"
    with pytest.raises(NotesError, match=r"0\.3\.0"):
        release_notes(CHANGELOG, "0.3.0", final=True)


@pytest.mark.parametrize(
    ("page", "link", "absolute"),
    [
        ("README.md", "docs/fleet.md#pods", "https://a.test/docs/fleet/#pods"),
        ("README.md", "docs/README.md", "https://a.test/docs/"),
        ("README.md", "docs/images/session.svg", "https://a.test/docs/images/session.svg"),
        ("README.md", "CHANGELOG.md", "https://a.test/docs/changes/"),
        ("chart/README.md", "../docs/how-to/migrate.md", "https://a.test/docs/how-to/migrate/"),
        ("chart/README.md", "values.yaml", "https://a.test/docs/source/chart/values.yaml/"),
        ("README.md", "https://b.test/c.md", "https://b.test/c.md"),
        ("README.md", "#here", "#here"),
    ],
)
def test_links_lead_to_the_documentation_site(page: str, link: str, absolute: str) -> None:
    text = f"[a]({link}) `[b](docs/fleet.md)`\n\n```\n[c](docs/fleet.md)\n```\n"

    assert absolute_links(text, page, "https://a.test/docs/") == text.replace(f"({link})", f"({absolute})", 1)


def test_the_metadata_are_complete() -> None:
    project = metadata()

    assert project["authors"] == [{"name": "haptic-trio maintainers"}]
    assert {"Homepage", "Documentation", "Source", "Issues", "Changelog"} <= project["urls"].keys()
    assert project["urls"]["Documentation"].endswith("/")
