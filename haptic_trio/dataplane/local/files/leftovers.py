"""Leftovers: files of former generations, removed in the background some time after a deployment."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import trio

from haptic_trio.dataplane.endpoint import EndpointStorageError
from haptic_trio.dataplane.local.files.instance_directory import GenerationFiles
from haptic_trio.dataplane.local.files.set_aside import remove
from haptic_trio.errors import text_of
from haptic_trio.logs import Logger

REMOVAL_DELAY: Final = 2.0
"""Seconds from a deployment to the removal: changes that waited for a load are applied first."""


class Leftovers:
    """Files that *files* does not need any more; *exclusive* holds the lock of the instance."""

    def __init__(
        self,
        files: GenerationFiles,
        exclusive: Callable[[], AbstractAsyncContextManager[None]],
        log: Logger,
    ) -> None:
        self._files = files
        self._exclusive = exclusive
        self._log = log
        self._requested = trio.Event()

    def request_removal(self) -> None:
        """Let `run` remove the leftovers soon."""
        self._requested.set()

    async def run(self) -> None:
        """Remove the leftovers after each request, until cancelled; changes of the instance do not wait for it."""
        while True:
            await self._requested.wait()
            await trio.sleep(REMOVAL_DELAY)
            self._requested = trio.Event()
            try:
                async with self._exclusive():
                    gone = await trio.to_thread.run_sync(self._files.set_aside)
            except EndpointStorageError as exc:
                self._log.warning("files of former generations are not removed", error=text_of(exc))
            else:
                await trio.to_thread.run_sync(remove, gone, abandon_on_cancel=True)
