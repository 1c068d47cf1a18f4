"""Stream of one watch request, as batches of events."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Final

import httpx
import trio

from haptic_trio.errors import INVALID_JSON
from haptic_trio.k8s.api.connection import Connection
from haptic_trio.k8s.api.decode import RawEvent, decode_events
from haptic_trio.k8s.api.discovery import ServedKind
from haptic_trio.k8s.errors import ServerFailedError

_STREAMED_LIST: Final[Mapping[str, str]] = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


@asynccontextmanager
async def open_watch(
    connection: Connection,
    served: ServedKind,
    namespace: str,
    params: Mapping[str, str],
    *,
    version: str | None,
    duration: int,
    silence: float,
    accept: str,
) -> AsyncIterator[AsyncIterator[list[RawEvent]]]:
    """Watch from *version* for *duration* seconds, as far as the server keeps to that; None begins with all there is.

    Yields an iterator of batches: what has arrived together. It ends with
    the watch, or after *silence* seconds in which nothing came, bookmarks
    neither. Raises `ApiError`, also while it is read.
    """
    start = _STREAMED_LIST if version is None else {"resourceVersion": version}
    params = {**params, "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(duration), **start}
    what = f"watch {served.type}"
    async with (
        connection.stream(served.path(namespace), what=what, params=params, silence=silence, accept=accept) as response,
        aclosing(_Batches(response, what)) as batches,
    ):
        yield batches


class _Batches:
    """An iterator over the batches of *response*, to be closed."""

    def __init__(self, response: httpx.Response, what: str) -> None:
        self._chunks = response.aiter_raw()
        self._what = what
        self._rest = b""

    def __aiter__(self) -> "_Batches":
        return self

    async def __anext__(self) -> list[RawEvent]:
        try:
            async for chunk in self._chunks:
                end = chunk.rfind(b"\n") + 1
                if end:
                    lines, self._rest = self._rest + chunk[:end], chunk[end:]
                    return decode_events(lines)
                self._rest += chunk
        except httpx.ReadTimeout:
            # The server may be gone: a new request will show it.
            pass
        except INVALID_JSON as error:
            raise ServerFailedError(self._what, f"the answer is not a stream of events: {error}") from error
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Run what is below to its end without waiting for more.

        There is one generator in another, five deep. Closing the outermost
        leaves the others to the garbage collector; cancelling goes through
        all.
        """
        with trio.CancelScope() as scope:
            scope.cancel(reason="the watch is left")
            async for _chunk in self._chunks:
                pass
