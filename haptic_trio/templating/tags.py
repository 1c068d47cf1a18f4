"""Tags of the template language: `{% each %}`, `{% fragment %}` and `{% include_snippets %}`.

`{% each x in resources.kind [as "name"] [by [paths]] [apart] [if condition] %} … {% endeach %}` and
`{% fragment "name" for object %} … {% endfragment %}` compile to calls of the incremental engine
(`incremental.each.render_each`, `incremental.fragments.render_fragment`) with the body as a function.
"""

from collections.abc import Iterator
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from haptic_trio.templating.incremental import each
from haptic_trio.templating.values.faults import TemplateFaultError
from haptic_trio.templating.views import ResourceView

SYNTAX = '{% each x in resources.NAME as "name" by ["path"] apart if condition %} … {% endeach %}'
EACH = "h_each"
"""Name of the call of `{% each %}` in compiled templates."""


def internal_name(code: str, lineno: int) -> nodes.InternalName:
    """Return a node that compiles to the Python expression *code*."""
    # Jinja rejects the constructor, so that extensions do not clash with each other; these names have a prefix.
    node: nodes.InternalName = object.__new__(nodes.InternalName)
    nodes.Node.__init__(node, code, lineno=lineno)
    return node


def render_each(view: Any, name: Any, criteria: Any, *arguments: Any) -> str:
    """Render an `{% each %}`; raises `TemplateFaultError` for invalid operands."""
    if type(view) is not ResourceView:
        raise TemplateFaultError("each loops over all objects of a kind: resources.NAME", SYNTAX)
    if not isinstance(name, str):
        raise TemplateFaultError("the name of an each is not text", SYNTAX)
    paths = [criteria] if isinstance(criteria, str) else [] if criteria is None else criteria
    if not isinstance(paths, list | tuple) or not all(isinstance(path, str) for path in paths):
        raise TemplateFaultError("each sorts by JSONPaths: a string or a list of strings", SYNTAX)
    return each.render_each(view, str(name), tuple(map(str, paths)), *arguments)


class EachTag(Extension):
    """The tag."""

    tags = {"each"}  # noqa: RUF012  the base class declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse the tag into a call of `render_each` with the body as a block of its own."""
        line = next(parser.stream).lineno
        target = parser.parse_assign_target(name_only=True)
        parser.stream.expect("name:in")
        view = parser.parse_expression(with_condexpr=False)
        clauses: dict[str, nodes.Expr] = {}
        while parser.stream.current.test_any("name:as", "name:by", "name:apart", "name:if"):
            clause = next(parser.stream)
            if clause.value in clauses:
                parser.fail(f"'{clause.value}' is given twice", clause.lineno)
            if clause.value == "apart":
                clauses[clause.value] = nodes.Const(True, lineno=line)
                continue
            clauses[clause.value] = parser.parse_expression(with_condexpr=clause.value == "if")
        body = parser.parse_statements(("name:endeach",), drop_needle=True)
        if "if" in clauses:
            body = [nodes.If(clauses["if"], body, [], [], lineno=line)]
        template = parser.name or ""
        names = names_in(body)
        arguments: list[nodes.Expr] = [
            view,
            clauses.get("as", nodes.Const(template, lineno=line)),
            clauses.get("by", nodes.Const(None, lineno=line)),
            *(
                nodes.Const(value, lineno=line)
                for value in (str(target.name), names, template, line, "apart" in clauses)
            ),
        ]
        call = nodes.Call(internal_name(EACH, line), arguments, [], None, None, lineno=line)
        block = nodes.Block(
            f"h_each_{line}_{parser.free_identifier(lineno=line).name}", body, False, False, lineno=line
        )
        return nodes.CallBlock(call, [], [], [block], lineno=line)


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
        arguments += [nodes.Const(line, lineno=line), _scope_of(body, line)]
        call = nodes.Call(internal_name("h_fragment", line), arguments, [], None, None, lineno=line)
        return nodes.CallBlock(call, [], [], body, lineno=line)


def _scope_of(body: list[nodes.Node], line: int) -> nodes.Expr:
    """Return what compiles to a dictionary of all that *body* may take from around it; None if that is not known."""
    names = names_in(body)
    if names is None:
        return nodes.Const(None, lineno=line)
    items = [
        nodes.Pair(nodes.Const(name, lineno=line), nodes.Name(name, "load", lineno=line), lineno=line) for name in names
    ]
    return nodes.Dict(items, lineno=line)


_SPECIAL = frozenset({"caller", "self", "super", "varargs", "kwargs"})


def names_of(found: list[nodes.Node]) -> Iterator[str]:
    """Yield every name that occurs in *found*, the nodes of a template."""
    for node in found:
        if isinstance(node, nodes.Name | nodes.NSRef):
            yield node.name


def names_in(body: list[nodes.Node]) -> tuple[str, ...] | None:
    """Return every name that occurs in *body*; None if it may use further names."""
    names: dict[str, None] = {}
    for node in _walk(body):
        if isinstance(node, nodes.Name | nodes.NSRef):
            names[node.name] = None
        elif isinstance(node, nodes.Include) or (
            isinstance(node, nodes.Import | nodes.FromImport) and node.with_context
        ):
            return None
    if not _SPECIAL.isdisjoint(names) or next(outer_loops(body), None) is not None:
        return None
    return tuple(name for name in names if name != "loop")


def outer_loops(body: list[nodes.Node]) -> Iterator[nodes.Node]:
    """Yield where *body* means a loop around it: by `loop`, `break` or `continue`."""
    for node in body:
        if isinstance(node, nodes.Break | nodes.Continue) or (
            isinstance(node, nodes.Name) and node.name == "loop" and node.ctx == "load"
        ):
            yield node
        elif isinstance(node, nodes.For):
            yield from outer_loops([node.iter])
        else:
            yield from outer_loops(list(node.iter_child_nodes()))


def _walk(body: list[nodes.Node]) -> Iterator[nodes.Node]:
    for node in body:
        yield node
        yield from node.find_all(nodes.Node)


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
