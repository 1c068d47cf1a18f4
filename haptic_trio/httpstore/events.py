"""Events of the HTTP content store; `messages` has them as messages of the program."""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from haptic_trio.errors import Problem


class HttpFetched(msgspec.Struct, frozen=True, kw_only=True):
    """A fetch of a content for templates has ended."""

    url: str
    """Without query and credentials."""
    outcome: str
    """`changed`, `unchanged` or `failed`; the reason of a failure is reported as a problem."""
    seconds: float
    bytes: int = 0


class HttpContentChanged(msgspec.Struct, frozen=True, kw_only=True):
    """Fetched contents changed. They are pending until a configuration with them is valid."""

    urls: tuple[str, ...]


class HttpContentAccepted(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration with a fetched content is valid."""

    url: str
    digest: str
    bytes: int


class HttpContentRejected(msgspec.Struct, frozen=True, kw_only=True):
    """No configuration with a fetched content is valid; the content is not used until it changes."""

    url: str
    digest: str
    problem: Problem
    has_former: bool
    """The last accepted content stays in use; False: there is none."""


class FetchProblem(msgspec.Struct, frozen=True):
    """The problem of fetches from a URL; None when it is resolved."""

    url: str
    problem: Problem | None


ContentEvent: TypeAlias = HttpFetched | HttpContentAccepted | HttpContentRejected | FetchProblem
Report: TypeAlias = Callable[[ContentEvent], None]
