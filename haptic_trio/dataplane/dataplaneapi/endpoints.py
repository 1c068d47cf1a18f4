"""Endpoints of a fixed list of Data Plane APIs, each with a follower."""

import ssl
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import NoReturn

import httpx
import msgspec
import trio

from haptic_trio.dataplane.dataplaneapi.client import CredentialSource, open_api_client
from haptic_trio.dataplane.dataplaneapi.endpoint import DataplaneApiEndpoint
from haptic_trio.dataplane.dataplaneapi.follower import follow_api
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.dataplane.presence import FixedEndpoints, Presence, Renewal, Report
from haptic_trio.errors import HapticError
from haptic_trio.logs import get_logger


class AuthoritiesError(HapticError):
    """The file of CA certificates cannot be read or used; a retry helps once the file is repaired."""


class ApiAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Address of a Data Plane API."""

    name: str
    """The name of the endpoint."""
    url: str
    """Scheme, host and port."""


class RemoteApis:
    """The APIs at *addresses*; each request uses the credentials that *credentials* returns at that moment.

    HTTPS certificates are verified with *authorities* (a file of CA
    certificates) or with those of the system. *report* is called with the
    problems of each API, such as that it does not answer. Raises
    AuthoritiesError; reads the file, which blocks.
    """

    def __init__(
        self,
        addresses: Sequence[ApiAddress],
        credentials: CredentialSource,
        authorities: Path | None = None,
        *,
        report: Report,
    ) -> None:
        self._addresses = tuple(addresses)
        self._credentials = credentials
        self._report = report
        try:
            self._context = ssl.create_default_context(cafile=authorities)
        except OSError as exc:
            raise AuthoritiesError(f"{authorities}: {exc.strerror or exc}") from exc
        self._log = get_logger("dataplaneapi")

    async def run(
        self,
        publish: Callable[[tuple[Endpoint, ...]], None],
        *,
        task_status: trio.TaskStatus[tuple[Endpoint, ...]] = trio.TASK_STATUS_IGNORED,
    ) -> NoReturn:
        """Follow all APIs until cancelled; call *publish* with all endpoints whenever one was renewed.

        started() passes all endpoints, whether they answer or not. See `follow_api` for what renews one.
        """
        async with AsyncExitStack() as stack:
            apis = []
            for address in self._addresses:
                if not _is_private(address.url):
                    self._log.warning("the password goes over plain http", endpoint=address.name)
                apis.append(
                    await stack.enter_async_context(
                        open_api_client(address.name, address.url, self._credentials, verify=self._context)
                    )
                )
            endpoints = FixedEndpoints(map(DataplaneApiEndpoint, apis), publish)
            async with trio.open_nursery() as nursery:
                for api in apis:
                    presence = Presence(f"Data Plane API {api.endpoint}", endpoints.renew, self._report)
                    nursery.start_soon(partial(follow_api, api, presence, Renewal(), is_published=True))
                task_status.started(endpoints.present)
        raise AssertionError("the tasks end by an exception")


def _is_private(url: str) -> bool:
    """Whether requests to *url* are encrypted or stay on this machine."""
    parsed = httpx.URL(url)
    return parsed.scheme == "https" or parsed.host in {"localhost", "::1"} or parsed.host.startswith("127.")
