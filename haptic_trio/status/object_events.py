"""Writer of Kubernetes Events about quarantined objects and warnings, run while this replica leads."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, Protocol

import msgspec
import trio

from haptic_trio.channels import ConfigSeen, Latest
from haptic_trio.errors import Problem
from haptic_trio.k8s.client import NotFoundError
from haptic_trio.k8s.errors import AbsentKindError, AlreadyExistsError, ForbiddenError, InvalidError
from haptic_trio.k8s.resource import Resource, ResourceRef, ResourceType
from haptic_trio.k8s.store import ReadableStore
from haptic_trio.messages import ConfigInvalid, ConfigValidated, ValidationFailed
from haptic_trio.status.kubernetes_events import (
    EVENTS,
    Allowance,
    EventType,
    Notice,
    NoticeBoard,
    NoticeKey,
    Turns,
    event_of,
    regarding_of,
    repeated,
)
from haptic_trio.status.writer import find_object
from haptic_trio.templating.values.subjects import ObjectWarning
from haptic_trio.templating.values.warning_list import compare_warnings
from haptic_trio.workqueue.controller import Controller
from haptic_trio.workqueue.metrics import WorkQueueMetrics
from haptic_trio.workqueue.outcome import PermanentError

BURST: Final = 50
INTERVAL: Final = 0.5
"""Rate limit of this replica: `BURST` Events at once, then one every `INTERVAL` seconds."""
_QUARANTINED: Final = "Quarantined"


class EventServer(Protocol):
    """The part of `ApiCluster` that the writer uses."""

    async def get(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        """See `Client.get`."""
        ...

    async def create(self, resource: Resource) -> Resource:
        """See `ApiCluster.create`."""
        ...

    async def replace(self, resource: Resource) -> Resource:
        """See `ApiCluster.replace`."""
        ...


class QuarantinedObject(Protocol):
    """A quarantined object."""

    @property
    def ref(self) -> ResourceRef:
        """Reference to the object."""
        ...

    @property
    def version(self) -> str:
        """resourceVersion that was rejected."""
        ...

    @property
    def problem(self) -> Problem:
        """Reason of the rejection."""
        ...

    @property
    def has_fallback(self) -> bool:
        """Whether its last good output is served."""
        ...


def compare_quarantined(
    reported: Mapping[ResourceRef, QuarantinedObject], quarantined_now: Mapping[ResourceRef, QuarantinedObject]
) -> tuple[list[QuarantinedObject], list[ResourceRef]]:
    """Return the objects of *quarantined_now* that are new or changed since *reported*, and the released objects."""
    fresh = [item for ref, item in quarantined_now.items() if ref not in reported or _differ(reported[ref], item)]
    return fresh, [ref for ref in reported if ref not in quarantined_now]


def _differ(one: QuarantinedObject, other: QuarantinedObject) -> bool:
    return (one.version, one.problem, one.has_fallback) != (other.version, other.problem, other.has_fallback)


def ref_of_warning(warning: ObjectWarning) -> ResourceRef:
    """Return the object that *warning* is about."""
    return ResourceRef(warning.subject.kind, warning.subject.namespace, warning.subject.name)


def warned(resource: Resource, warning: ObjectWarning) -> Notice:
    """Return the notice of a warning."""
    return _notice(resource, EventType.WARNING, warning.reason, warning.message)


def resolved(resource: Resource, warning: ObjectWarning) -> Notice:
    """Return the notice that the warning *warning* no longer applies."""
    note = f"resolved: {warning.reason}: {warning.message}"
    return _notice(resource, EventType.NORMAL, "Resolved", note, topic=warning.reason)


def quarantined(resource: Resource, entry: QuarantinedObject) -> Notice:
    """Return the notice of a quarantined object."""
    served = "its last good version is served" if entry.has_fallback else "it is not served"
    problem = entry.problem
    place = f"{problem.source}:{problem.line}" if problem.line else problem.source
    # Fields first, template last: owners of objects may not know templates.
    note = msgspec.structs.replace(problem, source="", line=0, column=0, subject="")
    made_by = f" [{place}]" if place else ""
    return _notice(resource, EventType.WARNING, _QUARANTINED, f"{note}; {served}{made_by}")


def released(resource: Resource) -> Notice:
    """Return the notice that an object left the quarantine."""
    return _notice(resource, EventType.NORMAL, "Released", "the current version is served again", topic=_QUARANTINED)


def rejected(config_map: Resource, problems: Sequence[Problem], *, is_verdict: bool = True) -> Notice:
    """Return the notice to the ConfigMap that a configuration of HAProxy is not deployed.

    Without *is_verdict*, the check did not finish.
    """
    first = str(problems[0]) if problems else "no reason given"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    note = f"{first}{more}; the deployed configuration stays in use"
    reason = "ConfigurationRejected" if is_verdict else "ConfigurationNotChecked"
    return _notice(config_map, EventType.WARNING, reason, note, action="Deploy")


def _notice(
    resource: Resource, type_: EventType, reason: str, note: str, *, action: str = "Render", topic: str = ""
) -> Notice:
    return Notice(regarding=regarding_of(resource), type=type_, reason=reason, action=action, note=note, topic=topic)


_OF_REJECTIONS: Final = {_QUARANTINED, "Released", "ConfigurationRejected", "ConfigurationNotChecked"}


class EventWriter:
    """Writes Events about quarantined objects (*quarantined*), warnings and rejected configurations."""

    def __init__(
        self,
        server: EventServer,
        stores: Mapping[str, ReadableStore],
        *,
        quarantined: Callable[[], Iterable[QuarantinedObject]],
        warnings: Callable[[], tuple[ObjectWarning, ...]] = tuple,
        configuration: Latest[ConfigSeen],
        invalid: Latest[ConfigInvalid],
        instance: str,
        metrics: WorkQueueMetrics | None = None,
        burst: int = BURST,
        interval: float = INTERVAL,
    ) -> None:
        self._server = server
        self._stores = stores
        self._quarantined = quarantined
        self._warnings = warnings
        self._reported_warnings: tuple[ObjectWarning, ...] = ()
        self._configuration = configuration
        self._invalid = invalid
        self._instance = instance
        self._reported: dict[ResourceRef, QuarantinedObject] = {}
        self._board = NoticeBoard()
        # Two limits, so that rejections do not wait behind many warnings, such as while no Service has endpoints.
        self._for_rejections = _Pace(Allowance(burst, interval))
        self._for_warnings = _Pace(Allowance(burst, interval))
        self._controller: Controller[NoticeKey] = (
            Controller(self._reconcile, name="events", metrics=metrics).with_backoff(0.5, 60.0).with_shutdown(0)
        )

    async def run(self, validated: Latest[ConfigValidated], rejections: Latest[ValidationFailed]) -> NoReturn:
        """Write until cancelled; objects that are already in quarantine are reported at once."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._controller.run)
            for pace in (self._for_rejections, self._for_warnings):
                nursery.start_soon(pace.release, self._controller.enqueue)
            nursery.start_soon(self._follow, validated, validated.version)
            nursery.start_soon(self._follow, rejections, rejections.version)
            nursery.start_soon(self._follow_invalid)
            self._compare()
        raise AssertionError("its tasks end only by cancellation")

    async def _follow(self, cell: Latest[Any], seen: int) -> NoReturn:
        while True:
            seen, outcome = await cell.wait_newer(seen)
            self._compare()
            if isinstance(outcome, ValidationFailed):
                self._put_rejection(outcome)

    async def _follow_invalid(self) -> NoReturn:
        """Report the present configuration if it is invalid, which may have been so before this replica led."""
        seen = 0
        while True:
            seen, invalid = await self._invalid.wait_newer(seen)
            present = self._configuration.value
            # It may have been corrected since.
            if present is not None and present.version == invalid.version:
                self._put_rejection(invalid)

    def _put_rejection(self, rejection: ValidationFailed | ConfigInvalid) -> None:
        present = self._configuration.value
        # The ConfigMap may have been deleted.
        if present is not None and present.config_map:
            self._put(rejected(present.config_map, rejection.problems, is_verdict=rejection.is_verdict))

    def _compare(self) -> None:
        quarantined_now = {item.ref: item for item in self._quarantined()}
        fresh, gone = compare_quarantined(self._reported, quarantined_now)
        self._reported = quarantined_now
        for item in fresh:
            if (resource := find_object(self._stores, item.ref)) is not None:
                self._put(quarantined(resource, item))
        for ref in gone:
            if (resource := find_object(self._stores, ref)) is not None:
                self._put(released(resource))
        self._compare_warnings(quarantined_now)

    def _compare_warnings(self, quarantined_now: Mapping[ResourceRef, QuarantinedObject]) -> None:
        current = self._warnings()
        fresh, gone = compare_warnings(self._reported_warnings, current)
        self._reported_warnings = current
        for item in fresh:
            if (resource := find_object(self._stores, ref_of_warning(item))) is not None:
                self._put(warned(resource, item))
        for item in gone:
            ref = ref_of_warning(item)
            # The warnings of a quarantined object are unknown.
            if ref not in quarantined_now and (resource := find_object(self._stores, ref)) is not None:
                self._put(resolved(resource, item))

    def _put(self, notice: Notice) -> None:
        key = self._board.put(notice, trio.current_time())
        if key is not None:
            self._queue(key, notice)

    def _queue(self, key: NoticeKey, notice: Notice) -> None:
        """Have the notice *key* written in its turn; drop it if too many of its namespace and topic wait."""
        pace = self._for_rejections if notice.reason in _OF_REJECTIONS else self._for_warnings
        if not pace.put(key):
            self._board.drop(key)

    async def _reconcile(self, key: NoticeKey) -> None:
        found = self._board.pending(key)
        if found is None:
            return
        notice, times = found
        try:
            await self._write(key, notice, times)
        except (NotFoundError, AbsentKindError):
            # The namespace is being deleted, or the Event has just expired: the next attempt creates a new one.
            pass
        except (InvalidError, ForbiddenError) as error:
            # Forbidden: the namespace is being deleted, or its quota is used up, which its owner can keep so for ever.
            self._board.drop(key)
            raise PermanentError(error) from error
        if self._board.note_written(key, times):
            self._queue(key, notice)

    async def _write(self, key: NoticeKey, notice: Notice, times: int) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        event = event_of(notice, instance=self._instance, now=now)
        try:
            await self._server.create(repeated(event, times - 1, now=now) if times > 1 else event)
        except AlreadyExistsError:
            present = await self._server.get(EVENTS, key.namespace, key.name)
            await self._server.replace(repeated(present, times, now=now))


class _Pace:
    """Keys that wait for a rate limit."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._turns = Turns()
        self._arrived = trio.Event()

    def put(self, key: NoticeKey) -> bool:
        """Add *key*; False if too many of its namespace and topic wait."""
        self._arrived.set()
        return self._turns.put(key)

    async def release(self, enqueue: Callable[[NoticeKey], None]) -> NoReturn:
        """Call *enqueue* with one key after the other, at the limited rate, until cancelled."""
        while True:
            while not self._turns:
                self._arrived = trio.Event()
                await self._arrived.wait()
            if wait := self._allowance.take(trio.current_time()):
                await trio.sleep(wait)
            else:
                enqueue(self._turns.take())
