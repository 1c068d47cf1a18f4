"""Templates and objects to a configuration with its files, in a worker thread."""

from collections.abc import Iterator, Mapping

import msgspec
import trio

from haptic_trio.config.model import Config
from haptic_trio.config.templates import MAIN_TEMPLATE, template_set
from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.haproxy.model import AuxFile, FileKind, make_file
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.k8s.store import ReadableStore
from haptic_trio.pipeline.refusal import RefusedError
from haptic_trio.templating.emit import trust
from haptic_trio.templating.engine import Engine
from haptic_trio.templating.limits import RenderLimits
from haptic_trio.templating.paths import Paths
from haptic_trio.templating.run import RenderRun
from haptic_trio.templating.subjects import RenderedText, Subject
from haptic_trio.templating.views import ResourcesView

CANCELLED = float("-inf")


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration as the templates made it, not yet looked at by anybody."""

    text: str
    files: tuple[AuxFile, ...]
    texts: Mapping[str, RenderedText]
    """Every text with its origins: `haproxy.cfg`, and the files by path."""
    refused: Mapping[ResourceRef, Problem]
    """The objects that could not be rendered; nothing of the fragments concerned is in the texts."""


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

    async def render(self, stores: Mapping[str, ReadableStore]) -> Rendered:
        """Render everything from *stores*; raises `RefusedError` when a template fails outside any object.

        The stores must not change meanwhile.
        """
        run = RenderRun(self._limits, paths=self._paths)
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
        problems += _faults_of_templates(run)
        if problems:
            raise RefusedError("render", tuple(problems))
        for file in run.files.values():
            texts[file.path] = file.content
            kind = FileKind(file.kind.value)
            files.append(make_file(kind, file.path, file.text, secret=kind is FileKind.CERT))
        return Rendered(text=texts[MAIN_TEMPLATE].text, files=tuple(files), texts=texts, refused=dict(_refused(run)))


def _faults_of_templates(run: RenderRun) -> Iterator[Problem]:
    """Yield a problem for each fragment that failed for all of several objects: that is the template's fault.

    To leave all of them out would turn a slip of the pen into an outage.
    """
    succeeded = {origin.fragment for origin in run.origins}
    failed: dict[str, dict[Subject, Problem]] = {}
    for refusal in run.refusals:
        failed.setdefault(refusal.fragment, {})[refusal.subject] = refusal.problem
    for fragment, by_subject in failed.items():
        if len(by_subject) > 1 and fragment not in succeeded:
            problem = next(iter(by_subject.values()))
            yield msgspec.structs.replace(
                problem, message=f"fragment '{fragment}' fails for all {len(by_subject)} objects: {problem.message}"
            )


def ref_of_subject(subject: Subject) -> ResourceRef:
    """Return the reference of the object that *subject* is."""
    return ResourceRef(subject.kind, subject.namespace, subject.name)


def _refused(run: RenderRun) -> Iterator[tuple[ResourceRef, Problem]]:
    for refusal in run.refusals:
        yield ref_of_subject(refusal.subject), refusal.problem
