"""The pages of the documentation site, from docs/ and what it refers to: `python -m tools.site.pages DIRECTORY`.

Links that leave docs/ stay in the site: other Markdown files are pages of it, and other files are shown on pages of
their own. So the site of a version needs no forge, and its links are those of that version.
"""

import os
import shutil
import sys
from pathlib import Path, PurePosixPath
from typing import Final

from tools.site.markdown import has_diagram, translate

ROOT: Final = Path(__file__).parents[2]
BESIDE: Final = {
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "chart/README.md": "chart.md",
}
"""Pages outside of docs/, by their file, with their place in the site."""
MERMAID: Final = "assets/mermaid.min.js"
"""Place of the script that draws diagrams. Only pages with diagrams load it: it is larger than all of the rest."""
_LANGUAGES: Final = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".py": "python", ".sh": "sh"}


class LinkError(Exception):
    """A link leads to nothing that the site can show; the text has page and target."""


def write_site(root: Path, out: Path) -> None:
    """Write the pages of the checkout *root* to the directory *out*, replacing it; raises LinkError."""
    shutil.rmtree(out, ignore_errors=True)
    docs = root / "docs"
    pages = {file.relative_to(root).as_posix() for file in docs.rglob("*.md")} | set(BESIDE)
    shown = set[str]()
    for page in sorted(pages):
        text = (root / page).read_text("utf-8")
        _write(out / site_path(page), _page(root, page, text, shown))
    for name in sorted(shown):
        _write(out / site_path(name), _shown(root, name))
    for file in docs.rglob("*"):
        if file.is_file() and file.suffix != ".md":
            copy = out / file.relative_to(docs)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def site_path(name: str) -> str:
    """Return the place in the site of the file *name* of the repository."""
    if name in BESIDE:
        return BESIDE[name]
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    # MkDocs skips names that begin with a dot.
    return "/".join(["source", *(part.removeprefix(".") for part in f"{name}.md".split("/"))])


def _page(root: Path, page: str, text: str, shown: set[str]) -> str:
    here = PurePosixPath(site_path(page)).parent

    def link(target: str) -> str:
        path, mark, anchor = target.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return target
        name = os.path.normpath(PurePosixPath(page).parent / path)
        if not (root / name).is_file():
            raise LinkError(f"{page}: {target}: there is no such file")
        if not name.startswith("docs/") and name not in BESIDE:
            shown.add(name)
        return f"{os.path.relpath(site_path(name), here)}{mark}{anchor}"

    translated = translate(text, link)
    if has_diagram(text):
        translated += f'\n<script src="{os.path.relpath(MERMAID, directory_of(site_path(page)))}"></script>\n'
    return translated


def directory_of(page: str) -> PurePosixPath:
    """Return the directory of the site whose index *page*, by its place in the site, becomes: each page has its own."""
    path = PurePosixPath(page)
    return path.parent if path.name in {"README.md", "index.md"} else path.with_suffix("")


def _shown(root: Path, name: str) -> str:
    text = (root / name).read_text("utf-8")
    language = _LANGUAGES.get(PurePosixPath(name).suffix, "text")
    return f"---\nsearch:\n  exclude: true\n---\n\n# {name}\n\n~~~~~~~~{language}\n{text.rstrip()}\n~~~~~~~~\n"


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")


if __name__ == "__main__":
    write_site(ROOT, Path(sys.argv[1]))
