"""The first page that a new user reads, gone through as it stands."""

from pathlib import Path

import pytest

from tests.docs.console import Session, require_tools
from tests.docs.markdown import DOCS, ROOT, blocks_of
from tests.support.processes.haproxy import haproxy_binary, instance_root

__all__ = ["haproxy_binary", "instance_root"]


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_binary")
def test_a_new_user_comes_from_the_demo_to_a_change_of_their_own(instance_root: Path) -> None:
    require_tools()
    with Session(instance_root) as session:
        session.follow(blocks_of(DOCS / "getting-started.md"))


def test_the_demo_of_the_page_is_that_of_the_program() -> None:
    assert "@$(BIN)/haptic-trio demo $(ARGS)\n" in (ROOT / "Makefile").read_text("utf-8")
