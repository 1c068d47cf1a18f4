"""HTTP over the cluster's network, from a process that is outside of it."""

import ssl
from typing import Any

import httpcore
import httpx
import trio
from httpcore._backends.trio import TrioStream

from tests.cluster.namespaces import NetworkNamespace


class _Backend(httpcore.AsyncNetworkBackend):
    def __init__(self, network: NetworkNamespace) -> None:
        self._network = network

    async def connect_tcp(self, host: str, port: int, *rest: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        limit = options.get("timeout")
        try:
            with trio.fail_after(float("inf") if limit is None else limit):
                return TrioStream(await self._network.open_tcp_stream(host, port))
        except trio.TooSlowError as exc:
            raise httpcore.ConnectTimeout(str(exc)) from exc
        except OSError as exc:
            raise httpcore.ConnectError(str(exc)) from exc

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


class NetworkTransport(httpx.AsyncHTTPTransport):
    """A transport whose connections are made in another network namespace."""

    def __init__(self, network: NetworkNamespace, tls: ssl.SSLContext | None = None) -> None:
        context = tls or ssl.create_default_context()
        super().__init__(verify=context)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context, keepalive_expiry=5, network_backend=_Backend(network)
        )
