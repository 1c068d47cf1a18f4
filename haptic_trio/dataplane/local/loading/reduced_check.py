"""Check of what a load changes, before the load."""

from pathlib import Path
from typing import Final

import trio

from haptic_trio.dataplane.local.check import CheckFailedError, CheckTimeoutError, ConfigRejectedError, check_config
from haptic_trio.haproxy.config.reduced import reduce_generation
from haptic_trio.haproxy.model import Generation

CHECK_LIMIT: Final = 60.0
"""Seconds for a check before a load."""


async def passes_reduced_check(binary: Path, running: Generation | None, generation: Generation, *, root: Path) -> bool:
    """Whether *binary* accepts a reduced configuration with the changes since *running*, in a directory below *root*.

    False if only a complete check can decide. A load reads the complete
    configuration anyway and is rolled back if it fails.
    """
    if running is None:
        return False
    reduced = await trio.to_thread.run_sync(reduce_generation, running, generation)
    if reduced is None:
        return False
    try:
        await check_config(binary, reduced, limit=CHECK_LIMIT, root=root)
    except (ConfigRejectedError, CheckTimeoutError, CheckFailedError):
        return False
    return True
