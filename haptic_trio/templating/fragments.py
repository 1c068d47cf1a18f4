"""`{% fragment "name" for object %} … {% endfragment %}`: a piece of output that belongs to one object.

What an object breaks is reported, and its last good output stands in for it, or
nothing; everything else renders on. The body compiles to a closure without arguments that reaches
objects only through the render's variables.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import msgspec
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from haptic_trio.errors import Problem
from haptic_trio.templating.emit import Emitted, TemplateFaultError
from haptic_trio.templating.marks import mark, strip_marks
from haptic_trio.templating.outputs import FragmentOutput
from haptic_trio.templating.paths import RenderedFile
from haptic_trio.templating.report import problem_of
from haptic_trio.templating.run import RenderRun, current_run
from haptic_trio.templating.subjects import LineRange, Origin, Refusal, RenderedText, subject_of


def internal_name(code: str, lineno: int) -> nodes.InternalName:
    """Return a node that compiles to the Python expression *code*."""
    # Jinja refuses the constructor, so that extensions do not clash with each other; ours carry a prefix.
    node: nodes.InternalName = object.__new__(nodes.InternalName)
    nodes.Node.__init__(node, code, lineno=lineno)
    return node


class FragmentTag(Extension):
    """The tag."""

    tags = {"fragment"}  # noqa: RUF012  the base class declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse the tag into a call block of `render_fragment`."""
        line = next(parser.stream).lineno
        name = parser.parse_expression()
        parser.stream.expect("name:for")
        resource = parser.parse_expression()
        body = parser.parse_statements(("name:endfragment",), drop_needle=True)
        arguments: list[nodes.Expr] = [name, resource, nodes.Const(parser.name or "", lineno=line)]
        arguments.append(nodes.Const(line, lineno=line))
        call = nodes.Call(internal_name("h_fragment", line), arguments, [], None, None, lineno=line)
        return nodes.CallBlock(call, [], [], body, lineno=line)


class IncludeSnippetsTag(Extension):
    """`{% include_snippets "prefix-*" %}`: include every snippet that matches, by priority, then by name."""

    tags = {"include_snippets"}  # noqa: RUF012  the base class declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse the tag into a loop of includes."""
        line = next(parser.stream).lineno
        pattern = parser.parse_expression()
        snippet = parser.free_identifier(lineno=line)
        names = nodes.Call(nodes.Name("snippets", "load", lineno=line), [pattern], [], None, None, lineno=line)
        include = nodes.Include(snippet, True, False, lineno=line)
        return nodes.For(snippet, names, [include], [], None, False, lineno=line)


def render_fragment(
    name: str, resource: Mapping[str, Any], template: str, line: int, caller: Callable[[], str]
) -> Emitted:
    """Return the output of *caller* marked with its origin.

    If it fails, which is recorded in the run, the last good output of this
    fragment and object stands in for it, or nothing.
    """
    run = current_run()
    if not isinstance(resource, Mapping):
        raise TemplateFaultError(f"the fragment {name!r} is for something that is not an object")
    subject = subject_of(resource)
    ordinal = run.ordinals[name, subject]
    run.ordinals[name, subject] = ordinal + 1
    origin = Origin(str(name), subject, str(template), line, ordinal)
    registered, depth = len(run.files), len(run.subjects)
    run.subjects.append(subject)
    try:
        text = caller()
    except (RecursionError, MemoryError):
        # No fault of this object. It stays on the stack, so that the error can name it.
        raise
    except Exception as error:  # noqa: BLE001  whatever an object's data breaks must break this object alone
        del run.subjects[depth:]
        _unregister(run, registered)
        return _stand_in(run, origin, problem_of(error, subject))
    del run.subjects[depth:]
    key = origin.key
    output = FragmentOutput(strip_marks(text), _registered(run, registered), subject.resource_version)
    blocked = run.recall.blocked.get(key)
    if blocked is not None and (problem := blocked.get(output.digest())) is not None:
        _unregister(run, registered)
        return _stand_in(run, origin, problem)
    run.produced[key] = output
    _attribute_files(run, len(run.files) - registered, origin)
    return _marked(run, origin, text)


def _stand_in(run: RenderRun, origin: Origin, problem: Problem) -> Emitted:
    key = origin.key
    good = run.recall.good.get(key)
    if good is not None and (
        good.digest() in run.recall.blocked.get(key, {}) or any(file.path in run.files for file in good.files)
    ):
        # HAProxy has come to refuse that, too, or others have taken the names of its files.
        good = None
    run.refusals.append(Refusal(origin.fragment, origin.subject, problem, origin.ordinal, good is not None))
    if good is None:
        return Emitted("")
    run.produced[key] = good
    registered = len(run.files)
    run.files.update({file.path: file for file in good.files})
    _attribute_files(run, len(run.files) - registered, origin)
    return _marked(run, origin, good.text)


def _marked(run: RenderRun, origin: Origin, text: str) -> Emitted:
    if not text:
        return Emitted("")
    run.origins.append(origin)
    return mark(text, len(run.origins) - 1)


def _registered(run: RenderRun, before: int) -> tuple[RenderedFile, ...]:
    """Return the files that were registered after the first *before*; the cost is that of these."""
    return tuple(islice(reversed(run.files.values()), len(run.files) - before))[::-1]


def _unregister(run: RenderRun, before: int) -> None:
    while len(run.files) > before:
        run.files.popitem()


def _attribute_files(run: RenderRun, count: int, origin: Origin) -> None:
    """Note that *origin* made the newest *count* files, where no fragment inside them says otherwise."""
    # From the end, so that the cost is that of the fragment's own files; a list, since values are replaced.
    for path in list(islice(reversed(run.files), count)):
        file = run.files[path]
        if not file.content.origins:
            lines = max(1, len(file.text.splitlines()))
            content = RenderedText(file.text, (LineRange(1, lines, origin),))
            run.files[path] = msgspec.structs.replace(file, content=content)
