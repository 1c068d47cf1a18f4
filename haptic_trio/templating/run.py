"""The state of one run: what several renders that belong together share."""

from collections import Counter
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from jinja2 import Template
from jinja2.environment import TemplateModule

from haptic_trio.templating.limits import Meter, RenderLimits
from haptic_trio.templating.outputs import FragmentOutput, Recall
from haptic_trio.templating.paths import Paths, RenderedFile
from haptic_trio.templating.subjects import FragmentKey, Origin, Refusal, Subject


class RenderRun(Meter):
    """Deadline, budget, files, origins and refusals of one run.

    One render at a time; not to be shared between threads. The deadline is
    set by the first render.
    """

    __slots__ = (
        "files",
        "modules",
        "ordinals",
        "origins",
        "paths",
        "produced",
        "recall",
        "refusals",
        "subjects",
        "variables",
    )

    def __init__(
        self, limits: RenderLimits | None = None, *, paths: Paths | None = None, recall: Recall | None = None
    ) -> None:
        super().__init__(limits or RenderLimits())
        self.recall = recall or Recall()
        self.produced: dict[FragmentKey, FragmentOutput] = {}
        """What each fragment gave, stand-ins included."""
        self.ordinals: Counter[tuple[str, Subject]] = Counter()
        self.paths = paths or Paths()
        self.files: dict[str, RenderedFile] = {}
        """Files registered while rendering, by path."""
        self.refusals: list[Refusal] = []
        self.origins: list[Origin] = []
        """Every fragment rendered so far; marks in the text are indexes into it."""
        self.subjects: list[Subject] = []
        """The objects in hand, outermost first."""
        self.variables: Mapping[str, Any] = {}
        self.modules: dict[str | None, TemplateModule] = {}

    def begin(self, variables: Mapping[str, Any]) -> None:
        """Start a render with *variables*."""
        self.start()
        self.variables = variables
        self.modules = {}
        self.subjects.clear()

    def module(self, template: Template) -> TemplateModule:
        """Return *template* as imported by this render; it sees the render's variables, not the importer's."""
        module = self.modules.get(template.name)
        if module is None:
            module = self.modules[template.name] = template.make_module(dict(self.variables))
        return module


CURRENT: ContextVar[RenderRun] = ContextVar("haptic_trio_render_run")
current_run = CURRENT.get
