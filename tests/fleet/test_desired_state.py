"""What a group shall be: the configuration, the command line and people each have their say."""

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from haptic_trio.config.model import Duration, InstancesConfig
from haptic_trio.fleet.desired_state import GroupWish, SizeOrder, read_order, write_order
from haptic_trio.fleet.model import GroupKey

WISH = GroupWish(key=GroupKey("local"), default_size=2, config=InstancesConfig(), basis="1", waited=0.0)


def with_(**fields: Any) -> GroupWish:
    return msgspec.structs.replace(WISH, **fields)


@pytest.mark.parametrize(
    ("configured", "order", "size"),
    [
        (None, None, 2),
        (5, None, 5),
        (0, None, 0),
        (5, SizeOrder(size=3, instead_of=5), 3),
        (None, SizeOrder(size=3, instead_of=2), 3),
        # The configuration names another number than it did then.
        (4, SizeOrder(size=3, instead_of=5), 4),
    ],
)
def test_newest_word_on_the_size_holds(configured: int | None, order: SizeOrder | None, size: int) -> None:
    spec = with_(config=InstancesConfig(size=configured), order=order).spec()
    assert spec is not None
    assert spec.size == size


@pytest.mark.parametrize("lacking", [{"config": None}, {"basis": ""}, {"needs_template": True}])
def test_nothing_is_wished_before_it_is_known(lacking: dict[str, Any]) -> None:
    assert with_(**lacking).spec() is None


def test_another_basis_or_revision_is_another_hash_and_nothing_else_is() -> None:
    hashes = {
        spec.config_hash
        for wish in (
            WISH,
            with_(basis="2"),
            with_(config=InstancesConfig(revision="a")),
            with_(config=InstancesConfig(size=7, drain_timeout=Duration(1))),
        )
        if (spec := wish.spec()) is not None
    }
    assert len(hashes) == 3


def test_instances_have_longer_to_start_as_long_as_there_is_nothing_to_start_with() -> None:
    endless, longer = with_(waited=math.inf).spec(), with_(waited=100.0).spec()
    assert endless is not None
    assert longer is not None
    assert (endless.start_timeout, longer.start_timeout) == (math.inf, 160.0)


def test_order_is_kept_on_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "order.json"
    assert read_order(path) is None
    write_order(path, SizeOrder(size=3, instead_of=1))
    assert read_order(path) == SizeOrder(size=3, instead_of=1)
    path.write_text("{")
    assert read_order(path) is None
    write_order(path, None)
    assert not path.exists()
    write_order(path, None)
