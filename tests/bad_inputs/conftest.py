"""One world for all tests of a module: it renders again only what changes."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.bad_inputs.world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path_factory.mktemp("bad"), stack)
