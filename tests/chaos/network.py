"""A TCP proxy that cuts, slows, stalls and corrupts what passes."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Literal

import trio

Fault = Literal["none", "cut", "slow", "stall", "corrupt", "refuse"]

PIECE: Final = 64
SLOW_PAUSE: Final = 0.01


class Network:
    """What is between two programs; *fault* applies to all connections, from the next bytes on."""

    def __init__(self, target: int, rng: random.Random) -> None:
        self.port = 0
        self.injected = 0
        self._target = target
        self._rng = rng
        self._fault: Fault = "none"
        self._changed = trio.Event()

    @property
    def fault(self) -> Fault:
        """What is wrong now."""
        return self._fault

    @fault.setter
    def fault(self, fault: Fault) -> None:
        self._fault = fault
        self._changed.set()
        self._changed = trio.Event()

    async def carry(self, client: trio.SocketStream) -> None:
        """Carry one connection."""
        async with client:
            if self._fault == "refuse":
                self.injected += 1
                return
            try:
                server = await trio.open_tcp_stream("127.0.0.1", self._target)
            except OSError:
                return
            async with server, trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_on, client, server, nursery.cancel_scope)
                nursery.start_soon(self._pass_on, server, client, nursery.cancel_scope)

    async def _pass_on(self, source: trio.SocketStream, sink: trio.SocketStream, both: trio.CancelScope) -> None:
        # A connection fails after some bytes, not before its first ones.
        left = self._rng.randint(0, 4000)
        try:
            async for data in source:
                chunk = bytes(data)
                match self._fault:
                    case "cut" if (left := left - len(chunk)) < 0:
                        self.injected += 1
                        break
                    case "stall" if (left := left - len(chunk)) < 0:
                        self.injected += 1
                        while self._fault == "stall":
                            await self._changed.wait()
                    case "corrupt" if (left := left - len(chunk)) < 0:
                        self.injected += 1
                        at = self._rng.randrange(len(chunk))
                        chunk = chunk[:at] + bytes([chunk[at] ^ 0x55]) + chunk[at + 1 :]
                    case "slow":
                        self.injected += 1
                        while len(chunk) > PIECE and self._fault == "slow":
                            await sink.send_all(chunk[:PIECE])
                            chunk = chunk[PIECE:]
                            await trio.sleep(SLOW_PAUSE)
                await sink.send_all(chunk)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        both.cancel(reason="one direction has ended")


@asynccontextmanager
async def network_to(port: int, rng: random.Random) -> AsyncIterator[Network]:
    """Run a proxy to *port*."""
    network = Network(port, rng)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, network.carry, 0, host="127.0.0.1"))
        network.port = listeners[0].socket.getsockname()[1]
        yield network
        nursery.cancel_scope.cancel()
