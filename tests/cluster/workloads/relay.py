"""Bytes passed on between two connections, both ways, half-closed as they are."""

import trio

_CHUNK = 65536


async def relay(one: trio.SocketStream, other: trio.SocketStream) -> None:
    """Pass bytes on until both directions have ended or one failed; closes both connections."""
    async with one, other, trio.open_nursery() as nursery:
        nursery.start_soon(_pump, one, other, nursery.cancel_scope)
        nursery.start_soon(_pump, other, one, nursery.cancel_scope)


async def _pump(source: trio.SocketStream, sink: trio.SocketStream, both: trio.CancelScope) -> None:
    try:
        while chunk := await source.receive_some(_CHUNK):
            await sink.send_all(chunk)
        await sink.send_eof()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        both.cancel(reason="a connection broke")
