"""Lazy proxies for on-demand objects: the identity is known at once, the content after a fetch.

A fragment that uses more of such an object than its identity fails, and the
object is recorded. The caller of the render fetches all recorded objects and
renders the failed fragments again, until none fails for this reason; only
that result is used, so it is the same as if all objects had been present.
"""

from collections.abc import Iterator, Mapping, Sequence
from sys import intern
from typing import Any, Final, Protocol

from haptic_trio.templating.incremental.questions import Question
from haptic_trio.templating.incremental.recorder import CURRENT, Recorder
from haptic_trio.templating.values.faults import ContentUnavailableError


class NotFetchedError(ContentUnavailableError):
    """The content of an object has not been fetched; trying again helps once it has been.

    A render requests it; other callers may request it from the object's keeper.
    """

    def __init__(self, deferred: "Deferred") -> None:
        self.deferred = deferred
        super().__init__(f"{deferred!r} has not been fetched")


class Keeper(Protocol):
    """Source of the content of on-demand objects."""

    @property
    def name(self) -> str:
        """The name under which templates know the objects, such as `secrets`."""
        ...

    def content_of(self, deferred: "Deferred") -> Mapping[str, Any] | None:
        """Return the whole object of *deferred*; None if it has to be fetched.

        Raises a `ContentUnavailableError` if a fetch has failed.
        """
        ...

    def want(self, deferred: "Deferred") -> bool:
        """Request a fetch of *deferred*, unless it is present or has failed; False if this adds no request."""
        ...

    def get(self, *keys: str) -> Sequence[Any]:
        """Return the objects found under *keys*."""
        ...


class Deferred(Mapping[str, Any]):
    """One version of an object. Reads as the object itself; its resourceVersion is that of the identity.

    Raises `ContentUnavailableError` on access to more than apiVersion, kind
    and the metadata kept here if the content is absent.
    """

    __slots__ = ("api_version", "created", "keeper", "kind", "name", "namespace", "uid", "version")

    def __init__(self, keeper: Keeper, identity: Mapping[str, Any], version: str) -> None:
        """Copy the kept fields of *identity*, which is a whole object or a part of it."""
        metadata = identity.get("metadata") or {}
        self.keeper = keeper
        # Many objects share these strings.
        self.api_version = intern(str(identity.get("apiVersion") or ""))
        self.kind = intern(str(identity.get("kind") or ""))
        self.namespace = intern(str(metadata.get("namespace") or ""))
        self.name = str(metadata.get("name") or "")
        self.uid = str(metadata.get("uid") or "")
        self.created = str(metadata.get("creationTimestamp") or "")
        self.version = version

    @property
    def question(self) -> Question:
        """The question of a rendering that needs its content."""
        return "object", self.keeper.name, self.namespace, self.name, self.kind

    def content(self) -> Mapping[str, Any]:
        """Return the whole object as it was fetched, or raise `ContentUnavailableError`."""
        try:
            found = self.keeper.content_of(self)
        except ContentUnavailableError:
            if (run := CURRENT.get(None)) is not None:
                run.need(self.question, is_failing=True)
            raise
        if found is None:
            if (run := CURRENT.get(None)) is not None:
                run.need(self.question, is_failing=False)
                self._want(run)
            raise NotFetchedError(self)
        return found

    def _want(self, run: Recorder) -> None:
        if not self.keeper.want(self):
            return
        # Objects that one lookup returned are likely to be used together: fetch them concurrently. In fragments this is
        # not likely for lists of all objects.
        answers = (
            self.keeper.get(*question[2:])
            for question in run.trace.asked
            if isinstance(question, tuple)
            and question[:2] == ("get", self.keeper.name)
            and (len(question) > 2 or not run.subjects)
        )
        together = [found for found in answers if any(other is self for other in found)]
        for other in min(together, key=len, default=()):
            self.keeper.want(other)

    def __getitem__(self, key: str) -> Any:
        match key:
            case "metadata":
                return _Metadata(self)
            case "kind":
                return self.kind
            case "apiVersion":
                return self.api_version
        return self.content()[key]

    def __contains__(self, key: object) -> bool:
        return key in _TOP or key in self.content()

    def __iter__(self) -> Iterator[str]:
        return iter(self.content())

    def __len__(self) -> int:
        return len(self.content())

    def __bool__(self) -> bool:
        # Otherwise a test for existence would fetch it.
        return True

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Deferred):
            return self is other or (self.question, self.version) == (other.question, other.version)
        return dict(self) == other if isinstance(other, Mapping) else NotImplemented

    # As a dict.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        # Its content may be that of a Secret.
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class KeyedObject(Deferred):
    """A deferred object with the keys that an on-demand store finds it under."""

    __slots__ = ("digest", "prefixes")

    digest: bytes | None
    """Digest of the content; None if only metadata was received."""
    prefixes: tuple[tuple[str, ...], ...]


_TOP: Final = frozenset({"apiVersion", "kind", "metadata"})
_KEPT: Final[Mapping[str, str]] = {
    "name": "name",
    "namespace": "namespace",
    "uid": "uid",
    "creationTimestamp": "created",
    "resourceVersion": "version",
}
"""The fields of `metadata` that are here if the object has them, and where."""


class _Metadata(Mapping[str, Any]):
    """The metadata of a deferred object."""

    __slots__ = ("_owner",)

    def __init__(self, owner: Deferred) -> None:
        self._owner = owner

    def _kept(self, key: object) -> str:
        return getattr(self._owner, _KEPT[key]) if key in _KEPT else ""  # type: ignore[index]

    def _content(self) -> Mapping[str, Any]:
        return self._owner.content().get("metadata") or {}

    def __getitem__(self, key: str) -> Any:
        if key not in _KEPT:
            return self._content()[key]
        if kept := self._kept(key):
            return kept
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return bool(self._kept(key)) if key in _KEPT else key in self._content()

    def __iter__(self) -> Iterator[str]:
        return (key for key in self._content() if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _Metadata) and self._owner == other._owner:
            return True
        return dict(self) == other if isinstance(other, Mapping) else NotImplemented

    # As a dict.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"metadata of {self._owner!r}"
