"""Dry run of a changed object: both validation phases with the change, and whether the change is at fault.

Only what the change itself brings about is found: what is refused without
it, too, counts for nothing. Phase 2 reads what the change makes of the
configuration, with stand-ins for the rest, and the whole before anything is
said to be refused.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import trio

from haptic_trio.config.templates import MAIN_TEMPLATE
from haptic_trio.dataplane.local.check import (
    CheckCrashedError,
    CheckFailedError,
    CheckTimeoutError,
    ConfigRefusedError,
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
from haptic_trio.pipeline.validate import Validator, locate
from haptic_trio.templating.values.subjects import Refusal, Remark, Subject

MOST_BYTES = 4 << 20
"""Of the text and the files that phase 2 is given; 4 us a line are a fifth of a second."""
MOST_MEMORY = 512 << 20
"""Bytes of address space for phase 2: what as much text takes on a small machine; HAProxy has more for each thread."""
MOST_CERTIFICATES = 250
"""Each takes HAProxy about a millisecond to load."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that would be refused with the change, and is not without it."""

    phase: str
    """`render`, `parse` or `check`."""
    problem: Problem
    subject: Subject | None
    """The object that would not be served; None where nothing would be."""
    is_known: bool = False
    """The object is refused without the change, too, for the same reason."""


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a change would come to."""

    faults: tuple[Fault, ...] = ()
    remarks: tuple[Remark, ...] = ()
    """What owners of objects would be told that they are not told already."""
    unchecked: str = ""
    """Why HAProxy has not been asked, if it should have been."""


class DryRuns:
    """Tries changes on the parts of a pipeline, between its cycles; one at a time, so that a cycle waits for one."""

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
        """Take the parts of *pipeline*; *binary* checks in directories of their own below *scratch*."""
        self._stores = stores
        self._renderer = renderer
        self._validator = validator
        self._quarantine = quarantine
        self._pipeline = pipeline
        self._binary = binary
        self._scratch = scratch
        self._one_at_a_time = trio.Lock()
        self._checking = trio.CapacityLimiter(1)

    async def run(self, replacements: Replacements, *, limit: float) -> DryRun:
        """Return what *replacements* would come to; raises `DryRunError` where that cannot be said.

        So it does before the pipeline's first cycle, and while nothing can be
        rendered even without them.

        *limit*: seconds for rendering, and again for a check.
        """
        async with self._one_at_a_time, self._pipeline.turn:
            # Writes wait while the worker thread reads.
            with self._stores.frozen():
                if self._renderer.newest(self._stores) is None:
                    await self._render_newest()
                dry_run = await render_dry_run(
                    self._renderer, self._stores, replacements, self._quarantine.recall(), limit=limit
                )
            before, after = dry_run.before, dry_run.after
            if after is None:
                return DryRun(faults=tuple(_outside(dry_run.problems)))
            if not dry_run.changed and after.texts == before.texts:
                return DryRun()
            faults = tuple(new_refusals(before.refusals, after.refusals))
            former, known = await self._parse(before)
            generation, found = await self._parse(after)
        if generation is None:
            return DryRun(faults=(*faults, *blamed("parse", found, known or None, dry_run)))
        told = set(before.remarks)
        remarks = tuple(remark for remark in after.remarks if remark not in told)
        if former is None:
            return DryRun(
                faults=faults, remarks=remarks, unchecked="the configuration is refused at present without it, too"
            )
        if former.id == generation.id:
            return DryRun(faults=faults, remarks=remarks)
        refused, unchecked = await self._check(former, generation, dry_run, limit, _only_object(replacements))
        return DryRun(faults=(*faults, *refused), remarks=remarks, unchecked=unchecked)

    async def _render_newest(self) -> None:
        """Render what no cycle has come to yet: the change is compared with what is."""
        if not self._renderer.has_rendered:
            raise DryRunError("nothing has been rendered yet")
        try:
            await self._pipeline.render_newest()
        except RejectedError as exc:
            raise DryRunError("the configuration cannot be rendered at present, even without it") from exc

    async def _parse(self, rendered: Rendered) -> tuple[Generation | None, tuple[Problem, ...]]:
        try:
            return await self._validator.parse(rendered), ()
        except RejectedError as exc:
            return None, exc.problems

    async def _check(
        self, former: Generation, wanted: Generation, dry_run: DryRunRender, limit: float, changed: Subject | None
    ) -> tuple[tuple[Fault, ...], str]:
        """Return what phase 2 finds with *changed* as it would be, and why it was not asked."""
        if _process_part(former) != _process_part(wanted):
            # What stands there may have HAProxy run things: that is not for objects to try.
            return (), "it changes the section `global`"
        reduced = reduce_generation(former, wanted)
        reason = _too_large(reduced or wanted)
        if reason:
            return (), reason
        try:
            with trio.fail_after(limit):
                async with self._checking:
                    if reduced is None or await self._refuses(reduced, limit):
                        # The rejection may be caused by the reduction.
                        return await self._check_whole(former, wanted, dry_run, limit, changed)
        except trio.TooSlowError:
            return (), "HAProxy takes too long"
        except (CheckTimeoutError, CheckFailedError) as exc:
            return (), str(exc)
        return (), ""

    async def _refuses(self, generation: Generation, limit: float) -> bool:
        try:
            await self._ask(generation, limit)
        except ConfigRefusedError:
            return True
        return False

    async def _check_whole(
        self, former: Generation, wanted: Generation, dry_run: DryRunRender, limit: float, changed: Subject | None
    ) -> tuple[tuple[Fault, ...], str]:
        if reason := _too_large(wanted):
            return (), reason
        try:
            await self._ask(wanted, limit)
        except ConfigRefusedError as exc:
            was_fine = find_acceptance(self._binary, former) is not None
            if isinstance(exc, CheckCrashedError):
                # A crash names no line by which to tell whose fault it is.
                if was_fine or not await self._refuses(former, limit):
                    return tuple(Fault(phase="check", problem=one, subject=changed) for one in exc.problems), ""
                return (), "HAProxy crashes on the configuration at present"
            found = tuple(blamed("check", exc.problems, None if was_fine else (), dry_run))
            return found, "" if found else "HAProxy refuses the configuration at present"
        return (), ""

    async def _ask(self, generation: Generation, limit: float) -> None:
        await check_config(self._binary, generation, limit=limit, eager=True, root=self._scratch, memory=MOST_MEMORY)


def new_refusals(before: Iterable[Refusal], after: Iterable[Refusal]) -> Iterator[Fault]:
    """Yield a fault for each fragment that is refused *after*; those that were *before* for the same reason are known.

    One that was refused before for another reason is new.
    """
    known = {(refusal.key, refusal.problem.message) for refusal in before}
    for refusal in after:
        yield Fault(
            phase="render",
            problem=refusal.problem,
            subject=refusal.subject,
            is_known=(refusal.key, refusal.problem.message) in known,
        )


def blamed(
    phase: str, problems: Iterable[Problem], known: Iterable[Problem] | None, dry_run: DryRunRender
) -> Iterator[Fault]:
    """Yield a fault for each of *problems* that the change has brought about.

    These are the ones in lines that it has made, and, where *known* says
    what was refused before, those that were not. *known* is None where
    nothing was, and empty where nobody can say.
    """
    assert dry_run.after is not None
    told = None if known is None else {(problem.message, problem.subject) for problem in known}
    for problem in problems:
        located, origin = locate(problem, dry_run.after)
        found = problem if problem.subject else located
        is_made = origin is not None and origin.key in dry_run.changed
        is_new = told is None or bool(told and (found.message, found.subject) not in told)
        if is_made or is_new:
            yield Fault(phase=phase, problem=found, subject=origin.subject if origin is not None else None)


def _only_object(replacements: Replacements) -> Subject | None:
    """Return the object that *replacements* are of; None where there are several."""
    found = {ref for objects in replacements.values() for ref in objects}
    return Subject(*msgspec.structs.astuple(found.pop())) if len(found) == 1 else None


def _outside(problems: Iterable[Problem]) -> Iterator[Fault]:
    for problem in problems:
        yield Fault(phase="render", problem=problem, subject=None)


def _process_part(generation: Generation) -> list[bytes]:
    return [section.seal for section in generation.config.all("global")]


def _too_large(generation: Generation) -> str:
    size = sum(len(section.text) for section in generation.config.sections)
    size += sum(file.size for file in generation.files.values())
    if size > MOST_BYTES:
        return f"{MAIN_TEMPLATE} and its files are larger than {MOST_BYTES >> 20} MiB"
    if sum(1 for _file in generation.files_of(FileKind.CERT)) > MOST_CERTIFICATES:
        return f"there are more than {MOST_CERTIFICATES} certificates"
    return ""
