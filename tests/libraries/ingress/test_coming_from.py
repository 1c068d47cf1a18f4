"""The pages for those who come from other controllers: gone through as they stand."""

from pathlib import Path

import pytest

from tests.docs.console import Session
from tests.docs.markdown import DOCS, blocks_of, shown
from tests.support.processes.haproxy import haproxy_binary

__all__ = ["haproxy_binary"]

PAGES = sorted(DOCS.glob("coming-from-*.md"))


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_binary")
@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_an_export_is_checked_and_corrected_as_the_page_says(page: Path, tmp_path: Path) -> None:
    with Session(tmp_path) as session:
        session.follow([block for block in blocks_of(page) if block.argument != "part"])
