"""Outputs of fragments, kept as the fallback for an object that breaks later."""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from haptic_trio.errors import Problem
from haptic_trio.templating.incremental.questions import Question
from haptic_trio.templating.values.costs import SYSTEM_AUTHORITIES, weight_of_tls_server
from haptic_trio.templating.values.marks import split_marks, strip_marks
from haptic_trio.templating.values.paths import RenderedFile
from haptic_trio.templating.values.subjects import Concern, FragmentKey, Origin, is_same_object, size_of, uid_of

OTHERWISE: Final = "\0"
"""Separator between a guard and those that a former version may have instead."""
_TABLE: Final = re.compile(r"\n    stick-table [^\n]*?\bsize ([0-9]+)([kKmMgG]?)")
_TLS_SERVER: Final = re.compile(r"\n    server [^\n]*? ssl(?![^ \n])([^\n]*)")
_RULES: Final = ("\n    http-request ", "\n    http-response ", "\n    http-after-response ", "\n    tcp-request ")
_SMALL_BACKEND: Final = 1_000
_SQUARED_SERVERS: Final = 8_000
"""A backend of so many servers counts as twice as many, one of 20,000 as 70,000."""
_SHIFT: Final = {"": 0, "k": 10, "m": 20, "g": 30}


T = TypeVar("T")
Condition: TypeAlias = Callable[[Any, str], str | None]
"""Returns the text of a former output as it may be used, for the lookups of a render (`resources` of templates) and the
former text; None if it may not."""
EMPTY: Final[frozenset[Any]] = frozenset()


def frozen(values: Collection[T]) -> frozenset[T]:
    """Return a set of *values*; all empty ones are one object. Most sets of a fragment are empty, at 216 bytes each."""
    return frozenset(values) if values else EMPTY


class Fallback(Enum):
    """Output of the fragments of a quarantined object."""

    PREPARED = "prepared"
    """Their newest outputs that passed phase 1, checked by phase 2 or not."""
    VALID = "valid"
    """Their outputs in the last configuration that was valid."""
    CLOSED = "closed"
    """No output, or the text for a rejected object."""


class FragmentOutput(msgspec.Struct, frozen=True):
    """Text and files of a fragment for one version of its object."""

    text: str
    files: tuple[RenderedFile, ...]
    version: str
    """resourceVersion of the object."""
    is_closing: bool = False
    """The text is that for a rejected object: never a good output."""
    resource: Any = None
    """The object in that version."""
    guards: frozenset[str] = frozenset()
    """Guards of access to it, as the template names them with `guarded`; alternatives follow `OTHERWISE`."""
    endpoints: tuple[Question, ...] = ()
    """The lookups of EndpointSlices that it was made from."""
    permits: tuple[tuple[str, Any], ...] = ()
    """Settings that permit it, each with its value, as the template names them with `permitted_by`."""
    conditions: tuple[Condition, ...] = ()
    """Conditions for its use as a fallback that is not rendered again."""
    rounds: int = 0
    """Rounds of all its password hashes: HAProxy computes each whenever it reads a configuration."""
    certificates: int = 0
    """See `Costs.certificates`."""
    authorities: int = 0
    """See `Costs.authorities`."""
    is_secret: bool = False
    """It may contain data of a Secret: the fragment looked one up."""
    own_text: str | None = None
    """The text without that of fragments inside for other objects, which limits count for these; None: all of it."""
    inner_files: frozenset[str] = frozenset()
    """Paths of the files of those fragments."""
    found_files: tuple[RenderedFile, ...] = ()
    """Files that it uses as well, and that others had registered: they may be gone when it is used as a fallback."""
    has_inner: bool = False
    """Fragments for other objects are inside."""
    original: "FragmentOutput | None" = None
    """The former output that this one is a revision of."""
    is_renewed: bool = False
    """It was made by rendering a former version of the object again."""

    def __repr__(self) -> str:
        # The text and the files may hold a private key.
        return f"FragmentOutput({self.digest()[:12]}, {len(self.files)} files)"

    def counted_whole(self, former: "FragmentOutput | None") -> "FragmentOutput":
        """Return this output as one that counts for its object as a whole; *former* itself if it is that already.

        As a fallback it is output without the fragments inside, whose outputs would count otherwise.
        """
        if self.own_text is None:
            return self
        # The same output in each render, so that nothing counts as changed.
        if former is not None and former.own_text is None and former.text is self.text and former.files is self.files:
            return former
        return msgspec.structs.replace(self, own_text=None, inner_files=frozenset(), original=self.original or self)

    def equals(self, other: "FragmentOutput") -> bool:
        """Whether this output and *other* are revisions of one good output, count as a whole, and have one content.

        They also have the same guards, which may change without the text.
        """
        is_of_one = self.original is not None and self.original is other.original and self.own_text is None
        return is_of_one and self.guards == other.guards and self._has_content_of(other)

    def _has_content_of(self, other: "FragmentOutput") -> bool:
        return self.text == other.text and _contents(self) == _contents(other)

    def as_good(self) -> "FragmentOutput":
        """Return what is the good output once this one is valid.

        A version that has been rendered again never returns to what it gave before. Other revisions change no good
        output: what they leave out may be permitted again.
        """
        if self.original is None:
            return self
        if not self.is_renewed or self._has_content_of(self.original):
            return self.original
        return msgspec.structs.replace(self, original=None)

    @property
    def is_blank(self) -> bool:
        """Whether it outputs nothing."""
        return not (self.files or self.text.strip())

    @property
    def used_files(self) -> tuple[RenderedFile, ...]:
        """All files that it needs, of which others may register some."""
        return (*self.files, *self.found_files) if self.found_files else self.files

    @property
    def counted_text(self) -> str:
        """The text that counts for the object and its namespace."""
        return self.text if self.own_text is None else self.own_text

    @property
    def size(self) -> int:
        """UTF-8 bytes of the counted text and the object's own files."""
        files = (file for file in self.files if file.path not in self.inner_files)
        return size_of(self.counted_text) + sum(size_of(file.text) for file in files)

    @property
    def servers(self) -> int:
        """Lines of servers in the counted text, for each of which HAProxy keeps 4 to 6 KiB; more with more threads.

        A server with TLS counts as ten, or more with many CA certificates:
        HAProxy makes a TLS context for each. Servers of a large backend count
        as more: HAProxy 2.8 takes quadratic time for them.
        """
        text = self.counted_text
        lines = text.count("\n    server ")
        if lines > _SMALL_BACKEND:
            lines += sum(size * size // _SQUARED_SERVERS for size in _backend_sizes(text))
        if " ssl" not in text:
            return lines
        return lines + sum(self._weight_of(line) - 1 for line in _TLS_SERVER.findall(text))

    def _weight_of(self, options: str) -> int:
        if " ca-file " not in options:
            return weight_of_tls_server(0)
        return weight_of_tls_server(SYSTEM_AUTHORITIES if " ca-file @system-ca" in options else self.authorities)

    @property
    def largest_backend(self) -> int:
        """Servers of the section that has most."""
        return max(_backend_sizes(self.text))

    @property
    def rules(self) -> int:
        """Rules of the section that has most: lines that HAProxy runs for each request or response."""
        return max(map(_count_rules, self.text.split("\nbackend "))) if _count_rules(self.text) else 0

    @property
    def table_entries(self) -> int:
        """Entries of stick tables in the counted text, if clients fill them: HAProxy keeps about 250 bytes for each."""
        text = self.counted_text
        if "\n    stick-table " not in text:
            return 0
        return sum(int(number) << _SHIFT[unit.lower()] for number, unit in _TABLE.findall(text))

    @property
    def edition(self) -> str:
        """Key of all outputs for this version of the object, where a digest is the key of one output."""
        return f"version {self.version}"

    def digest(self) -> str:
        """Return the hash of the text and all files that it needs, whichever object has registered them."""
        digest = hashlib.blake2b(self.text.encode(errors="surrogatepass"), digest_size=20)
        for file in sorted(self.used_files, key=attrgetter("path")):
            digest.update(f"\0{file.path}\0{file.text}".encode(errors="surrogatepass"))
        return digest.hexdigest()


def own_part(
    origin: Origin, text: str, files: tuple[RenderedFile, ...], origins: Mapping[int, Origin]
) -> tuple[str | None, frozenset[str]]:
    """Return `FragmentOutput.own_text` and `inner_files` of a body of *origin* that has made *text* and *files*.

    *origins* are those that the marks in *text* name.
    """

    def is_own(made: Origin | None) -> bool:
        return made is None or is_same_object(made.subject, origin.subject)

    inner = frozen([one.path for one in files if not any(is_own(piece.origin) for piece in one.content.pieces)])
    if text.isascii():
        return (text if inner else None), inner
    pieces = split_marks(text, origins)
    own = [piece.text for piece in pieces if is_own(piece.origin)]
    return (strip_marks("".join(own)) if inner or len(own) < len(pieces) else None), inner


def _contents(output: FragmentOutput) -> list[tuple[str, str]]:
    return [(file.path, file.text) for file in output.files]


def _backend_sizes(text: str) -> list[int]:
    return [section.count("\n    server ") for section in text.split("\nbackend ")]


def _count_rules(text: str) -> int:
    return sum(map(text.count, _RULES))


class Earlier(NamedTuple):
    """Earlier outputs of a fragment whose own output is not used."""

    prepared: FragmentOutput | None
    valid: FragmentOutput | None
    uid: str = ""
    """Of the object now; empty if outputs of any object of that name may be used."""

    def is_of_another(self, output: FragmentOutput | None) -> bool:
        """Whether *output* is that of an object that is deleted and had the same name."""
        former = uid_of(output.resource) if output is not None and self.uid else ""
        return bool(former) and former != self.uid

    def differs(self, recall: "Recall", key: FragmentKey) -> bool:
        """Whether *recall* has others of the fragment *key*."""
        return recall.prepared(key) is not self.prepared or recall.valid.get(key) is not self.valid


class BodyResult(NamedTuple):
    """Result of a fragment's body: its output, or the problem."""

    text: str
    output: FragmentOutput | None
    problem: Problem | None
    concerns: list[Concern]
    """Warnings for the case that the output is not used."""
    guards: frozenset[str]
    """See `FragmentOutput.guards`."""
    reason: str = ""
    """The problem for owners of other objects, without values."""
    is_limit: bool = False
    """The problem is a limit that was reached."""
    is_clash: bool = False
    """The problem is a file that another object may register with another content."""
    asks_rejected: bool = False
    """The body has asked whether its object is rejected: only then can it have a text for that."""
    ordinals: tuple[tuple[Any, int], ...] = ()
    """See `Trace.ordinals`; of fragments inside."""


class Paused(msgspec.Struct, frozen=True):
    """Objects of which nothing new is used for some time, with the reason."""

    objects: Mapping[tuple[str, ...], Problem] = MappingProxyType({})
    """By kind, namespace and name."""
    namespaces: Mapping[str, Problem] = MappingProxyType({})

    def __bool__(self) -> bool:
        return bool(self.objects) or bool(self.namespaces)

    def problem_of(self, key: FragmentKey) -> Problem | None:
        """Return why the object of the fragment *key* is among them; None if it is not."""
        return self.objects.get((key.kind, key.namespace, key.name)) or self.namespaces.get(key.namespace)


class Recall(msgspec.Struct, frozen=True):
    """Results of earlier renders that a run needs."""

    valid: Mapping[FragmentKey, FragmentOutput] = MappingProxyType({})
    """The newest output of each fragment that was part of a valid configuration."""
    blocked: Mapping[FragmentKey, Mapping[str, Problem]] = MappingProxyType({})
    """Outputs, by digest or edition, that HAProxy rejects, with the reason; they count as failed."""
    omitted: Mapping[FragmentKey, Problem] = MappingProxyType({})
    """Fragments that count as failed whatever their output is, with the reason; others of their objects do not."""
    newer: Mapping[FragmentKey, FragmentOutput | None] = MappingProxyType({})
    """Outputs newer than `valid` that passed phase 1 and wait for phase 2; may be deployed. None: removed."""
    paused: Paused = Paused()
    """Objects whose fragments count as failed where they give something else than their good output."""
    outdated: Mapping[FragmentKey, FragmentOutput] = MappingProxyType({})
    """Outputs in `valid` that were made with other settings."""

    def prepared(self, key: FragmentKey) -> FragmentOutput | None:
        """Return the newest output of the fragment that passed phase 1 and that phase 2 has not rejected."""
        newer = self.newer.get(key)
        is_used = newer is not None and not newer.is_closing and self.paused.problem_of(key) is None
        return newer if is_used else self.valid.get(key)

    def problem_with(self, key: FragmentKey, output: FragmentOutput, *, is_closing: bool = False) -> Problem | None:
        """Return why the new *output* of the fragment counts as failed; None if it does not.

        A paused object is closed all the same: its paths would be open.
        """
        if (known := self.verdict_on(key, output)) is not None or is_closing:
            return known
        paused = self.paused.problem_of(key)
        return paused if paused is not None and not self._is_harmless(key, output) else None

    def verdict_on(self, key: FragmentKey, output: FragmentOutput) -> Problem | None:
        """Return why HAProxy rejects *output* of the fragment, or its object in that version; None if it does not."""
        blocked = self.blocked.get(key)
        return (blocked.get(output.digest()) or blocked.get(output.edition)) if blocked else None

    def is_outdated(self, key: FragmentKey, output: FragmentOutput) -> bool:
        """Whether *output*, a good one or a revision of it, was made with other settings."""
        return bool(self.outdated) and self.outdated.get(key) is (output.original or output)

    def _is_harmless(self, key: FragmentKey, output: FragmentOutput) -> bool:
        good = self.valid.get(key)
        return output.is_blank or (good is not None and good.digest() == output.digest())

    def are_usable(
        self, outputs: Mapping[FragmentKey, FragmentOutput], now: Iterable[FragmentOutput], demands: Iterable[str]
    ) -> bool:
        """Whether *outputs*, earlier ones of an object, may be used: HAProxy rejects none, and any was served.

        *now* are the outputs of the same version at present, and have all guards *demands*.
        """
        if any(self.is_blocked(key, output) for key, output in outputs.items()):
            return False
        guards = {guard.partition(OTHERWISE)[0] for output in now for guard in output.guards}
        if any(guards.isdisjoint(demand.split(OTHERWISE)) for demand in demands):
            return False
        # Without output the object was not served: it had another class then, for example. A version that has been
        # served, and has nothing at present, may have an output again.
        return any(output.is_renewed or not output.is_blank for output in outputs.values())

    def is_blocked(self, key: FragmentKey, output: FragmentOutput) -> bool:
        """Whether HAProxy rejects *output*, an earlier output of the fragment."""
        blocked = self.blocked.get(key)
        return bool(blocked) and output.digest() in blocked  # type: ignore[operator]
