"""The template engine: compile once, render often, from any one thread at a time per run."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.templating.checks import TemplateChecker
from haptic_trio.templating.functions import GLOBALS, make_snippets
from haptic_trio.templating.incremental.recorder import CURRENT
from haptic_trio.templating.incremental.refresh import refresh
from haptic_trio.templating.incremental.run import RenderRun
from haptic_trio.templating.incremental.scope import Memo
from haptic_trio.templating.sandbox import TemplateEnvironment
from haptic_trio.templating.values.faults import did_you_mean
from haptic_trio.templating.values.limits import LimitReachedError, RenderAbandonedError, RenderLimits
from haptic_trio.templating.values.paths import Paths
from haptic_trio.templating.values.report import problem_of
from haptic_trio.templating.values.subjects import RenderedText
from haptic_trio.templating.values.text import Emitted


class TemplateSyntaxProblems(ProblemsError):  # noqa: N818  a ProblemsError by its base
    """Templates cannot be compiled; trying again helps only after they have changed."""


class RenderError(ProblemsError):
    """A render failed outside all fragments; trying again helps after the template or its data has changed."""


class RenderLimitError(RenderError):
    """A render was given up, or what templates do outside of fragments took too long or grew too large.

    Trying again helps with more time, other limits or another template.
    """


class Engine:
    """A fixed set of templates, compiled. Safe to use from several threads, each with a run of its own."""

    def __init__(
        self,
        templates: Mapping[str, str],
        *,
        snippets: Mapping[str, int] | None = None,
        limits: RenderLimits | None = None,
    ) -> None:
        """Compile *templates*; raise `TemplateSyntaxProblems` with every problem of every template.

        *snippets* names those templates that may be included by prefix, with
        their priorities; lower comes first.
        """
        self.limits = limits or RenderLimits()
        priorities = dict(snippets or {})
        self._snippets = make_snippets(priorities)
        functions = {**GLOBALS, "snippets": self._snippets}
        self._environment = TemplateEnvironment(dict(templates), functions)
        checker = TemplateChecker(self._environment)
        checker.compile_all()
        problems = checker.problems + [
            Problem(message=f"the snippet {name!r} has no template", source=name, hint=did_you_mean(name, templates))
            for name in priorities
            if name not in templates
        ]
        if problems:
            raise TemplateSyntaxProblems(problems)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all templates."""
        return tuple(self._environment.compiled)

    def stale_since(self, former: "Engine", variables: AbstractSet[str]) -> frozenset[str]:
        """Return the templates that may render differently than in *former*, when *variables* have other values.

        A template that includes or imports one of them is not among them.
        """
        own = self._environment.analyses
        other = former._environment.analyses  # noqa: SLF001  both are of one class
        return frozenset(
            name
            for name in own.keys() | other.keys()
            if name not in own
            or name not in other
            or own[name].code is not other[name].code
            or not variables.isdisjoint(own[name].names)
            or self._included_by(name) != former._included_by(name)  # noqa: SLF001  both are of one class
        )

    def declare(self, former: "Engine", memo: Memo) -> None:
        """Have *memo* take what variables and macros have of *former* for what they have of this engine."""
        memo.declare(former._environment, self._environment)  # noqa: SLF001  the two are of one class
        memo.declare(former._snippets, self._snippets)  # noqa: SLF001  the two are of one class

    def _included_by(self, name: str) -> list[list[Emitted]]:
        patterns = self._environment.analyses[name].patterns
        return [self._snippets(pattern) for pattern in (("*",) if patterns is None else patterns)]

    def dismantle(self) -> None:
        """Break the circles of references of the compiled templates; nothing may render any more."""
        self._environment.dismantle()

    def start_run(self, *, paths: Paths | None = None) -> RenderRun:
        """Return a new run under this engine's limits."""
        return RenderRun(self.limits, paths=paths)

    def render(self, name: str, context: Mapping[str, Any], run: RenderRun) -> RenderedText:
        """Render the template *name* with the variables *context*; blocking, for a worker thread.

        Files, rejections and origins are collected in *run*. If that has the
        template already, with the same *context*, only what has been touched
        since is rendered. Raises `RenderLimitError` for a limit and
        `RenderError` for whatever else fails outside of fragments.
        """
        template = self._environment.compiled.get(name)
        if template is None:
            hint = did_you_mean(name, self._environment.compiled)
            raise RenderError([Problem(message=f"there is no template {name!r}", hint=hint)])
        token = CURRENT.set(run)
        try:
            return refresh(run, name, template, context)
        except (LimitReachedError, RenderAbandonedError, RecursionError, MemoryError) as error:
            raise RenderLimitError([self._problem(name, run, error)]) from None
        except Exception as error:  # noqa: BLE001  whatever a template or its data raises is reported with its place
            raise RenderError([self._problem(name, run, error)]) from None
        finally:
            CURRENT.reset(token)

    def _problem(self, name: str, run: RenderRun, error: BaseException) -> Problem:
        problem = problem_of(error, run.failed_for)
        return problem if problem.source else Problem(message=problem.message, source=name, hint=problem.hint)
