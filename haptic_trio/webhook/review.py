"""AdmissionReview of admission.k8s.io/v1: decoding and encoding."""

from typing import Any, Final

import msgspec

from haptic_trio.errors import INVALID_JSON, HapticError
from haptic_trio.k8s.resource import Resource, ResourceRef, decode_tolerantly, read_float, ref_of

API_VERSION: Final = "admission.k8s.io/v1"
_KIND: Final = "AdmissionReview"
_INVALID: Final = 422
MOST_WARNINGS: Final = 10
LONGEST_WARNING: Final = 250
"""Characters; the API server truncates longer warnings, and drops all beyond 4,096."""
LONGEST_MESSAGE: Final = 4000


class ReviewError(HapticError):
    """The body is not a valid AdmissionReview; permanent."""


class ResourceId(msgspec.Struct, frozen=True):
    """Kind of the object, as in the rule of the webhook."""

    group: str = ""
    version: str = ""
    resource: str = ""

    @property
    def api_version(self) -> str:
        """Group and version, as in objects."""
        return f"{self.group}/{self.version}" if self.group else self.version


class Request(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Requested operation on one object."""

    uid: str
    resource: ResourceId
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    operation: str
    """`CREATE`, `UPDATE`, `DELETE` or `CONNECT`."""
    object: dict[str, Any] | None = None
    """The new version; None if the object would be deleted."""
    old_object: dict[str, Any] | None = None
    dry_run: bool = False
    """The API server will store nothing."""

    @property
    def subject(self) -> Resource:
        """The new version, or the present one if the object would be deleted."""
        return self.object or self.old_object or {}

    @property
    def ref(self) -> ResourceRef:
        """Identity of the object."""
        ref = ref_of(self.subject)
        # The request of a Namespace names the Namespace itself as its namespace.
        is_namespace = (self.resource.group, self.resource.resource) == ("", "namespaces")
        return ResourceRef(ref.kind, "" if is_namespace else ref.namespace or self.namespace, ref.name or self.name)


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: Request


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Verdict, with texts for the user who sent the request."""

    allowed: bool = True
    message: str = ""
    """Reason of a rejection; may have several lines."""
    warnings: tuple[str, ...] = ()


_DECODER = msgspec.json.Decoder(_Review, float_hook=read_float)


def decode_review(body: bytes | bytearray) -> Request:
    """Return the request in *body*; raises `ReviewError`."""
    try:
        review = decode_tolerantly(_DECODER.decode, body)
    except INVALID_JSON as exc:
        raise ReviewError(f"the body is not an {_KIND}: {exc}") from exc
    if (review.api_version, review.kind) != (API_VERSION, _KIND):
        raise ReviewError(f"unsupported {review.kind} of {review.api_version} (expected {_KIND} of {API_VERSION})")
    for each in (review.request.object, review.request.old_object):
        if each is not None:
            _check_identity(each)
    return review.request


def _check_identity(resource: Resource) -> None:
    metadata = resource.get("metadata", {})
    if not isinstance(metadata, dict):
        raise ReviewError("the metadata of the object is not a mapping")
    identity = (resource.get("kind", ""), metadata.get("name", ""), metadata.get("namespace", ""))
    if not all(isinstance(part, str) for part in identity):
        raise ReviewError("kind, name and namespace of the object must be strings")


def encode_answer(uid: str, answer: Answer) -> bytes:
    """Return *answer* to the request *uid* as the API server expects it."""
    response: dict[str, Any] = {"uid": uid, "allowed": answer.allowed}
    if not answer.allowed:
        message = _shortened(answer.message, LONGEST_MESSAGE)
        response["status"] = {"status": "Failure", "reason": "Invalid", "code": _INVALID, "message": message}
    if answer.warnings:
        # Each warning becomes a header: one line.
        lines = (" ".join(warning.split()) for warning in answer.warnings[:MOST_WARNINGS])
        response["warnings"] = [_shortened(line, LONGEST_WARNING) for line in lines]
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": _KIND, "response": response})


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
