"""A site whose objects are in an API server instead of a directory."""

import os
from pathlib import Path
from typing import Any

from haptic_trio.cli.inputs.options import InputOptions, make_input
from tests.features.harness import Site
from tests.support.api_server.server import ApiServer


class ServerSite(Site):
    """A site whose objects are in an API server."""

    def __init__(self, root: Path, port: int, server: ApiServer) -> None:
        super().__init__(root, port)
        self.server = server
        self.kubeconfig = root / "kubeconfig"
        self.token_file = root / "token"
        self.token_file.write_text("first-token")
        self._written: dict[str, tuple[Any, ...]] = {}

    def input(self, binary: Path) -> InputOptions:
        """Return what names the API server, and the HAProxy."""
        return make_input(None, None, "haptic-trio", "haptic-trio", os.fspath(binary), kubeconfig=self.kubeconfig)

    def write(self, name: str, *objects: Any) -> None:
        """Put objects into the server; those written before under *name* and missing now are deleted."""
        self.server.put(*objects)
        kept = [(each["kind"], each["metadata"]["name"]) for each in objects]
        for each in self._written.get(name, ()):
            if (each["kind"], each["metadata"]["name"]) not in kept:
                self.server.remove(each)
        self._written[name] = objects

    def remove(self, name: str) -> None:
        """Delete what was written under *name*."""
        for each in self._written.pop(name):
            self.server.remove(each)
