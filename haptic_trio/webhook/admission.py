"""Admission reviews with limits; an object that cannot be judged is accepted.

What cannot be reviewed is let through with a warning. It is quarantined later
if it cannot be served, as everything is that came while nobody was asked.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Protocol

import msgspec
import trio

from haptic_trio.k8s.resource import Resource
from haptic_trio.logs import get_logger
from haptic_trio.pipeline.field_paths import find_fields
from haptic_trio.pipeline.rejection.errors import RefusedError
from haptic_trio.pipeline.review.dry_run import DryRun
from haptic_trio.pipeline.review.dry_run_object import RehearsalError, Replacements
from haptic_trio.webhook.configuration import ConfigurationReviews
from haptic_trio.webhook.hidden import hidden_in
from haptic_trio.webhook.metrics import ALLOWED, FOREIGN, REFUSED, UNCHECKED, WebhookMetrics
from haptic_trio.webhook.review import Answer, Request
from haptic_trio.webhook.targets import Target, find_replacements
from haptic_trio.webhook.verdict import judge


class TriesChanges(Protocol):
    """Who can say what a change would come to."""

    async def run(self, replacements: Replacements, *, limit: float) -> DryRun:
        """See `DryRuns.run`."""
        ...


class Present(msgspec.Struct, frozen=True):
    """The iteration that runs, as far as reviews go."""

    targets: tuple[Target, ...]
    dry_runs: TriesChanges
    hidden: Callable[[str], frozenset[str]] = lambda _namespace: frozenset()
    """Texts that are secret to those who write objects of a namespace."""


class AdmissionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What reviews may take."""

    deadline: float = 3.0
    """Seconds that one may take, waiting included; below the least that the API server is likely to wait."""
    configuration: float = 10.0
    """Seconds that a review of the configuration may take, which runs its tests."""
    margin: float = 0.5
    """Seconds of the API server's own limit that are left for the way back."""
    waiting: int = 32
    """Reviews at a time, of which one is worked on; the rest waits."""


class Admission:
    """Reviews one request at a time, and has a number of them wait."""

    def __init__(
        self,
        look: Callable[[], Present | None],
        metrics: WebhookMetrics,
        *,
        limits: AdmissionLimits | None = None,
        configuration: ConfigurationReviews | None = None,
    ) -> None:
        """*look* returns what is there to review with, None while there is nothing; *configuration* needs none."""
        self._look = look
        self._metrics = metrics
        self._limits = limits or AdmissionLimits()
        self._configuration = configuration
        self._running = 0
        self._log = get_logger("webhook")

    async def review(self, request: Request, *, limit: float | None = None) -> Answer:
        """Return the answer to *request*, within *limit* seconds, if whoever asks says so, and those of our own."""
        began = trio.current_time()
        answer, outcome = await self._review(request, limit)
        if request.dry_run:
            # Nobody will see it again: what is logged is only what could come to pass.
            self._log.debug("dry run was reviewed", object=str(request.ref), outcome=outcome)
        elif not answer.allowed:
            self._log.info("object was refused", object=str(request.ref), reason=answer.message)
        self._metrics.note(outcome, trio.current_time() - began)
        return answer

    def _deadline(self, limit: float | None, own: float) -> float:
        return own if limit is None else max(0.1, min(own, limit - self._limits.margin))

    async def _review(self, request: Request, limit: float | None) -> tuple[Answer, str]:
        if request.sub_resource or _is_going(request.object):
            # Whoever takes a finalizer off a broken object must be able to.
            return Answer(), FOREIGN
        if self._running >= self._limits.waiting:
            return _unchecked(request, "too many objects are being reviewed")
        self._running += 1
        try:
            answer = await self._answer(request, limit)
        except (RehearsalError, RefusedError) as exc:
            return _unchecked(request, str(exc))
        finally:
            self._running -= 1
        if answer is None:
            return Answer(), FOREIGN
        return answer, ALLOWED if answer.allowed else REFUSED

    async def _answer(self, request: Request, limit: float | None) -> Answer | None:
        """Return the answer, None where there is nothing to review."""
        if self._configuration is not None and self._configuration.concern(request):
            with _in_time(self._deadline(limit, self._limits.configuration)):
                return await self._configuration.review(request)
        present = self._look()
        if present is None:
            raise RehearsalError("haptic-trio is not ready")
        replacements = find_replacements(request, present.targets)
        if replacements is None:
            return None
        seconds = self._deadline(limit, self._limits.deadline)
        with _in_time(seconds):
            found = await present.dry_runs.run(replacements, limit=seconds)
        clean = _cleaner(request, present)
        return judge(request.ref, request.operation, found, clean, partial(find_fields, request.object))


@contextmanager
def _in_time(seconds: float) -> Iterator[None]:
    """Raise `RehearsalError` where the block takes longer."""
    try:
        with trio.fail_after(seconds):
            yield
    except trio.TooSlowError as exc:
        raise RehearsalError(f"that would have taken longer than {seconds:g} s") from exc


def _cleaner(request: Request, present: Present) -> Callable[[str], str]:
    """Return what takes out of a text what is secret: what the object itself holds of that is in no store yet."""

    @cache
    def find_hidden() -> list[str]:
        hidden = hidden_in(request.object) | hidden_in(request.old_object) | present.hidden(request.ref.namespace)
        # The longest first: a part of it may be a word of its own.
        return sorted(hidden, key=len, reverse=True)

    def clean(text: str) -> str:
        for word in find_hidden():
            text = text.replace(word, "<secret>")
        return text

    return clean


def _unchecked(request: Request, reason: str) -> tuple[Answer, str]:
    return Answer(warnings=(f"{request.ref} was accepted unseen: {reason}",)), UNCHECKED


def _is_going(resource: Resource | None) -> bool:
    return bool(resource and (resource.get("metadata") or {}).get("deletionTimestamp"))
