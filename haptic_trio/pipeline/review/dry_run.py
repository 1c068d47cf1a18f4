"""Dry run of a changed object: both validation phases with the change, and whether the change is at fault.

Problems that exist without the change are ignored. `haproxy -c` first checks
a reduced configuration, in which short sections replace the unchanged ones,
and checks the complete configuration before the change is rejected.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import trio

from haptic_trio.config.templates import MAIN_TEMPLATE
from haptic_trio.dataplane.local.check import (
    CheckCrashedError,
    CheckFailedError,
    CheckTimeoutError,
    ConfigRejectedError,
    Priority,
    check_config,
    find_acceptance,
)
from haptic_trio.errors import Problem
from haptic_trio.haproxy.config.reduced import reduce_generation
from haptic_trio.haproxy.model import FileKind, Generation
from haptic_trio.k8s.store import Stores
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.pipeline.review.dry_run_object import DryRunError, DryRunRender, Replacements, render_dry_run
from haptic_trio.pipeline.review.pauses import ReviewPauses
from haptic_trio.pipeline.validate import Validator, locate
from haptic_trio.templating.values.subjects import ObjectWarning, Rejection, Subject

MOST_BYTES = 4 << 20
"""Maximum size of text and files for `haproxy -c`; at 4 us per line this takes about 0.2 s."""
MOST_MEMORY = 512 << 20
"""Address space for `haproxy -c` in bytes: enough for `MOST_BYTES` on a reduced machine; each thread takes more."""
MOST_CERTIFICATES = 250
"""HAProxy takes about a millisecond to load a certificate."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A rejection that the change would cause."""

    phase: str
    """`render`, `parse` or `check`."""
    problem: Problem
    subject: Subject | None
    """The object that would not be served; None if the whole configuration would be rejected."""
    is_known: bool = False
    """Whether the object is already rejected for the same reason without the change."""


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a dry run."""

    faults: tuple[Fault, ...] = ()
    warnings: tuple[ObjectWarning, ...] = ()
    """Warnings that the change would add."""
    unchecked: str = ""
    """Why `haproxy -c` did not check the change; empty if it did or did not need to."""


class DryRuns:
    """Runs dry runs with the components of a pipeline, between its cycles. One at a time, so a cycle waits for one."""

    def __init__(
        self,
        stores: Stores,
        renderer: Renderer,
        validator: Validator,
        quarantine: Quarantine,
        *,
        pipeline: Pipeline,
        binary: Path,
        scratch: Path,
    ) -> None:
        """Use the components of *pipeline*; *binary* checks in temporary directories below *scratch*."""
        self._stores = stores
        self._renderer = renderer
        self._validator = validator
        self._quarantine = quarantine
        self._pipeline = pipeline
        self._binary = binary
        self._scratch = scratch
        self._one_at_a_time = trio.Lock()
        self._checking = trio.CapacityLimiter(1)
        self._pauses = ReviewPauses()

    async def run(self, replacements: Replacements, *, limit: float) -> DryRun:
        """Return the result of applying *replacements*; raises `DryRunError` if it cannot be determined.

        That is the case before the first cycle of the pipeline, while the
        templates fail without the replacements, and while reviews of the
        namespace pause. *limit*: seconds for rendering, and the same again for
        `haproxy -c`.
        """
        namespace, changed = _namespace_of(replacements), _only_object(replacements)
        self._pauses.check(namespace)
        async with self._one_at_a_time, self._pipeline.turn:
            # Writes wait while the worker thread reads.
            with self._stores.frozen():
                if self._renderer.newest(self._stores) is None:
                    await self._render_newest()
                dry_run = await render_dry_run(
                    self._renderer,
                    self._stores,
                    replacements,
                    self._quarantine.recall(),
                    limit=limit,
                    longest=self._pauses.longest_render(namespace),
                    note=partial(self._pauses.note, namespace),
                )
            before, after = dry_run.before, dry_run.after
            if after is None:
                return DryRun(faults=tuple(_global_faults(dry_run.problems)))
            if not dry_run.changed and after.texts == before.texts:
                return DryRun()
            faults = tuple(new_rejections(before.rejections, after.rejections, changed))
            former, known = await self._parse(before)
            generation, found = await self._parse(after)
        if generation is None:
            return DryRun(faults=(*faults, *new_faults("parse", found, known or None, dry_run)))
        known_warnings = set(before.warnings)
        warnings = tuple(warning for warning in after.warnings if warning not in known_warnings)
        if former is None:
            return DryRun(
                faults=faults,
                warnings=warnings,
                unchecked="the present configuration is already rejected without the change",
            )
        if former.id == generation.id:
            return DryRun(faults=faults, warnings=warnings)
        rejected, unchecked = await self._check(former, generation, dry_run, limit, changed)
        return DryRun(faults=(*faults, *rejected), warnings=warnings, unchecked=unchecked)

    async def _render_newest(self) -> None:
        """Render pending changes first, so that the comparison shows only the effect of the change."""
        if not self._renderer.has_rendered:
            raise DryRunError("nothing has been rendered yet")
        try:
            await self._pipeline.render_newest()
        except RejectedError as exc:
            raise DryRunError("the templates fail at present, even without the change") from exc

    async def _parse(self, rendered: Rendered) -> tuple[Generation | None, tuple[Problem, ...]]:
        try:
            return await self._validator.parse(rendered), ()
        except RejectedError as exc:
            return None, exc.problems

    async def _check(
        self, former: Generation, wanted: Generation, dry_run: DryRunRender, limit: float, changed: Subject | None
    ) -> tuple[tuple[Fault, ...], str]:
        """Return the faults that `haproxy -c` finds for the object *changed*, or the reason why it did not check."""
        if _global_sections(former) != _global_sections(wanted):
            # Options of `global` can make HAProxy run programs, so a check would be a risk.
            return (), "the change affects the section `global`"
        reduced = reduce_generation(former, wanted)
        reason = _too_large(reduced or wanted)
        if reason:
            return (), reason
        try:
            with trio.fail_after(limit):
                async with self._checking:
                    if reduced is None or await self._rejects(reduced, limit):
                        # The rejection may be an effect of the reduced configuration.
                        return await self._check_whole(former, wanted, dry_run, limit, changed)
        except trio.TooSlowError:
            return (), "`haproxy -c` takes too long"
        except (CheckTimeoutError, CheckFailedError) as exc:
            return (), str(exc)
        return (), ""

    async def _rejects(self, generation: Generation, limit: float) -> bool:
        try:
            await self._run_check(generation, limit)
        except ConfigRejectedError:
            return True
        return False

    async def _check_whole(
        self, former: Generation, wanted: Generation, dry_run: DryRunRender, limit: float, changed: Subject | None
    ) -> tuple[tuple[Fault, ...], str]:
        if reason := _too_large(wanted):
            return (), reason
        try:
            await self._run_check(wanted, limit)
        except ConfigRejectedError as exc:
            was_fine = find_acceptance(self._binary, former) is not None
            if isinstance(exc, CheckCrashedError):
                # A crash message names no line that would lead to an object.
                if was_fine or not await self._rejects(former, limit):
                    return tuple(Fault(phase="check", problem=one, subject=changed) for one in exc.problems), ""
                return (), "HAProxy crashes on the present configuration, even without the change"
            found = tuple(new_faults("check", exc.problems, None if was_fine else (), dry_run))
            return found, "" if found else "HAProxy rejects the present configuration, even without the change"
        return (), ""

    async def _run_check(self, generation: Generation, limit: float) -> None:
        await check_config(
            self._binary, generation, limit=limit, priority=Priority.NORMAL, root=self._scratch, memory=MOST_MEMORY
        )


def new_rejections(before: Iterable[Rejection], after: Iterable[Rejection], changed: Subject | None) -> Iterator[Fault]:
    """Yield a fault for each rejection in *after*.

    A fault of the object *changed* is known if *before* has a rejection of
    the same fragment with the same message. One of another object is known if
    *before* has any rejection of it: the object is quarantined as a whole.
    """
    former = tuple(before)
    known = {(rejection.key, rejection.problem.message) for rejection in former}
    quarantined = {_unversioned(rejection.subject) for rejection in former} - {changed}
    for rejection in after:
        yield Fault(
            phase="render",
            problem=rejection.problem,
            subject=rejection.subject,
            is_known=_unversioned(rejection.subject) in quarantined
            or (rejection.key, rejection.problem.message) in known,
        )


def _unversioned(subject: Subject) -> Subject:
    return Subject(subject.kind, subject.namespace, subject.name)


def new_faults(
    phase: str, problems: Iterable[Problem], known: Iterable[Problem] | None, dry_run: DryRunRender
) -> Iterator[Fault]:
    """Yield a fault for each of *problems* that the changed object causes.

    These are problems in lines of changed fragments, and problems that are
    not among *known*, the problems without the change. *known* is None if
    there were none, and empty if they could not be determined.
    """
    assert dry_run.after is not None
    known_problems = None if known is None else {(problem.message, problem.subject) for problem in known}
    for problem in problems:
        located, origin = locate(problem, dry_run.after)
        found = problem if problem.subject else located
        is_made = origin is not None and origin.key in dry_run.changed
        is_new = known_problems is None or bool(known_problems and (found.message, found.subject) not in known_problems)
        if is_made or is_new:
            yield Fault(phase=phase, problem=found, subject=origin.subject if origin is not None else None)


def _only_object(replacements: Replacements) -> Subject | None:
    """Return the replaced object; None if *replacements* has several."""
    found = {ref for objects in replacements.values() for ref in objects}
    return Subject(*msgspec.structs.astuple(found.pop())) if len(found) == 1 else None


def _namespace_of(replacements: Replacements) -> str:
    """Return the namespace of the replaced objects, which have the same one; empty for those without one."""
    return next((ref.namespace for objects in replacements.values() for ref in objects), "")


def _global_faults(problems: Iterable[Problem]) -> Iterator[Fault]:
    for problem in problems:
        yield Fault(phase="render", problem=problem, subject=None)


def _global_sections(generation: Generation) -> list[bytes]:
    return [section.seal for section in generation.config.all("global")]


def _too_large(generation: Generation) -> str:
    size = sum(len(section.text) for section in generation.config.sections)
    size += sum(file.size for file in generation.files.values())
    if size > MOST_BYTES:
        return f"{MAIN_TEMPLATE} and its files are larger than {MOST_BYTES >> 20} MiB"
    if sum(1 for _file in generation.files_of(FileKind.CERT)) > MOST_CERTIFICATES:
        return f"there are more than {MOST_CERTIFICATES} certificates"
    return ""
