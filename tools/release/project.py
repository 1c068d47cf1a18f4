"""The project's own metadata, and the agreement of its parts."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from haptic_trio import __version__
from tools.site.markdown import with_links
from tools.site.pages import directory_of, site_path

ROOT: Final = Path(__file__).parents[2]
_PLACEHOLDER: Final = ".example"


class NotesError(Exception):
    """CHANGELOG.md has no section for the version."""


def metadata(root: Path = ROOT) -> dict[str, Any]:
    """Return the table `project` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def disagreements(root: Path = ROOT, version: str = __version__) -> list[str]:
    """Return where the checkout *root* names another version than *version*."""
    chart = yaml.safe_load((root / "chart/Chart.yaml").read_text("utf-8"))
    container = (root / "Containerfile").read_text("utf-8")
    found = {f"chart/Chart.yaml: {name}": str(chart[name]) for name in ("version", "appVersion")}
    images = yaml.safe_load(chart.get("annotations", {}).get("artifacthub.io/images", "[]"))
    if icon := chart.get("icon"):
        found["chart/Chart.yaml: icon"] = icon.split("/")[-3]
    found |= {f"chart/Chart.yaml: image {one['name']}": one["image"].rpartition(":")[2] for one in images}
    found["Containerfile: ARG VERSION"] = container.partition("ARG VERSION=")[2].split(maxsplit=1)[0]
    return [
        f"{place} is {value}, the package's version {version}" for place, value in found.items() if value != version
    ]


def unfinished(root: Path = ROOT, version: str = __version__) -> Iterator[str]:
    """Yield what is right while a version is made, and wrong once it is published."""
    for name, url in metadata(root)["urls"].items():
        if (urlsplit(url).hostname or "").endswith(_PLACEHOLDER):
            yield f"pyproject.toml: project.urls.{name} is a placeholder: {url}"
    try:
        release_notes((root / "CHANGELOG.md").read_text("utf-8"), version, final=True)
    except NotesError as exc:
        yield str(exc)


def release_notes(changelog: str, version: str, *, final: bool) -> str:
    """Return the section of *version*; unless *final*, that of unreleased changes in its place. Raises NotesError."""
    sections = {part.partition("\n")[0].split()[0]: part.partition("\n")[2] for part in changelog.split("\n## ")[1:]}
    for name in (version, *([] if final else ["Unreleased"])):
        if text := sections.get(name, "").strip():
            return f"{text}\n"
    raise NotesError(f"CHANGELOG.md has no section for {version}")


def absolute_links(text: str, page: str, documentation: str) -> str:
    """Return *text*, the file *page* of the repository, with links to the site at the address *documentation*."""

    def link(target: str) -> str:
        path, mark, anchor = target.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return target
        name = (ROOT / page).parent.joinpath(path).resolve().relative_to(ROOT).as_posix()
        place = site_path(name)
        if place.endswith(".md"):
            place = f"{directory_of(place)}/".removeprefix("./")
        return f"{documentation}{place}{mark}{anchor}"

    return with_links(text, link)
