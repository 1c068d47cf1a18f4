"""One exchange with a CLI socket of HAProxy: a worker's runtime socket, or the master socket."""

from pathlib import Path

import trio

from haptic_trio.dataplane.endpoint import EndpointTimeoutError, EndpointUnreachableError

RECEIVE_SIZE = 65536


async def exchange(path: Path, request: str, *, endpoint: str, limit: float) -> str:
    """Send *request* to the unix socket at *path* and return the whole answer.

    Raises EndpointTimeoutError after *limit* seconds and
    EndpointUnreachableError if the connection fails; both name *endpoint*.
    """
    try:
        with trio.fail_after(limit):
            return await _exchange(path, request)
    except trio.TooSlowError as exc:
        raise EndpointTimeoutError(endpoint, f"no complete answer within {limit:g} s on {path.name}") from exc
    except (OSError, trio.BrokenResourceError) as exc:
        raise EndpointUnreachableError(endpoint, f"{path.name}: {exc}") from exc


async def _exchange(path: Path, request: str) -> str:
    async with await trio.open_unix_socket(path) as stream:
        await stream.send_all(request.encode(errors="surrogateescape"))
        # The master keeps a connection open after `show proc` until the client closes its side.
        await stream.send_eof()
        answer = bytearray()
        while chunk := await stream.receive_some(RECEIVE_SIZE):
            answer += chunk
        return answer.decode(errors="replace")
