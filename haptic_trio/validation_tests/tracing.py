"""Tracer of rendered template lines and their time.

Python calls the tracer at each call and, when lines are asked for, at each
line. Tracing makes a render several times slower, so it is off by default.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import msgspec
from jinja2 import Template

LEAVES: Final = -1
"""End of a function in an arc."""


class Timing(msgspec.Struct):
    """Calls and time of a template."""

    calls: int = 0
    seconds: float = 0.0
    """Own time, without included or called templates."""


class _Running:
    __slots__ = ("began", "frame", "inner", "line", "name")

    def __init__(self, frame: FrameType, name: str) -> None:
        self.frame = frame
        self.name = name
        self.line = 0
        self.inner = 0.0
        self.began = time.perf_counter()


class TemplateTracer:
    """Collects lines and times over several renders, one at a time."""

    def __init__(self, *, lines: bool) -> None:
        """Without *lines*, only times are collected."""
        self._lines = lines
        self._stack: list[_Running] = []
        self.templates: dict[str, Template] = {}
        """Rendered templates by name."""
        self.timings: dict[str, Timing] = {}
        self.executed: dict[str, set[int]] = {}
        """Lines of the compiled templates."""
        self.arcs: dict[str, set[tuple[int, int]]] = {}
        """Executed transitions between lines; the second may be `LEAVES`."""

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Trace this thread for the duration of the block."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)
            self._stack.clear()

    def _enter(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        template = frame.f_globals.get("__jinja_template__")
        if template is None:
            return None
        name = template.name or ""
        if name not in self.templates:
            self.templates[name] = template
            self.timings[name] = Timing()
            self.executed[name] = set()
            self.arcs[name] = set()
        self._stack.append(_Running(frame, name))
        frame.f_trace_lines = self._lines
        return self._follow

    def _follow(self, frame: FrameType, event: str, _argument: Any) -> Any:
        # An abandoned generator ends without another entry.
        if not self._stack or self._stack[-1].frame is not frame:
            return self._follow
        running = self._stack[-1]
        if event == "line":
            line = frame.f_lineno
            self.executed[running.name].add(line)
            if running.line:
                self.arcs[running.name].add((running.line, line))
            running.line = line
        elif event == "return":
            if running.line:
                self.arcs[running.name].add((running.line, LEAVES))
            self._leave(running)
        return self._follow

    def _leave(self, running: _Running) -> None:
        self._stack.pop()
        elapsed = time.perf_counter() - running.began
        timing = self.timings[running.name]
        timing.calls += 1
        timing.seconds += elapsed - running.inner
        if self._stack:
            self._stack[-1].inner += elapsed


def slowest_of(tracer: TemplateTracer, most: int) -> list[tuple[str, Timing]]:
    """Return the *most* slowest templates, slowest first."""
    return sorted(tracer.timings.items(), key=lambda item: -item[1].seconds)[:most]
