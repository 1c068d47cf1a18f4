"""Both phases of validation, and the way back from a message to the template and the object behind it."""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import msgspec
import trio

from haptic_trio.config.templates import MAIN_TEMPLATE
from haptic_trio.dataplane.check import CheckFailedError, CheckTimeoutError, ConfigRefusedError, check_config
from haptic_trio.errors import Problem
from haptic_trio.haproxy.model import Generation, make_generation
from haptic_trio.haproxy.parser import ConfigSyntaxError, SectionCache, parse_config
from haptic_trio.pipeline.refusal import RefusedError
from haptic_trio.pipeline.render import Rendered
from haptic_trio.templating.subjects import FragmentKey, Origin


class Validator:
    """Checks rendered configurations, one at a time."""

    def __init__(self, binary: Path, *, check_timeout: float, scratch: Path | None = None) -> None:
        """Check with *binary*, in private directories below *scratch* (by default the system's temporary one)."""
        self._binary = binary
        self._check_timeout = check_timeout
        self._scratch = scratch
        self._sections = SectionCache()
        self._one_at_a_time = trio.Lock()

    async def parse(self, rendered: Rendered) -> Generation:
        """Phase 1: return the generation of *rendered*, or raise `RefusedError`."""
        try:
            return await trio.to_thread.run_sync(self._parse, rendered)
        except ConfigSyntaxError as exc:
            raise _refusal("parse", exc.problems, rendered) from exc

    async def check(self, generation: Generation, rendered: Rendered) -> tuple[Problem, ...]:
        """Phase 2: have HAProxy check *generation*; return its warnings, or raise `RefusedError`."""
        try:
            async with self._one_at_a_time:
                report = await check_config(self._binary, generation, limit=self._check_timeout, root=self._scratch)
        except ConfigRefusedError as exc:
            raise _refusal("check", exc.problems, rendered) from exc
        except (CheckTimeoutError, CheckFailedError) as exc:
            raise RefusedError("check", (Problem(message=str(exc), source=MAIN_TEMPLATE),)) from exc
        return tuple(locate(problem, rendered)[0] for problem in report.warnings)

    def _parse(self, rendered: Rendered) -> Generation:
        config = parse_config(rendered.text, source=MAIN_TEMPLATE, cache=self._sections)
        return make_generation(rendered.text, config, rendered.files)


def _refusal(phase: str, problems: Iterable[Problem], rendered: Rendered) -> RefusedError:
    located = []
    suspects: dict[FragmentKey, Problem] = {}
    for problem in problems:
        found, origin = locate(problem, rendered)
        located.append(found)
        if origin is not None:
            suspects.setdefault(origin.key, found)
    return RefusedError(phase, tuple(located), suspects)


def locate(problem: Problem, rendered: Rendered) -> tuple[Problem, Origin | None]:
    """Return *problem* with the object and the template behind it, where they are known, and their origin."""
    origin = _origin_of(problem, rendered)
    if origin is None:
        return problem, None
    made_by = f"made by fragment '{origin.fragment}', {origin.template}:{origin.line}"
    return (
        msgspec.structs.replace(
            problem,
            subject=str(origin.subject),
            hint=f"{problem.hint}; {made_by}" if problem.hint else made_by,
        ),
        origin,
    )


def _origin_of(problem: Problem, rendered: Rendered) -> Origin | None:
    # HAProxy names auxiliary files in the message; a line of haproxy.cfg that merely refers to one is not to blame.
    for path, text in rendered.texts.items():
        if path == MAIN_TEMPLATE or path not in problem.message:
            continue
        line = problem.line if PurePosixPath(problem.source).name == PurePosixPath(path).name else 0
        origin = text.origin_of(line) if line else None
        # A file that one object made as a whole, such as a certificate.
        return origin or (text.origins[0].origin if len(text.origins) == 1 else None)
    source = rendered.texts.get(problem.source or MAIN_TEMPLATE)
    return source.origin_of(problem.line) if source is not None and problem.line else None
