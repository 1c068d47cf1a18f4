"""Rendering of a test's fixtures, sharing work between tests.

All tests with the same variables share a renderer and its stores. From one
test to the next only what differs between their objects is rendered.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from haptic_trio.config.libraries import merge_context
from haptic_trio.config.model import Config, ValidationTest
from haptic_trio.config.templates import MAIN_TEMPLATE, template_set
from haptic_trio.errors import Problem
from haptic_trio.explain.template_lines import with_origins
from haptic_trio.haproxy.config.parser import ConfigSyntaxError, SectionCache, parse_config
from haptic_trio.haproxy.grammar.keywords import Keywords, shipped_keywords
from haptic_trio.haproxy.model import Generation, make_generation
from haptic_trio.httpstore.content import Failure
from haptic_trio.httpstore.contents import FixedContents
from haptic_trio.k8s.store import Stores
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.pipeline.validate import locate
from haptic_trio.validation_tests.fixtures import (
    Contents,
    ExpandedFixtures,
    FixtureCache,
    Objects,
    fill_stores,
    make_stores,
    objects_by_store,
)

_NOT_GIVEN = Failure(
    "the test does not give it", "add it to `httpResources`, with a `content` or an `error`", is_fault=True
)

Tracing = Callable[[], AbstractContextManager[object]]
"""Context manager around each render, in its thread."""


class OwnTemplates:
    """The templates that users write themselves, and whose lines they can correct."""

    def __init__(self, config: Config, names: frozenset[str]) -> None:
        """*names* are those of the user's templates among all of *config*."""
        self._config = config
        self._names = names

    def find(self, problems: Iterable[Problem], output: Rendered | None = None) -> tuple[Problem, ...]:
        """Return *problems*; those with a line of haproxy.cfg in *output* get the line of the user's template."""
        found = tuple(problems)
        if output is None or not self._names:
            return found
        traced = with_origins(found, output.texts[MAIN_TEMPLATE].text, template_set(self._config).texts, self._names)
        return tuple(new if self.has(new) else old for old, new in zip(found, traced, strict=True))

    def has(self, problem: Problem) -> bool:
        """Whether *problem* names a line of one of the user's templates, and not one of haproxy.cfg."""
        return bool(problem.line) and problem.source in self._names and problem.source != MAIN_TEMPLATE

    def choose(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        """Return those of *problems* that are in the user's templates."""
        return tuple(filter(self.has, problems))


class Rendering(msgspec.Struct, frozen=True, kw_only=True):
    """Result of rendering one cluster."""

    output: Rendered | None
    """None if a template failed outside of fragments."""
    generation: Generation | None
    """None if the parser rejects the output."""
    problems: tuple[Problem, ...] = ()
    """Problems, if there is no generation."""


class RenderedTest(msgspec.Struct, frozen=True, kw_only=True):
    """A rendered test: the input of its assertions."""

    test: ValidationTest
    rendering: Rendering
    before: Rendering | None
    """Render of the cluster before the change; None without one."""
    seen: Mapping[str, Any]
    """Variables of templates, as plain data."""
    again: Callable[[int], Rendering]
    """Renders everything again, with the objects in an order that depends on the number."""
    own: OwnTemplates
    """Finds the lines of the user's templates that problems are in."""


class _VariantRenderer:
    """The renderer of one set of variables."""

    def __init__(self, config: Config, keywords: Keywords, tracing: Tracing, own: OwnTemplates) -> None:
        self.config = config
        self._own = own
        self._keywords = keywords
        self._tracing = tracing
        self._contents = FixedContents({}, _NOT_GIVEN)
        self._renderer = Renderer(config, self._contents)
        self._stores = make_stores(config)
        self._sections = SectionCache()
        self._other: Renderer | None = None

    def render(self, objects: Objects, contents: Contents) -> Rendering:
        fill_stores(self._stores, objects)
        self._contents.by_url = contents
        return self._render(self._renderer, self._stores)

    def render_again(self, objects: Objects, contents: Contents, number: int) -> Rendering:
        # A renderer keeps the state of one set of stores.
        self._contents.by_url = contents
        self._other = self._other or Renderer(self.config, self._contents)
        stores = make_stores(self.config)
        fill_stores(stores, objects, shuffled=random.Random(number))  # noqa: S311  reproducible order
        return self._render(self._other, stores)

    def parse(self, text: str, like: Generation) -> Rendering:
        """Return *text* with the files of *like*, as if it had been rendered."""
        try:
            config = parse_config(text, source="currentConfig", keywords=self._keywords)
        except ConfigSyntaxError as exc:
            return Rendering(output=None, generation=None, problems=exc.problems)
        return Rendering(output=None, generation=make_generation(config, like.files))

    def _render(self, renderer: Renderer, stores: Stores) -> Rendering:
        try:
            with self._tracing():
                rendered = renderer.render_here(stores)
        except RejectedError as exc:
            return Rendering(output=None, generation=None, problems=exc.problems)
        try:
            config = parse_config(
                rendered.config.pieces, source=MAIN_TEMPLATE, cache=self._sections, keywords=self._keywords
            )
        except ConfigSyntaxError as exc:
            problems = self._own.find((locate(problem, rendered)[0] for problem in exc.problems), rendered)
            return Rendering(output=rendered, generation=None, problems=problems)
        return Rendering(output=rendered, generation=make_generation(config, rendered.files))


class CaseRenderer:
    """Renders the tests of one configuration. Blocking; not thread-safe."""

    def __init__(
        self,
        config: Config,
        *,
        keywords: Keywords | None = None,
        tracing: Tracing = nullcontext,
        own: frozenset[str] = frozenset(),
    ) -> None:
        """*keywords* are those of the tested HAProxy; default: those of the newest version.

        *own* are the names of the templates that the user writes.
        """
        self._config = config
        self._own = OwnTemplates(config, own)
        self._keywords = keywords or shipped_keywords()
        self._tracing = tracing
        self._fixtures = FixtureCache(config)
        self._renderers: dict[bytes, _VariantRenderer] = {}

    def render(self, test: ValidationTest) -> RenderedTest:
        """Render the fixtures of *test*, and those before the change; raises `ProblemsError` for invalid templates."""
        fixtures = self._fixtures.expand(test)
        renderer = self._renderer(fixtures.context)
        objects = objects_by_store(renderer.config, fixtures.objects)
        before = self._render_before(renderer, fixtures)
        rendering = renderer.render(objects, fixtures.contents)
        if before is None and fixtures.current_config and rendering.generation is not None:
            before = renderer.parse(fixtures.current_config, rendering.generation)
        return RenderedTest(
            test=test,
            rendering=rendering,
            before=before,
            seen={**renderer.config.templating.extra_context, "resources": objects},
            again=lambda number: renderer.render_again(objects, fixtures.contents, number),
            own=self._own,
        )

    def _render_before(self, renderer: _VariantRenderer, fixtures: ExpandedFixtures) -> Rendering | None:
        if fixtures.previous is None:
            return None
        return renderer.render(objects_by_store(renderer.config, fixtures.previous), fixtures.previous_contents)

    def _renderer(self, context: dict[str, Any]) -> _VariantRenderer:
        key = msgspec.json.encode(context, order="sorted")
        if key not in self._renderers:
            templating = self._config.templating
            merged = merge_context(templating.extra_context, context)
            config = msgspec.structs.replace(
                self._config, templating=msgspec.structs.replace(templating, extra_context=merged)
            )
            self._renderers[key] = _VariantRenderer(config, self._keywords, self._tracing, self._own)
        return self._renderers[key]
