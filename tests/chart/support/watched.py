"""List for the chart: the resources that the shipped libraries watch, and those whose status they write."""

import json
from pathlib import Path
from typing import Any, Final

import yaml

from haptic_trio.channels import Latest
from haptic_trio.config.load import load_config
from haptic_trio.config.model import Config
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.stages.status_writers import make_sources
from tests.chart.support.rendering import CHART

WATCHED_FILE: Final = CHART / "files/watched-resources.yaml"
LIBRARIES: Final = CHART.parent / "haptic_trio/libraries"
_TITLE: Final = (
    "# What each shipped library watches, and whose status is written: role and `watchNamespaces` derive from it.\n"
    "# `make chart-golden` writes this.\n"
)


def watched_text() -> str:
    """Return the content of `WATCHED_FILE`, by library and by the name that it has for the resource."""
    libraries = sorted(path.parent for path in LIBRARIES.glob("*/library.yaml"))
    reported = stores_with_status(_config_with([one.name for one in libraries]))
    known: dict[str, Any] = {}
    for library in libraries:
        watched = yaml.safe_load((library / "library.yaml").read_text()).get("watchedResources") or {}
        known[library.name] = {
            name: one | ({"writesStatus": True} if name in reported else {}) for name, one in watched.items()
        }
    return _TITLE + yaml.safe_dump(known, sort_keys=False)


def stores_with_status(config: Config) -> set[str]:
    """Return the names of the watched resources of *config* whose status is written."""
    stores = Stores(Store(name, ("metadata.name",)) for name in config.watched_resources)
    return {source.store for source in make_sources(config, stores, Latest())}


def _config_with(libraries: list[str]) -> Config:
    text = json.dumps({"templating": {"libraries": libraries}})
    resource = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "all"}, "data": {"config": text}}
    return load_config(resource, None).config


def write_watched(path: Path = WATCHED_FILE) -> None:
    """Write *path* again."""
    path.write_text(watched_text())
