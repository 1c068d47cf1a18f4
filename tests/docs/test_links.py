"""Every relative link of every page leads to a file, and to a heading in it."""

from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.markdown import DOCS, ROOT, all_pages, anchors_of, links_of, shown


@pytest.mark.parametrize("page", all_pages(), ids=shown)
def test_links_lead_somewhere(page: Path) -> None:
    dead = []
    for line, target in links_of(page):
        path, _, anchor = target.partition("#")
        if "://" in path or path.startswith("mailto:"):
            continue
        file = (page.parent / unquote(path)).resolve() if path else page
        if not file.exists() or not file.is_relative_to(ROOT):
            dead.append(f"{shown(page)}:{line}: {target}: there is no such file")
        elif anchor and file.suffix == ".md" and anchor not in anchors_of(file):
            dead.append(f"{shown(page)}:{line}: {target}: there is no such heading")
    assert not dead, "\n".join(dead)


def test_every_page_is_found_from_the_index() -> None:
    reached, waiting = set[Path](), [DOCS / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for _line, target in links_of(page):
            file = (page.parent / target.partition("#")[0]).resolve()
            if file.suffix == ".md" and file.is_relative_to(DOCS) and file.is_file():
                waiting.append(file)
    assert {shown(page) for page in DOCS.rglob("*.md")} == {shown(page) for page in reached}
    assert (DOCS / "README.md") in {
        (ROOT / target).resolve() for _line, target in links_of(ROOT / "README.md") if "://" not in target
    }
