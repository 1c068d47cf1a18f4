"""Cluster for the tests of all libraries: rendered objects, checked and served by a real HAProxy."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from tests.support.components.rendering import Rendered, render
from tests.support.processes.ports import free_port
from tests.support.traffic.proxy import check, running


class Cluster:
    """Renders objects with the shipped libraries and serves the result."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self.http_port = free_port()
        self.https_port = free_port()

    def render(self, *objects: Resource, **context: Any) -> Rendered:
        """Render with addresses of this test; *context* is the user's extraContext."""
        ports = {"httpPort": self.http_port, "httpsPort": self.https_port}
        return render(objects, **{"bindAddress": "127.0.0.1", **ports, **context})

    def check(self, rendered: Rendered) -> str:
        """Return what `haproxy -c` objects to."""
        return check(self._directory, rendered.text, rendered.files)

    def serve(self, *objects: Resource, **context: Any) -> Rendered:
        """Render, check, and serve until the test ends."""
        rendered = self.render(*objects, **context)
        assert self.check(rendered) == ""
        self._stack.enter_context(self.running(rendered.text, rendered))
        return rendered

    def running(self, text: str, rendered: Rendered) -> AbstractContextManager[int]:
        """Run HAProxy with *text*, which may differ from what was rendered, and the files of *rendered*."""
        # HAProxy listens in the order of its frontends.
        port = self.https_port if f":{self.https_port}" in text else self.http_port
        return running(self._directory, text, rendered.files, port=port)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)
