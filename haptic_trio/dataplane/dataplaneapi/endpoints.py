"""Followers of a fixed list of Data Plane APIs; one that answers again becomes a new endpoint."""

import random
import ssl
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NoReturn

import httpx
import msgspec
import trio

from haptic_trio.backoff import Backoff
from haptic_trio.dataplane.dataplaneapi.client import ApiClient, CredentialSource, open_api_client
from haptic_trio.dataplane.dataplaneapi.endpoint import DataplaneApiEndpoint
from haptic_trio.dataplane.dataplaneapi.probe import probe_api
from haptic_trio.dataplane.endpoint import EndpointError
from haptic_trio.errors import HapticError
from haptic_trio.logs import get_logger

PROBE_INTERVAL: Final = 10.0
"""Seconds between two looks at an API, which tells nothing of itself."""
FIRST_DELAY: Final = 0.1
LONGEST_DELAY: Final = 5.0
"""Seconds before one that did not answer is asked again: doubled from the first to the longest."""

Publish = Callable[[tuple[DataplaneApiEndpoint, ...]], None]


class AuthoritiesError(HapticError):
    """The file of authorities cannot be used; trying again helps once it has been mended."""


class ApiAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a Data Plane API answers."""

    name: str
    """The name of the endpoint."""
    url: str
    """Scheme, host and port."""


class RemoteApis:
    """The APIs at *addresses*; each request goes with what *credentials* gives at that moment.

    Over HTTPS they are trusted by *authorities*, a file, or by those of the
    system. Raises AuthoritiesError, and blocks on the disk.
    """

    def __init__(
        self, addresses: Sequence[ApiAddress], credentials: CredentialSource, authorities: Path | None = None
    ) -> None:
        self._addresses = tuple(addresses)
        self._credentials = credentials
        try:
            self._context = ssl.create_default_context(cafile=authorities)
        except OSError as exc:
            raise AuthoritiesError(f"{authorities}: {exc.strerror or exc}") from exc
        self._log = get_logger("dataplaneapi")

    async def run(
        self,
        publish: Publish,
        *,
        task_status: trio.TaskStatus[Sequence[DataplaneApiEndpoint]] = trio.TASK_STATUS_IGNORED,
    ) -> NoReturn:
        """Follow all APIs until cancelled; started() gives their endpoints, whether they answer or not.

        *publish* gets all endpoints whenever one has come back: that one is
        a new object then, which is what tells deployment to look at it
        again, outside every interval.
        """
        async with AsyncExitStack() as stack:
            endpoints: dict[str, DataplaneApiEndpoint] = {}

            def renew(api: ApiClient) -> None:
                endpoints[api.endpoint] = DataplaneApiEndpoint(api)
                publish(tuple(endpoints.values()))

            apis = []
            for address in self._addresses:
                if not _is_private(address.url):
                    self._log.warning("the password goes over plain http", endpoint=address.name)
                api = await stack.enter_async_context(
                    open_api_client(address.name, address.url, self._credentials, verify=self._context)
                )
                endpoints[address.name] = DataplaneApiEndpoint(api)
                apis.append(api)
            async with trio.open_nursery() as nursery:
                for api in apis:
                    nursery.start_soon(self._follow, api, renew)
                task_status.started(tuple(endpoints.values()))
        raise AssertionError("the tasks end by an exception")

    async def _follow(self, api: ApiClient, renew: Callable[[ApiClient], None]) -> NoReturn:
        was_away, reported = False, ""
        backoff = Backoff(base=FIRST_DELAY, limit=LONGEST_DELAY)
        while True:
            try:
                probe = await probe_api(api)
            except EndpointError as exc:
                was_away = True
                if str(exc) != reported:
                    reported = str(exc)
                    self._log.warning("data plane api does not answer", endpoint=api.endpoint, error=reported)
                wait = backoff.next()
            else:
                if probe.haproxy_version != reported:
                    reported = probe.haproxy_version
                    self._log.info(
                        "data plane api answers", endpoint=api.endpoint, haproxy=reported, api=probe.api_version
                    )
                # What was meant for it while it was away has failed, and may wait long until it is tried again.
                if was_away:
                    renew(api)
                was_away = False
                backoff.reset()
                wait = PROBE_INTERVAL * random.uniform(0.5, 1.0)  # noqa: S311 - not for secrets
            await trio.sleep(wait)


def _is_private(url: str) -> bool:
    """Whether nobody on the way can read what is sent to *url*."""
    parsed = httpx.URL(url)
    return parsed.scheme == "https" or parsed.host in {"localhost", "::1"} or parsed.host.startswith("127.")
