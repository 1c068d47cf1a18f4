"""Admission reviews with limits; the webhook fails open.

An object that cannot be reviewed is accepted with a warning. If it cannot be
served, the pipeline quarantines it.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache, partial
from typing import Final, Protocol

import msgspec
import trio

from haptic_trio.k8s.resource import Resource
from haptic_trio.logs import get_logger
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.review.dry_run import DryRun
from haptic_trio.pipeline.review.dry_run_object import DryRunError, Replacements
from haptic_trio.templating.field_paths import name_fields
from haptic_trio.webhook.configuration import ConfigurationReviews
from haptic_trio.webhook.hidden import MOST_WORDS, hidden_in
from haptic_trio.webhook.metrics import ALLOWED, FOREIGN, REJECTED, UNCHECKED, WebhookMetrics
from haptic_trio.webhook.review import Answer, Request
from haptic_trio.webhook.targets import Target, find_replacements
from haptic_trio.webhook.verdict import judge

_WITHHELD: Final = "<not shown: the Secrets of the namespace are too many or too large to search for in this text>"


class TriesChanges(Protocol):
    """Runs the pipeline on a change without applying it."""

    async def run(self, replacements: Replacements, *, limit: float) -> DryRun:
        """See `DryRuns.run`."""
        ...


class Present(msgspec.Struct, frozen=True):
    """State of the running iteration that reviews need."""

    targets: tuple[Target, ...]
    dry_runs: TriesChanges
    hidden: Callable[[str], frozenset[str] | None] = lambda _namespace: frozenset()
    """Returns the secret texts of a namespace, or of all for an empty name; None if there are too many.

    Runs in a worker thread.
    """


class AdmissionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of reviews."""

    deadline: float = 3.0
    """Seconds for one review, including waiting; less than usual timeouts of the API server."""
    configuration: float = 10.0
    """Seconds for a review of the configuration, which runs its tests."""
    margin: float = 0.5
    """Seconds to subtract from the timeout of the API server for the response."""
    waiting: int = 32
    """Maximum number of reviews in progress; one runs, the others wait."""
    waiting_of_namespace: int = 8
    """Maximum number of reviews of objects of one namespace in progress."""


class NamespaceTurns:
    """Reviews in progress, by namespace.

    One of each namespace asks the pipeline, which serves them in order, so a
    review waits for one review of each other namespace at most.
    """

    def __init__(self, most: int) -> None:
        """*most* is the maximum number of reviews of a namespace."""
        self._most = most
        self._counts: Counter[str] = Counter()
        self._locks: dict[str, trio.Lock] = {}

    @asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[None]:
        """Enter when no other review of *namespace* is inside; raises `DryRunError` if too many wait."""
        if self._counts[namespace] >= self._most:
            raise DryRunError("too many objects of its namespace are being reviewed")
        self._counts[namespace] += 1
        try:
            async with self._locks.setdefault(namespace, trio.Lock()):
                yield
        finally:
            self._counts[namespace] -= 1
            if not self._counts[namespace]:
                del self._counts[namespace], self._locks[namespace]


class Admission:
    """Reviews one request at a time; a limited number waits."""

    def __init__(
        self,
        present: Callable[[], Present | None],
        metrics: WebhookMetrics,
        *,
        limits: AdmissionLimits | None = None,
        configuration: ConfigurationReviews | None = None,
    ) -> None:
        """*present* returns the state for reviews of objects, or None; *configuration* does not need it."""
        self._present = present
        self._metrics = metrics
        self._limits = limits or AdmissionLimits()
        self._configuration = configuration
        self._running = 0
        self._turns = NamespaceTurns(self._limits.waiting_of_namespace)
        # An abandoned thread keeps its token until it ends.
        self._judging = trio.CapacityLimiter(1)
        self._log = get_logger("webhook")

    async def review(self, request: Request, *, limit: float | None = None) -> Answer:
        """Return the answer to *request* within *limit* seconds, the timeout of the API server, and the own limits."""
        began = trio.current_time()
        answer, outcome = await self._review(request, limit)
        if request.dry_run:
            # A dry run stores nothing, so it is logged at debug level only.
            self._log.debug("dry run reviewed", object=str(request.ref), outcome=outcome)
        elif not answer.allowed:
            self._log.info("object rejected", object=str(request.ref), reason=answer.message)
        self._metrics.note(outcome, trio.current_time() - began)
        return answer

    def _deadline(self, limit: float | None, own: float) -> float:
        return own if limit is None else max(0.1, min(own, limit - self._limits.margin))

    async def _review(self, request: Request, limit: float | None) -> tuple[Answer, str]:
        if request.sub_resource or _is_going(request.object):
            # Removing a finalizer of a broken object must stay possible.
            return Answer(), FOREIGN
        if self._running >= self._limits.waiting:
            return _unchecked(request, "too many objects are being reviewed")
        self._running += 1
        try:
            answer = await self._answer(request, limit)
        except (DryRunError, RejectedError) as exc:
            return _unchecked(request, str(exc))
        finally:
            self._running -= 1
        if answer is None:
            return Answer(), FOREIGN
        return answer, ALLOWED if answer.allowed else REJECTED

    async def _answer(self, request: Request, limit: float | None) -> Answer | None:
        """Return the answer; None if there is nothing to review."""
        if self._configuration is not None and self._configuration.concern(request):
            with _in_time(self._deadline(limit, self._limits.configuration)):
                return await self._configuration.review(request)
        present = self._present()
        if present is None:
            raise DryRunError("haptic-trio is not ready")
        replacements = find_replacements(request, present.targets)
        if replacements is None:
            return None
        seconds = self._deadline(limit, self._limits.deadline)
        with _in_time(seconds):
            async with self._turns.turn(request.ref.namespace):
                found = await present.dry_runs.run(replacements, limit=seconds)
            if found == DryRun():
                return Answer()
            # Searching for the Secrets of a cluster takes a while.
            return await trio.to_thread.run_sync(
                partial(_judge, request, present, found), limiter=self._judging, abandon_on_cancel=True
            )


def _judge(request: Request, present: Present, found: DryRun) -> Answer:
    """Return the answer for *found*; runs in a worker thread."""
    namespace = request.ref.namespace
    # A text about an object of this namespace quotes what its owner has written. If texts of Secrets of others were
    # redacted in it, the owner could find out by guesses what they are.
    clean = _cleaner(request, partial(present.hidden, namespace))
    clean_overall = _cleaner(request, partial(_hidden_overall, present, namespace))
    return judge(request.ref, request.operation, found, clean, clean_overall, partial(name_fields, request.object))


def _hidden_overall(present: Present, namespace: str) -> frozenset[str] | None:
    """Return the secret texts of all namespaces; of *namespace* if they are too many."""
    found = present.hidden("")
    return present.hidden(namespace) if found is None else found


@contextmanager
def _in_time(seconds: float) -> Iterator[None]:
    """Raise `DryRunError` if the block takes longer than *seconds*."""
    try:
        with trio.fail_after(seconds):
            yield
    except trio.TooSlowError as exc:
        raise DryRunError(f"the review took longer than {seconds:g} s") from exc


def _cleaner(request: Request, find: Callable[[], frozenset[str] | None]) -> Callable[[str], str]:
    """Return a function that redacts what *find* returns, and secrets of the object itself, which is in no store."""

    @cache
    def find_hidden() -> list[str] | None:
        known = find()
        hidden = hidden_in(request.object) | hidden_in(request.old_object) | (known or frozenset())
        # Longest first: a secret may be a part of another one.
        return None if known is None or len(hidden) > MOST_WORDS else sorted(hidden, key=len, reverse=True)

    def clean(text: str) -> str:
        words = find_hidden()
        if words is None:
            return _WITHHELD
        for word in words:
            text = text.replace(word, "<secret>")
        return text

    return clean


def _unchecked(request: Request, reason: str) -> tuple[Answer, str]:
    return Answer(warnings=(f"{request.ref} was accepted without review: {reason}",)), UNCHECKED


def _is_going(resource: Resource | None) -> bool:
    return bool(resource and (resource.get("metadata") or {}).get("deletionTimestamp"))
