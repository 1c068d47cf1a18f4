"""Templates and objects to a configuration with its files, in a worker thread."""

from collections.abc import Mapping

import msgspec
import trio

from haptic_trio.config.model import Config
from haptic_trio.config.templates import MAIN_TEMPLATE, template_set
from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.haproxy.model import AuxFile, FileKind, make_file
from haptic_trio.k8s.store import ReadableStore
from haptic_trio.pipeline.refusal import RefusedError
from haptic_trio.templating.emit import trust
from haptic_trio.templating.engine import Engine
from haptic_trio.templating.limits import RenderLimits
from haptic_trio.templating.outputs import FragmentOutput, Recall
from haptic_trio.templating.paths import Paths
from haptic_trio.templating.run import RenderRun
from haptic_trio.templating.subjects import FragmentKey, Refusal, RenderedText
from haptic_trio.templating.views import ResourcesView

CANCELLED = float("-inf")


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration as the templates made it, not yet looked at by anybody."""

    text: str
    files: tuple[AuxFile, ...]
    texts: Mapping[str, RenderedText]
    """Every text with its origins: `haproxy.cfg`, and the files by path."""
    produced: Mapping[FragmentKey, FragmentOutput]
    """What each fragment gave, stand-ins included."""
    refusals: tuple[Refusal, ...]
    """The fragments whose objects could not be rendered as they are."""


class Renderer:
    """The compiled templates of one configuration. Renders one at a time."""

    def __init__(self, config: Config) -> None:
        """Compile the templates of *config*; raises a `ProblemsError` with all that is wrong with them."""
        templates = template_set(config)
        self._engine = Engine(templates.texts, snippets=templates.priorities)
        self._outputs = templates.outputs
        self._context = {key: trust(value) for key, value in config.templating.extra_context.items()}
        self._limits = RenderLimits(config.templating.render_timeout, config.templating.max_output_bytes)
        self._paths = Paths(
            maps_dir=config.dataplane.maps_dir,
            ssl_certs_dir=config.dataplane.ssl_certs_dir,
            general_dir=config.dataplane.general_storage_dir,
        )
        self._limiter = trio.CapacityLimiter(1)

    async def render(self, stores: Mapping[str, ReadableStore], recall: Recall | None = None) -> Rendered:
        """Render everything from *stores*; raises `RefusedError` when a template fails outside any object.

        What *recall* holds stands in for fragments that fail. The stores must not change meanwhile.
        """
        run = RenderRun(self._limits, paths=self._paths, recall=recall)
        try:
            return await trio.to_thread.run_sync(
                self._render, stores, run, limiter=self._limiter, abandon_on_cancel=True
            )
        finally:
            # A thread that was abandoned meets its deadline at the next loop or call, and ends.
            run.deadline = CANCELLED

    def _render(self, stores: Mapping[str, ReadableStore], run: RenderRun) -> Rendered:
        context = {**self._context, "resources": ResourcesView(stores)}
        problems: list[Problem] = []
        texts: dict[str, RenderedText] = {}
        files: list[AuxFile] = []
        for output in self._outputs:
            try:
                text = texts[output.path] = self._engine.render(output.name, context, run)
            except ProblemsError as exc:
                problems += exc.problems
            else:
                files.append(make_file(output.kind, output.path, text.text, secret=output.secret))
        try:
            texts[MAIN_TEMPLATE] = self._engine.render(MAIN_TEMPLATE, context, run)
        except ProblemsError as exc:
            problems += exc.problems
        if problems:
            raise RefusedError("render", tuple(problems))
        for file in run.files.values():
            texts[file.path] = file.content
            kind = FileKind(file.kind.value)
            files.append(make_file(kind, file.path, file.text, secret=kind is FileKind.CERT))
        return Rendered(
            text=texts[MAIN_TEMPLATE].text,
            files=tuple(files),
            texts=texts,
            produced=run.produced,
            refusals=tuple(run.refusals),
        )
