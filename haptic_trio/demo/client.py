"""HTTP client of the demo; each request uses a new connection."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Self

import httpx
import msgspec
import trio

from haptic_trio.demo.backends import NAME_HEADER
from haptic_trio.demo.ports import LOOPBACK
from haptic_trio.demo.site import HOST, DemoSite
from haptic_trio.errors import HapticError

POLL_INTERVAL = 0.005
REQUEST_LIMIT = 5.0
TRAFFIC_INTERVAL = 0.01


class RequestFailedError(HapticError):
    """A request got no answer; transient."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP response."""

    status: int
    backend: str = ""
    """Name of the backend that answered; empty for responses of HAProxy."""
    greeting: str = ""
    """Header that the snippet of the demo sets."""


class DemoClient:
    """Sends requests to the frontends of *site*. HTTPS trusts only the certificate authority of the demo."""

    def __init__(self, http: httpx.AsyncClient, site: DemoSite) -> None:
        self._http = http
        self._ports = site.ports

    @classmethod
    @asynccontextmanager
    async def open(cls, site: DemoSite) -> AsyncIterator[Self]:
        """Yield a client of *site*."""
        trust = ssl.create_default_context(cafile=str(site.authority))
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        async with httpx.AsyncClient(verify=trust, limits=limits, trust_env=False, timeout=REQUEST_LIMIT) as http:
            yield cls(http, site)

    async def get(self, path: str = "/", *, host: str = HOST, tls: bool = False) -> Answer:
        """Return the answer to one request; raises `RequestFailedError`."""
        scheme, port = ("https", self._ports.https) if tls else ("http", self._ports.http)
        try:
            answer = await self._http.get(
                f"{scheme}://{LOOPBACK}:{port}{path}",
                headers={"Host": host, "Connection": "close"},
                # Verify the certificate for the host, not for the address.
                extensions={"sni_hostname": host},
            )
        except httpx.TransportError as exc:
            raise RequestFailedError(f"{host}{path}: {type(exc).__name__}: {exc}") from exc
        return Answer(
            status=answer.status_code,
            backend=answer.headers.get(NAME_HEADER, ""),
            greeting=answer.headers.get("X-Greeting", ""),
        )

    async def wait_for(self, accept: Callable[[Answer], bool], path: str = "/", *, host: str = HOST) -> float:
        """Repeat a request until *accept* returns true for the answer; return the clock time of that."""
        while True:
            try:
                answer = await self.get(path, host=host)
            except RequestFailedError:
                # HAProxy does not listen yet.
                answer = Answer(status=0)
            if accept(answer):
                return trio.current_time()
            await trio.sleep(POLL_INTERVAL)


class Traffic:
    """Continuous requests, each on a new connection; each must get status 200."""

    def __init__(self) -> None:
        self.sent = 0
        self.failures: list[str] = []

    async def run(self, client: DemoClient) -> None:
        """Send requests until cancelled."""
        while True:
            try:
                answer = await client.get("/api")
            except RequestFailedError as exc:
                self.failures.append(str(exc))
            else:
                if answer.status != 200:
                    self.failures.append(f"status {answer.status}")
            self.sent += 1
            await trio.sleep(TRAFFIC_INTERVAL)
