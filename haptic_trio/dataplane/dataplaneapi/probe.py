"""Probe of an address: the versions of the Data Plane API and of the HAProxy beside it."""

import msgspec

from haptic_trio.dataplane.binary import NEWEST, OLDEST, read_version
from haptic_trio.dataplane.dataplaneapi.client import ApiClient, ApiStatusError, ApiUnsupportedError
from haptic_trio.dataplane.endpoint import EndpointUnreachableError


class ApiProbe(msgspec.Struct, frozen=True, kw_only=True):
    """Versions and process behind a Data Plane API."""

    api_version: str
    """As reported by the API; a private build may report only `dev.dirty`."""
    haproxy_version: str
    """Such as `2.8.25-5cf5d0683`."""
    pid: int
    """Process id of HAProxy's worker."""

    @property
    def is_newer_than_known(self) -> bool:
        """Whether HAProxy is newer than the newest supported version."""
        version = read_version(self.haproxy_version)
        return version is not None and version > NEWEST


class _Api(msgspec.Struct):
    version: str = ""


class _Info(msgspec.Struct):
    api: _Api


class _Process(msgspec.Struct):
    version: str = ""
    pid: int = 0


class _ProcessInfo(msgspec.Struct):
    info: _Process | None = None
    error: str = ""


async def probe_api(api: ApiClient) -> ApiProbe:
    """Read the versions of *api* and its HAProxy.

    Raises ApiUnsupportedError if the server is not a Data Plane API v3 or
    HAProxy is older than 2.8, EndpointUnreachableError if the API does not
    reach its HAProxy, and other EndpointErrors as `ApiClient` does.
    """
    try:
        info = await api.get_as(_Info, "/info")
        answer = await api.get_as(_ProcessInfo, "runtime/info")
    except ApiStatusError as exc:
        if exc.status == 404:
            message = "the server is not a Data Plane API v3; install version 3.0 of the Data Plane API or later"
            raise ApiUnsupportedError(api.endpoint, message) from exc
        raise
    process = answer.info
    if process is None:
        raise EndpointUnreachableError(api.endpoint, f"the API does not reach HAProxy: {answer.error}")
    version = read_version(process.version)
    if version is None or version < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ApiUnsupportedError(api.endpoint, f"HAProxy '{process.version}' is not supported, {oldest} or later is")
    return ApiProbe(api_version=info.api.version.strip(), haproxy_version=process.version, pid=process.pid)
