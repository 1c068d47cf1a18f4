"""Desired state of a group, from configuration, command line and user overrides."""

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from haptic_trio.config.model import Duration, InstancesConfig
from haptic_trio.fleet.desired_state import DesiredGroup, SizeOverride, read_size_override, write_size_override
from haptic_trio.fleet.model import GroupKey

DESIRED = DesiredGroup(key=GroupKey("local"), default_size=2, config=InstancesConfig(), basis="1", waited=0.0)


def desired_with(**fields: Any) -> DesiredGroup:
    return msgspec.structs.replace(DESIRED, **fields)


@pytest.mark.parametrize(
    ("configured", "override", "size"),
    [
        (None, None, 2),
        (5, None, 5),
        (0, None, 0),
        (5, SizeOverride(size=3, instead_of=5), 3),
        (None, SizeOverride(size=3, instead_of=2), 3),
        # The configured size has changed since the override.
        (4, SizeOverride(size=3, instead_of=5), 4),
    ],
)
def test_size_override_holds_while_the_configured_size_stays(
    configured: int | None, override: SizeOverride | None, size: int
) -> None:
    spec = desired_with(config=InstancesConfig(size=configured), size_override=override).spec()
    assert spec is not None
    assert spec.size == size


@pytest.mark.parametrize("lacking", [{"config": None}, {"basis": ""}, {"needs_template": True}])
def test_no_spec_until_all_inputs_are_known(lacking: dict[str, Any]) -> None:
    assert desired_with(**lacking).spec() is None


def test_only_basis_and_revision_change_the_hash() -> None:
    hashes = {
        spec.config_hash
        for desired in (
            DESIRED,
            desired_with(basis="2"),
            desired_with(config=InstancesConfig(revision="a")),
            desired_with(config=InstancesConfig(size=7, drain_timeout=Duration(1))),
        )
        if (spec := desired.spec()) is not None
    }
    assert len(hashes) == 3


def test_start_timeout_grows_by_the_wait_for_the_first_generation() -> None:
    endless, longer = desired_with(waited=math.inf).spec(), desired_with(waited=100.0).spec()
    assert endless is not None
    assert longer is not None
    assert (endless.start_timeout, longer.start_timeout) == (math.inf, 160.0)


def test_size_override_is_durable(tmp_path: Path) -> None:
    path = tmp_path / "override.json"
    assert read_size_override(path) is None
    write_size_override(path, SizeOverride(size=3, instead_of=1))
    assert read_size_override(path) == SizeOverride(size=3, instead_of=1)
    path.write_text("{")
    assert read_size_override(path) is None
    write_size_override(path, None)
    assert not path.exists()
    write_size_override(path, None)
