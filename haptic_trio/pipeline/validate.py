"""Both phases of validation, and the mapping from a message to its template and object."""

from collections.abc import Iterable
from math import inf
from pathlib import Path, PurePosixPath

import msgspec
import trio

from haptic_trio.chunked import Paged, Piece
from haptic_trio.config.templates import MAIN_TEMPLATE
from haptic_trio.dataplane.binary import HaproxyNotFoundError, list_keywords, probe_version
from haptic_trio.dataplane.local.check import (
    CheckCostlyError,
    CheckCrashedError,
    CheckDirectory,
    CheckFailedError,
    CheckReport,
    CheckTimeoutError,
    ConfigRejectedError,
    Priority,
    check_config,
)
from haptic_trio.errors import Problem
from haptic_trio.haproxy.config.parser import ConfigSyntaxError, SectionCache, parse_config
from haptic_trio.haproxy.config.quoted import without_output
from haptic_trio.haproxy.grammar.keywords import Keywords, keywords_of, shipped_keywords
from haptic_trio.haproxy.model import Generation, make_generation
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.pipeline.rejection.errors import CrashedError, RejectedError, TimedOutError, UndecidedError
from haptic_trio.pipeline.render import Rendered
from haptic_trio.redaction.names import SECRET_NAME
from haptic_trio.templating.values.subjects import FragmentKey, Origin, RenderedText, bytes_in

NEAR_PAGES = 8
NEAR_BYTES = 64 << 10
"""Limits of new text that is parsed without a thread: one or two milliseconds."""
_SECRET = "Secret"  # noqa: S105  a kind of object
CHECK_TIMES = 3
"""`haproxy -c` takes at most this multiple of the check timeout."""
COSTLY_SHARE = 0.1
"""Share of the check timeout that an object may add to the CPU time of a check before it counts as slow.
A typical object adds a millisecond."""
NAMESPACE_SHARE = 1 / 3
"""Share of the check timeout that the changed objects of one namespace may add together, if a check has timed out."""


class Validator:
    """Checks rendered configurations, one at a time."""

    def __init__(
        self,
        binary: Path,
        *,
        check_timeout: float,
        scratch: Path | None = None,
        directory: CheckDirectory | None = None,
    ) -> None:
        """Check with *binary*, in *directory*, or else in temporary directories below *scratch*.

        *check_timeout* is in seconds. The caller owns and removes *directory*;
        files that did not change since the last check are not written again.
        """
        self._binary = binary
        self._check_timeout = check_timeout
        self._scratch = scratch
        self._directory = directory
        self._keywords: Keywords | None = None
        self._former: Generation | None = None
        self._parsed: Paged[Piece] = Paged()
        self._sections = SectionCache()
        self._one_at_a_time = trio.Lock()

    def take_parsed(self, former: "Validator") -> None:
        """Begin with what *former* has parsed; it must have the same binary, and not parse meanwhile."""
        self._keywords, self._former, self._parsed = former._keywords, former._former, former._parsed  # noqa: SLF001  the two are of one class
        self._sections = former._sections.copied()  # noqa: SLF001  the two are of one class

    async def parse(self, rendered: Rendered) -> Generation:
        """Phase 1: parse *rendered* and return its generation; raises `RejectedError`."""
        try:
            if self._is_near(rendered):
                return self._parse(rendered)
            return await trio.to_thread.run_sync(self._parse, rendered)
        except ConfigSyntaxError as exc:
            raise _rejection("parse", exc.problems, rendered) from exc

    async def check(self, generation: Generation, rendered: Rendered, *, idle: bool = False) -> tuple[Problem, ...]:
        """Phase 2: run `haproxy -c` on *generation* and return its warnings; raises `RejectedError`.

        A check that times out runs again with twice the time and normal
        priority; if that times out as well, `TimedOutError` is raised. A crash
        that leads to no fragment raises `CrashedError`. *idle*: use idle CPU
        time only.
        """
        try:
            async with self._one_at_a_time:
                try:
                    priority = Priority.IDLE if idle else Priority.LOW
                    report = await self._run_check(generation, self._check_timeout, priority)
                except CheckTimeoutError:
                    limit = (CHECK_TIMES - 1) * self._check_timeout
                    report = await self._run_check(generation, limit, Priority.NORMAL)
        except ConfigRejectedError as exc:
            rejection = _rejection("check", exc.problems, rendered)
            if isinstance(exc, CheckCrashedError) and not rejection.suspects:
                raise CrashedError("check", rejection.problems) from exc
            raise rejection from exc
        except CheckTimeoutError as exc:
            error = TimedOutError("check", (_undecided(exc),))
            error.cpu_seconds = exc.cpu_seconds
            raise error from exc
        except CheckFailedError as exc:
            raise UndecidedError("check", (_undecided(exc),)) from exc
        return tuple(locate(problem, rendered)[0] for problem in report.warnings)

    @property
    def steps(self) -> int:
        """A number that changes while `parse` makes progress; for any thread."""
        return self._sections.hits + self._sections.misses

    @property
    def costly(self) -> float:
        """CPU seconds that an object may add to a check before it counts as slow."""
        return COSTLY_SHARE * self._check_timeout

    @property
    def costly_namespace(self) -> float:
        """CPU seconds that the changed objects of a namespace may add together before the namespace counts as slow."""
        return NAMESPACE_SHARE * self._check_timeout

    async def measure(self, generation: Generation, rendered: Rendered, *, most: float = inf) -> float:
        """Return the CPU seconds that `haproxy -c` takes for *generation*; infinity if more than *most*.

        Runs at normal priority, since all changes wait for the result. Raises
        `RejectedError` as `check` does, and `UndecidedError` if HAProxy does
        not finish within the time that `check` may take.
        """
        try:
            async with self._one_at_a_time:
                limit = CHECK_TIMES * self._check_timeout
                report = await self._run_check(generation, limit, Priority.NORMAL, most_cpu=most)
                return report.cpu_seconds
        except CheckCostlyError:
            return inf
        except ConfigRejectedError as exc:
            raise _rejection("check", exc.problems, rendered) from exc
        except (CheckTimeoutError, CheckFailedError) as exc:
            raise UndecidedError("check", (_undecided(exc),)) from exc

    async def _run_check(
        self, generation: Generation, limit: float, priority: Priority, *, most_cpu: float = inf
    ) -> CheckReport:
        return await check_config(
            self._binary,
            generation,
            limit=limit,
            priority=priority,
            root=self._scratch,
            directory=self._directory,
            most_cpu=most_cpu,
        )

    def _is_near(self, rendered: Rendered) -> bool:
        """Whether so little text is new that a thread would cost more than parsing here."""
        known = {id(page) for page in self._parsed.pages}
        fresh = [page for page in rendered.config.pieces.pages if id(page) not in known]
        return len(fresh) <= NEAR_PAGES and sum(page.summary(bytes_in) for page in fresh) <= NEAR_BYTES

    def _parse(self, rendered: Rendered) -> Generation:
        keywords = self._keywords = self._keywords or target_keywords(self._binary)
        config = parse_config(rendered.config.pieces, source=MAIN_TEMPLATE, cache=self._sections, keywords=keywords)
        self._former = make_generation(config, rendered.files, former=self._former)
        self._parsed = rendered.config.pieces
        return self._former


def target_keywords(binary: Path) -> Keywords:
    """Return the keywords of *binary*, so that phase 1 rejects nothing that *binary* accepts. Blocks."""
    try:
        return keywords_of(probe_version(binary).text, list_keywords(binary))
    except HaproxyNotFoundError:
        return shipped_keywords()


def _undecided(error: CheckTimeoutError | CheckFailedError) -> Problem:
    hint = "no object is quarantined; the next reconciliation checks again"
    if isinstance(error, CheckTimeoutError):
        hint += "; no object and no namespace makes the check slow: unless the machine is overloaded, the whole"
        hint += " configuration needs more time, so raise `validation.checkTimeout`"
    return Problem(message=f"no verdict: {error}", source=MAIN_TEMPLATE, hint=hint)


def slow_problem(costly: float) -> Problem:
    """Return the problem for an object that adds more than *costly* CPU seconds to a check."""
    return Problem(
        message=f"HAProxy takes more than {costly:.3g} s of CPU time to read it",
        hint=f"that is {COSTLY_SHARE:.0%} of `validation.checkTimeout`: use fewer or cheaper password hashes, smaller"
        " lists or simpler regular expressions",
    )


def slow_namespace_problem(namespace: str, costly: float) -> Problem:
    """Return the problem for an object of *namespace*, whose changed objects add more than *costly* CPU seconds."""
    return Problem(
        message=f"HAProxy takes more than {costly:.3g} s of CPU time to read the changed objects of the namespace"
        f" {namespace}, of which this is one of the youngest",
        hint="that is a third of `validation.checkTimeout`: use fewer or cheaper objects in this namespace, and then"
        " change this one: its next version is tried again",
    )


def _rejection(phase: str, problems: Iterable[Problem], rendered: Rendered) -> RejectedError:
    located = []
    suspects: dict[FragmentKey, Problem] = {}
    for problem in problems:
        found, origin = locate(problem, rendered)
        located.append(found)
        if origin is not None:
            suspects.setdefault(origin.key, found)
    return RejectedError(phase, tuple(located), suspects)


def locate(problem: Problem, rendered: Rendered) -> tuple[Problem, Origin | None]:
    """Return *problem* with its object and template, if they are known, and the origin of the line."""
    path, origin = _place_of(problem, rendered)
    output = rendered.produced.get(origin.key) if origin is not None else None
    is_secret = (output is not None and output.is_secret) or (origin is not None and origin.subject.kind == _SECRET)
    if is_secret or _names_secret(problem.line, rendered.texts.get(path)):
        problem = without_output(problem)
    elif origin is None and path in rendered.secret_texts:
        problem = without_output(problem, rendered.words)
    elif origin is None and not (problem.line and path == MAIN_TEMPLATE) and rendered.has_secrets:
        # HAProxy finds some errors after the last line, and names the proxy or the file alone.
        problem = without_output(problem, rendered.words, path)
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


def _names_secret(line: int, text: RenderedText | None) -> bool:
    """Whether *line* of *text* has the name of a secret, such as `X-Api-Key`: the rest of it may be a credential."""
    return line > 0 and text is not None and SECRET_NAME.search(text.line_at(line)) is not None


def name_object(problem: Problem, key: FragmentKey) -> Problem:
    """Return *problem* with the object of the fragment *key*."""
    return msgspec.structs.replace(problem, subject=str(ResourceRef(key.kind, key.namespace, key.name)))


def locate_fragment(problem: Problem, key: FragmentKey, rendered: Rendered) -> Problem:
    """Return *problem*, which has no line, with the object and the first line of the fragment *key* in haproxy.cfg."""
    found = next((lines for lines in rendered.config.origins if lines.origin.key == key), None)
    if found is None:
        return name_object(problem, key)
    return locate(msgspec.structs.replace(problem, source=MAIN_TEMPLATE, line=found.first), rendered)[0]


def _place_of(problem: Problem, rendered: Rendered) -> tuple[str, Origin | None]:
    # HAProxy names auxiliary files in the message; a line of haproxy.cfg that only refers to a file is not at fault.
    # The last name counts: HAProxy 3.2 and later name a crt-list before the certificate.
    named = [(problem.message.rfind(path), len(path), path) for path in rendered.texts if path != MAIN_TEMPLATE]
    last, _length, path = max(named, default=(-1, 0, ""))
    if last >= 0:
        text = rendered.texts[path]
        line = problem.line if PurePosixPath(problem.source).name == PurePosixPath(path).name else 0
        origin = text.origin_of(line) if line else None
        # One object made the whole file, such as a certificate.
        return path, origin or (text.pieces[0].origin if len(text.pieces) == 1 else None)
    path = problem.source or MAIN_TEMPLATE
    source = rendered.texts.get(path)
    return path, source.origin_of(problem.line) if source is not None and problem.line else None
