"""Errors of an API server."""

from collections.abc import Mapping
from typing import Final

import msgspec

from haptic_trio.errors import INVALID_JSON, HapticError
from haptic_trio.k8s.resource import ResourceType


class CredentialsError(HapticError):
    """No usable credentials were found; trying again helps once the file in the message is corrected."""


class ApiError(HapticError):
    """A request to the API server failed; each subclass says whether trying again helps."""

    def __init__(
        self, what: str, message: str, *, status: int = 0, reason: str = "", retry_after: float | None = None
    ) -> None:
        self.what = what
        """The operation, such as `list ingresses.networking.k8s.io/v1`."""
        self.message = message
        self.status = status
        """The HTTP status; 0 without a response."""
        self.reason = reason
        """The reason in the API's status, such as `AlreadyExists`."""
        self.retry_after = retry_after
        """Seconds after which the server accepts a retry; None if it sent none."""
        self.where = ""
        """Address of the server and source of the credentials; empty without a connection."""
        super().__init__(f"{what}: {message}")

    @property
    def hint(self) -> str:
        """The fix; may be empty."""
        return ""


class UnreachableError(ApiError):
    """No response, or an incomplete one; trying again helps when the server or the network is back."""

    hint = "is the API server running, and is the address in the credentials right?"


class UnauthorizedError(ApiError):
    """The server rejected the credentials, and fresh ones too; trying again helps when there are new ones."""

    hint = "the token or the client certificate may have expired: compare with `kubectl auth whoami`"


class ForbiddenError(ApiError):
    """The role of this user does not allow it; trying again helps once it has been granted."""

    hint = "grant it in a Role or ClusterRole of this user, or use other credentials"


class MissingError(ApiError):
    """The object or its kind does not exist; trying again helps once it has been created."""


class ConflictError(ApiError):
    """Another client has changed the object or owns the field; read the object again before a retry."""


class AlreadyExistsError(ConflictError):
    """An object of that name exists; trying again helps once it is deleted."""


class ExpiredError(ApiError):
    """The requested version has expired; a new list is needed."""


class InvalidError(ApiError):
    """The server does not accept the request; the same request will fail again."""


class ThrottledError(ApiError):
    """The server limits the rate of requests; trying again helps after `retry_after`."""


class ServerFailedError(ApiError):
    """The server failed, or something in front of it; trying again helps later."""


class AbsentKindError(HapticError):
    """The API server does not serve this kind (yet); trying again helps once its CRD is installed."""

    def __init__(self, resource_type: ResourceType, similar: tuple[str, ...] = ()) -> None:
        self.type = resource_type
        self.similar = similar
        """Similar plurals of the same group and version."""
        super().__init__(f"the API server does not serve {resource_type}")

    @property
    def hint(self) -> str:
        """The fix."""
        if self.similar:
            return f"is one of these meant: {', '.join(self.similar)}?"
        return "install its CustomResourceDefinition, or remove it from watchedResources; until then it counts as empty"


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    code: int = 0


_STATUS: Final = msgspec.json.Decoder(_Status)
_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: InvalidError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: MissingError,
    405: InvalidError,
    409: ConflictError,
    410: ExpiredError,
    415: InvalidError,
    422: InvalidError,
    429: ThrottledError,
}


def error_of(what: str, status: int, body: bytes, retry_after: str = "") -> ApiError:
    """Return the error for a response.

    *status* 0 takes the code from *body*, as for an ERROR event of a watch.
    *retry_after* is the header of that name; only seconds are understood.
    """
    try:
        status_object = _STATUS.decode(body)
    except INVALID_JSON:
        status_object = _Status(message=" ".join(body[:200].decode(errors="replace").split()))
    status = status or status_object.code
    kind = _BY_STATUS.get(status, ServerFailedError if status >= 500 else ApiError)
    if status_object.reason == "AlreadyExists":
        kind = AlreadyExistsError
    elif status_object.reason == "Expired":
        kind = ExpiredError
    seconds = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    message = status_object.message or status_object.reason or "no reason given"
    return kind(what, f"{status} {message}", status=status, reason=status_object.reason, retry_after=seconds)
