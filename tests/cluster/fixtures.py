"""Fixtures: one cluster for the whole session, whichever folder asks, and a namespace in it for each test."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.cluster.control_plane.binaries import BinaryUnavailableError, find_binaries, provide_binaries
from tests.cluster.control_plane.state import State
from tests.cluster.node.namespaces import why_no_namespaces
from tests.cluster.rig import running_cluster
from tests.cluster.workloads.client import Cluster, connect_cluster


def require_cluster() -> None:
    """Skip the test where no cluster can be; fail it, or build what is missing, under HAPTIC_REQUIRE_CLUSTER=1."""
    required = os.environ.get("HAPTIC_REQUIRE_CLUSTER") == "1"
    reason = why_no_namespaces()
    if reason is None:
        try:
            _ = provide_binaries() if required else find_binaries()
        except BinaryUnavailableError as exc:
            reason = str(exc)
    if reason is not None:
        if required:
            pytest.fail(reason)
        pytest.skip(reason)


class _Shared:
    """The cluster of the session, for as long as anybody has it."""

    def __init__(self) -> None:
        self._users = 0
        self._stack = ExitStack()
        self._state: State | None = None

    @contextmanager
    def use(self) -> Iterator[State]:
        if self._state is None:
            self._state = self._stack.enter_context(running_cluster())
        self._users += 1
        try:
            yield self._state
        finally:
            self._users -= 1
            if not self._users:
                self._state = None
                self._stack.close()


_SHARED = _Shared()


@pytest.fixture(scope="session")
def cluster_state() -> Iterator[State]:
    """A cluster that runs until the session ends."""
    require_cluster()
    # Each folder that imports this has a fixture of its own.
    with _SHARED.use() as state:
        yield state


@pytest.fixture
async def cluster(cluster_state: State) -> AsyncIterator[Cluster]:
    """The shared cluster."""
    async with connect_cluster(cluster_state) as connected:
        yield connected


@pytest.fixture
async def namespace(cluster: Cluster) -> AsyncIterator[str]:
    """A namespace of the test's own."""
    async with cluster.open_namespace() as name:
        yield name
