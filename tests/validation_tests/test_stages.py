"""A changed configuration is used only if its own tests pass."""

from functools import partial
from pathlib import Path

import pytest
import trio

from haptic_trio.channels import ConfigSeen, EventBuffer, Latest
from haptic_trio.config.load import LoadedConfig, load_config
from haptic_trio.messages import ConfigChanged
from haptic_trio.stages.watch_config import run_watch_config
from haptic_trio.validation_tests.gate import GuardedLoad
from tests.validation_tests.builders import config_map

TESTS = "it: {assertions: [{type: contains, text: maxconn LIMIT}]}\n"


async def accept(_loaded: LoadedConfig) -> None:
    """Accept every candidate."""
    await trio.lowlevel.checkpoint()


@pytest.mark.haproxy
async def test_a_change_counts_once_its_own_tests_pass(haproxy_binary: Path) -> None:
    candidates: Latest[ConfigSeen] = Latest()
    changes_in, changes_out = trio.open_memory_channel[ConfigChanged](1)
    events = EventBuffer()
    with trio.fail_after(30), changes_out:
        async with trio.open_nursery() as nursery:
            candidates.put(ConfigSeen(config_map(TESTS.replace("LIMIT", "200"), version="2"), None))
            await nursery.start(
                partial(
                    run_watch_config,
                    candidates,
                    changes_in,
                    load=GuardedLoad(load_config, haproxy_binary),
                    running="1/",
                    try_candidate=accept,
                    rejected=set(),
                    invalid=Latest(),
                    events=events,
                )
            )
            with pytest.raises(trio.WouldBlock):
                changes_out.receive_nowait()
            candidates.put(ConfigSeen(config_map(TESTS.replace("LIMIT", "100"), version="3"), None))
            change = await changes_out.receive()

    assert change.loaded.version == "3/"
