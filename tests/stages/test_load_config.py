"""An iteration runs the checked configuration, else the present one unless it is rejected, else the last good one."""

from functools import partial

import msgspec
import pytest
import trio

from haptic_trio.channels import ConfigSeen, EventBuffer, Latest
from haptic_trio.config.load import LoadedConfig, load_config
from haptic_trio.stages.load_config import run_load_config
from tests.support.components.controller import SOURCE, config_map, raw_config_map

GOOD = load_config(config_map(), None)


def versioned(loaded: LoadedConfig, version: str) -> LoadedConfig:
    return msgspec.structs.replace(loaded, version=version)


@pytest.mark.parametrize(
    ("present", "checked", "last_good", "rejected", "expected"),
    [
        ("7", None, None, set[str](), "7/"),
        ("7", versioned(GOOD, "5/"), None, set[str](), "5/"),
        ("7", None, versioned(GOOD, "6/"), set[str](), "7/"),
        ("7", None, versioned(GOOD, "6/"), {"7/"}, "6/"),
        # Without another one there is nothing better.
        ("7", None, None, {"7/"}, "7/"),
        ("", None, versioned(GOOD, "6/"), set[str](), "6/"),
    ],
)
async def test_configuration_is_chosen(
    nursery: trio.Nursery,
    present: str,
    checked: LoadedConfig | None,
    last_good: LoadedConfig | None,
    rejected: set[str],
    expected: str,
) -> None:
    found = config_map() if present else raw_config_map("null")
    found["metadata"]["resourceVersion"] = present
    candidates = Latest[ConfigSeen]()
    candidates.put(ConfigSeen(found, None))
    run = partial(run_load_config, load=load_config, checked=checked, last_good=last_good, rejected=rejected)

    with trio.fail_after(30):
        loaded: LoadedConfig = await nursery.start(partial(run, SOURCE, candidates, events=EventBuffer()))

    assert loaded.version == expected
