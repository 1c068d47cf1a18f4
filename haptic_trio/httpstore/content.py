"""Result of a fetch: a content or a failure."""

import hashlib
from typing import Protocol, TypeAlias

import msgspec

from haptic_trio.errors import HapticError
from haptic_trio.httpstore.request import FetchRequest
from haptic_trio.templating.values.faults import TemplateFaultError


class Content(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A text from a server. Compared by identity: the same text from a later fetch is another content."""

    text: str
    digest: str
    size: int
    """UTF-8 bytes."""
    etag: str = ""
    last_modified: str = ""

    @classmethod
    def of(cls, text: str, *, etag: str = "", last_modified: str = "") -> "Content":
        """Return *text* with what the server said to recognise it by."""
        encoded = text.encode()
        digest = hashlib.blake2b(encoded, digest_size=16).hexdigest()
        return cls(text=text, digest=digest, size=len(encoded), etag=etag, last_modified=last_modified)

    def __repr__(self) -> str:
        # It may have taken credentials to get it.
        return f"Content({self.size} bytes, digest {self.digest})"


class Failure(msgspec.Struct, frozen=True):
    """Why there is no content."""

    reason: str
    hint: str = ""
    is_fault: bool = False
    """The fetch fails for its caller, even if the content is not critical."""


class FetchError(HapticError):
    """A fetch gave no content; `may_retry` says whether trying again soon helps. Names no credentials."""

    def __init__(self, reason: str, hint: str = "", *, may_retry: bool = False) -> None:
        self.reason = reason
        self.hint = hint
        self.may_retry = may_retry
        super().__init__(reason)


class ContentMissingError(TemplateFaultError):
    """A template needs a content that is not to be had; trying again helps once it can be fetched."""


Offer: TypeAlias = Content | Failure | None
"""None: it has not been tried yet."""


class Offers(Protocol):
    """Contents and failures that templates get for their fetches, at one moment; thread-safe."""

    def find(self, request: FetchRequest) -> Offer:
        """Return what there is for *request*; the same object for as long as it has not changed."""
        ...
