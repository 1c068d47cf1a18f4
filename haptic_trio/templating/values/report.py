"""Translation of any error raised by a render into a problem with a place.

Messages of foreign exceptions may quote a value, and values may come from
Secrets: quoted parts of such messages are removed. What a template names,
such as another template or a JSONPath, is shown only if a template contains it.
"""

import re
import sys
from collections.abc import Mapping
from types import FrameType, TracebackType
from typing import Final

from jinja2 import Template, TemplateError, TemplateNotFound, UndefinedError
from jinja2.exceptions import SecurityError

from haptic_trio.errors import HapticError, Problem
from haptic_trio.redaction.names import BLANK
from haptic_trio.redaction.quoted import without_quoted
from haptic_trio.redaction.sources import shown_source
from haptic_trio.templating.values.faults import MissingValueError, NamedFaultError, TemplateFaultError, did_you_mean
from haptic_trio.templating.values.limits import LimitReachedError, RenderAbandonedError
from haptic_trio.templating.values.object_texts import annotations_of, find_value, message_about
from haptic_trio.templating.values.subjects import Subject

_LONG: Final = re.compile(r"'[^']{61,}'|\"[^\"]{61,}\"", re.DOTALL)
_LONGEST_MESSAGE: Final = 400
_ARGUMENT: Final = "argument '"
"""Before the name of an argument, which may be a key of a mapping."""
_EMITTER: Final = re.compile(r"\A[a-z0-9_]+: ")
"""Name of the emitter, which owners of objects do not know."""
_WORD: Final = re.compile(r'"([a-z0-9-]+)"')


def problem_of(error: BaseException, subject: Subject | None = None, resource: object = None) -> Problem:
    """Return *error* as a problem at the innermost template frame of its traceback.

    Its path names the fields of *resource*, the object *subject*, that have the rejected value.
    """
    template, line = _innermost(error.__traceback__)
    name = (template.name or "") if template else ""
    sources = _sources_of(template)
    message, hint = describe(error)
    rejected = getattr(error, "value", None)
    fields = _most_likely(find_value(resource, rejected), sources.get(name, ""), line)
    if not fields and rejected is not None:
        fields = _named_annotations(resource, sources.get(name, ""), line)
    if fields:
        message = message_about(resource, fields, _EMITTER.sub("", message))
    return Problem(
        message=message,
        source=name,
        line=line,
        path=", ".join(fields),
        hint=hint,
        excerpt=excerpt(sources.get(name, ""), line),
        subject=str(subject) if subject else "",
    )


def with_callers(error: TemplateFaultError) -> TemplateFaultError:
    """Return *error* with the traceback that it would have if the caller raised it, for `problem_of`."""
    traceback: TracebackType | None = None
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  documented; `inspect` reads the source of each frame
    while frame is not None:
        traceback = TracebackType(traceback, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return error.with_traceback(traceback)


def _named_annotations(resource: object, source: str, line: int) -> tuple[str, ...]:
    """Return the annotation of *resource* that *line* of the template *source* names: a value may derive from it.

    None if the line names several.
    """
    words = set(_WORD.findall("".join(source.split("\n")[line - 1 : line])))
    annotations = annotations_of(resource)
    found = tuple(path for key, path in annotations.items() if key.rpartition("/")[2] in words)
    return found if len(found) == 1 else ()


def _most_likely(fields: tuple[str, ...], source: str, line: int) -> tuple[str, ...]:
    """Return those of *fields* that are annotations which the *line* of the template *source* names, if any are."""
    if len(fields) < 2:
        return fields
    words = _WORD.findall("".join(source.split("\n")[line - 1 : line]))
    return tuple(field for field in fields if any(field.endswith(f'/{word}"]') for word in words)) or fields


def describe(error: BaseException) -> tuple[str, str]:
    """Return a message and a hint for *error*, without values of resources."""
    hint = ""
    sources = _sources_of(_innermost(error.__traceback__)[0])

    def is_in_template(text: str) -> bool:
        return any(text in source for source in sources.values())

    if isinstance(error, TemplateFaultError | LimitReachedError | MissingValueError):
        message, hint = str(error), error.hint
        if isinstance(error, NamedFaultError):
            message = without_quoted(message, is_in_template)
    elif isinstance(error, RenderAbandonedError):
        message = str(error)
    elif isinstance(error, RecursionError):
        message, hint = "templates nest too deeply", "a macro or an include that calls itself never ends"
    elif isinstance(error, MemoryError):
        message = "the render ran out of memory"
    elif isinstance(error, TemplateNotFound):
        missing = str(error.name or error)
        missing = missing if is_in_template(missing) else BLANK
        message, hint = f"there is no template {missing!r}", did_you_mean(missing, sources)
    elif isinstance(error, SecurityError):
        message = "access is not allowed in templates"
    elif isinstance(error, UndefinedError | TemplateError | HapticError):
        message = without_quoted(str(error), is_in_template)
    elif isinstance(error, TypeError):
        message = f"a value has the wrong type: {error}"
        # Others quote types.
        message = without_quoted(message, is_in_template) if _ARGUMENT in message else message
    elif isinstance(error, ZeroDivisionError):
        message = "division by zero"
    else:
        message = f"{type(error).__name__}: {without_quoted(str(error), lambda _: False)}"
    message = _LONG.sub("'…'", message)
    return (message if len(message) <= _LONGEST_MESSAGE else message[:_LONGEST_MESSAGE] + "…"), hint


def excerpt(source: str, line: int) -> str:
    """Return up to three lines round *line* of *source*, the one in question marked with `>`; without credentials."""
    lines = shown_source(source).split("\n")
    if not 1 <= line <= len(lines):
        return ""
    first, last = max(1, line - 1), min(len(lines), line + 1)
    if last == len(lines) and not lines[-1] and last > line:
        last -= 1
    width = len(str(last))
    return "\n".join(
        f"{'>' if number == line else ' '} {number:>{width}} | {lines[number - 1]}"[:200]
        for number in range(first, last + 1)
    )


def _sources_of(template: Template | None) -> Mapping[str, str]:
    return getattr(template.environment, "sources", {}) if template else {}


def _innermost(traceback: TracebackType | None) -> tuple[Template | None, int]:
    template: Template | None = None
    line = 0
    while traceback is not None:
        found = traceback.tb_frame.f_globals.get("__jinja_template__")
        if isinstance(found, Template):
            template = found
            line = found.get_corresponding_lineno(traceback.tb_lineno)
        traceback = traceback.tb_next
    return template, line
