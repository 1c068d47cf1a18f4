"""HTTP over the cluster's network, from a process that is outside of it."""

import ssl
from typing import Any

import httpcore
import trio

from haptic_trio.http1 import HttpTransport
from tests.cluster.node.namespaces import NetworkNamespace


class _Backend(httpcore.AsyncNetworkBackend):
    def __init__(self, network: NetworkNamespace) -> None:
        self._network = network

    async def connect_tcp(self, host: str, port: int, *rest: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        limit = options.get("timeout")
        try:
            with trio.fail_after(float("inf") if limit is None else limit):
                return _Stream(await self._network.open_tcp_stream(host, port))
        except trio.TooSlowError as exc:
            raise httpcore.ConnectTimeout(str(exc)) from exc
        except OSError as exc:
            raise httpcore.ConnectError(str(exc)) from exc

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


class _Stream(httpcore.AsyncNetworkStream):
    """A Trio stream as httpcore uses it; httpcore's own class of this kind is private.

    The parameters `timeout` are part of the interface of httpcore.
    """

    def __init__(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        try:
            with trio.fail_after(float("inf") if timeout is None else timeout):
                return bytes(await self._stream.receive_some(max_bytes))
        except trio.TooSlowError as exc:
            raise httpcore.ReadTimeout(str(exc)) from exc
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            raise httpcore.ReadError(str(exc)) from exc

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        try:
            with trio.fail_after(float("inf") if timeout is None else timeout):
                await self._stream.send_all(buffer)
        except trio.TooSlowError as exc:
            raise httpcore.WriteTimeout(str(exc)) from exc
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            raise httpcore.WriteError(str(exc)) from exc

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        assert isinstance(self._stream, trio.SocketStream)
        secure = trio.SSLStream(self._stream, ssl_context, server_hostname=server_hostname, https_compatible=True)
        try:
            with trio.fail_after(float("inf") if timeout is None else timeout):
                await secure.do_handshake()
        except trio.TooSlowError as exc:
            raise httpcore.ConnectTimeout(str(exc)) from exc
        except trio.BrokenResourceError as exc:
            raise httpcore.ConnectError(str(exc)) from exc
        return _Stream(secure)

    def get_extra_info(self, info: str) -> Any:
        transport = self._stream.transport_stream if isinstance(self._stream, trio.SSLStream) else self._stream
        match info:
            case "is_readable":
                return transport.socket.is_readable()
            case "socket":
                return transport.socket
            case _:
                return None


class NetworkTransport(HttpTransport):
    """A transport whose connections are made in another network namespace."""

    def __init__(self, network: NetworkNamespace, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(verify=tls or ssl.create_default_context(), network_backend=_Backend(network))
