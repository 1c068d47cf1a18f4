"""Test runner: renders in one thread, and checks and serves in HAProxy processes beside it."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import trio

from haptic_trio.config.assertions import Behaviour, HaproxyValid
from haptic_trio.dataplane.local.check import CheckFailedError, CheckTimeoutError, ConfigRejectedError, check_config
from haptic_trio.haproxy.grammar.keywords import Keywords
from haptic_trio.haproxy.model import Generation
from haptic_trio.pipeline.validate import locate, target_keywords
from haptic_trio.validation_tests.behaviour import observe
from haptic_trio.validation_tests.cases import Case, Examined, examine, finish, judged, skipped
from haptic_trio.validation_tests.live.instance import InstanceError
from haptic_trio.validation_tests.live.pool import InstancePool
from haptic_trio.validation_tests.rendering import CaseRenderer, RenderedTest, Tracing
from haptic_trio.validation_tests.results import CaseResult, Checked
from haptic_trio.validation_tests.static import Fault, describe_problems

NO_HAPROXY: Final = "there is no HAProxy to ask"
MOST_IDLE: Final = 3
"""Idle instances that are kept for tests with the same configuration."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a run."""

    binary: Path | None
    """HAProxy binary; without it, assertions that need it are skipped."""
    jobs: int = 4
    """Maximum number of concurrent tests."""
    scratch: Path | None = None
    """Directory for temporary files; default: the system's."""


class Runner:
    """Runs cases; shares renders and checks between them."""

    def __init__(self, options: RunOptions, *, tracing: Tracing | None = None) -> None:
        self._options = options
        self._tracing = tracing
        self._renderers: dict[str, CaseRenderer] = {}
        self._keywords: Keywords | None = None
        self._rendering = trio.CapacityLimiter(1)
        self._checks: dict[str, _Once] = {}
        self._pool: InstancePool | None = None

    async def run(self, cases: Sequence[Case], report: Callable[[CaseResult], None]) -> list[CaseResult]:
        """Run *cases* and return their results in the same order; *report* gets each result when it is ready."""
        binary = self._options.binary
        if binary is not None:
            self._keywords = await trio.to_thread.run_sync(target_keywords, binary)
            self._pool = InstancePool(binary, most_idle=MOST_IDLE, scratch=self._options.scratch)
        results: dict[int, CaseResult] = {}
        waiting = list(reversed(list(enumerate(cases))))

        async with trio.open_nursery() as serving:

            async def work() -> None:
                while waiting:
                    number, case = waiting.pop()
                    results[number] = await self._run_case(case, serving)
                    report(results[number])

            async with trio.open_nursery() as working:
                for _ in range(max(1, self._options.jobs)):
                    working.start_soon(work)
            serving.cancel_scope.cancel(reason="all tests are done")
        return [results[number] for number in range(len(cases))]

    async def _run_case(self, case: Case, nursery: trio.Nursery) -> CaseResult:
        examined = await trio.to_thread.run_sync(self._examine, case, limiter=self._rendering)
        began = trio.current_time()
        more = await self._ask_haproxy(examined, nursery) if examined.open else []
        return finish(examined, more, trio.current_time() - began)

    def _examine(self, case: Case) -> Examined:
        name = case.suite.name
        if name not in self._renderers:
            more = {"tracing": self._tracing} if self._tracing is not None else {}
            self._renderers[name] = CaseRenderer(
                case.suite.config, keywords=self._keywords, own=case.suite.own_templates, **more
            )
        return examine(case, self._renderers[name])

    async def _ask_haproxy(self, examined: Examined, nursery: trio.Nursery) -> list[Checked]:
        case, binary = examined.case, self._options.binary
        assert examined.rendered is not None
        generation = examined.rendered.rendering.generation
        if binary is None:
            return [skipped(case, index, NO_HAPROXY) for index, _ in examined.open]
        if generation is None:
            problems = examined.rendered.rendering.problems
            fault = Fault(
                f"there is no valid configuration: {describe_problems(problems)}",
                causes=examined.rendered.own.choose(problems),
            )
            return [judged(case, index, fault, 0.0) for index, _ in examined.open]
        found = []
        for index, assertion in examined.open:
            if isinstance(assertion, HaproxyValid):
                began = trio.current_time()
                rejection = await self._check(binary, generation, examined.rendered, case)
                found.append(judged(case, index, rejection, trio.current_time() - began))
        behaviours = [(index, one) for index, one in examined.open if isinstance(one, Behaviour)]
        if behaviours:
            found += await self._observe_all(generation, case, behaviours, nursery)
        return found

    async def _check(self, binary: Path, generation: Generation, rendered: RenderedTest, case: Case) -> Fault | None:
        limit = case.suite.config.validation.check_timeout

        async def ask() -> Fault | None:
            return await check_with(binary, generation, rendered, limit=limit, scratch=self._options.scratch)

        return await self._checks.setdefault(generation.id, _Once()).get(ask)

    async def _observe_all(
        self, generation: Generation, case: Case, behaviours: Sequence[tuple[int, Behaviour]], nursery: trio.Nursery
    ) -> list[Checked]:
        assert self._pool is not None
        try:
            async with self._pool.borrow(generation, nursery=nursery) as instance:
                found = []
                for index, assertion in behaviours:
                    began = trio.current_time()
                    fault = await observe(assertion, instance)
                    found.append(judged(case, index, fault, trio.current_time() - began))
                return found
        except InstanceError as exc:
            fault = Fault(str(exc))
            return [judged(case, index, fault, 0.0) for index, _ in behaviours]


async def check_with(
    binary: Path, generation: Generation, rendered: RenderedTest, *, limit: float, scratch: Path | None
) -> Fault | None:
    """Return the failure of `haproxy -c` for *generation*, or None."""
    try:
        await check_config(binary, generation, limit=limit, root=scratch)
    except ConfigRejectedError as exc:
        output = rendered.rendering.output
        problems = [locate(one, output)[0] if output is not None else one for one in exc.problems]
        traced = rendered.own.find(problems, output)
        return Fault(f"haproxy -c: {describe_problems(traced)}", causes=rendered.own.choose(traced))
    except (CheckTimeoutError, CheckFailedError) as exc:
        return Fault(str(exc))
    return None


class _Once:
    """A check that several tests share."""

    def __init__(self) -> None:
        self._lock = trio.Lock()
        self._answers: list[Fault | None] = []

    async def get(self, ask: Callable[[], Awaitable[Fault | None]]) -> Fault | None:
        async with self._lock:
            if not self._answers:
                self._answers.append(await ask())
            return self._answers[0]
