"""The guides, gone through as they stand."""

from pathlib import Path

import pytest

from tests.docs.console import BY_HAND, Session, require_tools
from tests.docs.markdown import DOCS, blocks_of, shown
from tests.support.processes.haproxy import haproxy_binary

__all__ = ["haproxy_binary"]

RUN = [
    page
    for page in sorted((DOCS / "how-to").glob("*.md"))
    if any(block.language == "console" and block.argument != BY_HAND for block in blocks_of(page))
]


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_binary")
@pytest.mark.parametrize("page", RUN, ids=shown)
def test_the_guide_holds(page: Path, tmp_path: Path) -> None:
    require_tools()
    with Session(tmp_path) as session:
        session.follow([block for block in blocks_of(page) if block.argument not in {"part", "library.yaml"}])


def test_every_guide_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text("utf-8")
    assert [page.name for page in (DOCS / "how-to").glob("*.md") if f"(how-to/{page.name})" not in index] == []
