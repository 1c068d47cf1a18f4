"""`{% fragment "name" for object %} … {% endfragment %}`: a piece of output that belongs to one object.

What an object breaks is left out with its fragment, and reported; everything
else renders on. The body compiles to a closure without arguments that reaches
objects only through the render's variables.
"""

from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from haptic_trio.templating.emit import Emitted, TemplateFaultError
from haptic_trio.templating.marks import mark
from haptic_trio.templating.report import problem_of
from haptic_trio.templating.run import current_run
from haptic_trio.templating.subjects import Origin, Refusal, subject_of


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
    """Return the output of *caller* marked with its origin; nothing if it failed, which is recorded in the run."""
    run = current_run()
    if not isinstance(resource, Mapping):
        raise TemplateFaultError(f"the fragment {name!r} is for something that is not an object")
    subject = subject_of(resource)
    registered, depth = len(run.files), len(run.subjects)
    run.subjects.append(subject)
    try:
        text = caller()
    except (RecursionError, MemoryError):
        # No fault of this object. It stays on the stack, so that the error can name it.
        raise
    except Exception as error:  # noqa: BLE001  whatever an object's data breaks must break this object alone
        for path in list(run.files)[registered:]:
            del run.files[path]
        del run.subjects[depth:]
        run.refusals.append(Refusal(str(name), subject, problem_of(error, subject)))
        return Emitted("")
    del run.subjects[depth:]
    if not text:
        return Emitted("")
    run.origins.append(Origin(str(name), subject, str(template), line))
    return mark(text, len(run.origins) - 1)
