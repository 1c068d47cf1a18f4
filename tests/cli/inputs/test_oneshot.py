"""Snapshots of a cluster: what reading one costs."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from haptic_trio.cli.inputs.oneshot import read_snapshot
from haptic_trio.cli.inputs.options import InputOptions
from haptic_trio.config.load import ConfigSource
from tests.k8s.objects import service_manifest

SOURCE = ConfigSource(namespace="default", config_map="absent", secret="absent")


@pytest.fixture
def collections() -> Iterator[list[str]]:
    """Collections of garbage, which begin after every hundred objects."""
    found: list[str] = []
    before = gc.get_threshold()

    def note(phase: str, _info: dict[str, int]) -> None:
        found.append(phase)

    gc.callbacks.append(note)
    gc.set_threshold(100)
    yield found
    gc.set_threshold(*before)
    gc.callbacks.remove(note)


def test_no_collection_traverses_the_manifests_while_they_are_read(tmp_path: Path, collections: list[str]) -> None:
    for number in range(300):
        (tmp_path / f"{number}.yaml").write_text(service_manifest(f"app-{number}"))

    snapshot = trio.run(read_snapshot, InputOptions(manifests=tmp_path, source=SOURCE, haproxy=None))

    assert len(snapshot.manifests) == 300
    # Some begin before and after the reading, which makes thousands of objects.
    assert len(collections) < 80
