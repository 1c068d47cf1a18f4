"""`{% fragment "name" for object %} … {% endfragment %}`: a piece of output that belongs to one object.

What an object breaks is reported, and its last good output stands in for it, or
nothing; everything else renders on. The body compiles to a closure without arguments that reaches
objects only through the render's variables.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from haptic_trio.templating.filters.emit import TemplateFaultError
from haptic_trio.templating.incremental.attempts import attempt
from haptic_trio.templating.incremental.records import Kept, Root, Trace
from haptic_trio.templating.incremental.run import RenderRun, current_run
from haptic_trio.templating.incremental.scope import as_it_is, same
from haptic_trio.templating.values.subjects import Origin, size_of, subject_of

EACH = "h_each"
"""What the call of `{% each %}` is named in compiled templates."""


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


def names_in(body: list[nodes.Node]) -> tuple[str, ...] | None:
    """Return every name that occurs in *body*; None if it sees more than its names tell."""
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


def render_fragment(
    name: str,
    resource: Mapping[str, Any],
    template: str,
    line: int,
    scope: Mapping[str, Any] | None,
    caller: Callable[[], str],
) -> str:
    """Return the output of *caller* marked with its origin.

    If it fails, which is recorded in the run, the last good output of this
    fragment and object stands in for it, or nothing. *scope* is what it can
    see of its surroundings; None if that is not known.
    """
    run = current_run()
    if not isinstance(resource, Mapping):
        raise TemplateFaultError(f"the fragment {name!r} is for something that is not an object")
    if run.importing:
        raise TemplateFaultError(
            f"the fragment {name!r} is in a template that is imported",
            "include the template, or import it with context",
        )
    subject = subject_of(resource)
    ordinal = run.number_of(name, subject)
    origin = Origin(str(name), subject, str(template), line, ordinal, run.within, len(run.subjects))
    root = run.root
    if run.subjects or root is None or run.unit is not root:
        return attempt(run, origin, resource, caller)
    return render_kept(run, root, origin, resource, scope, caller)


def render_kept(
    run: RenderRun,
    root: Root,
    origin: Origin,
    resource: Mapping[str, Any],
    scope: Mapping[str, Any] | None,
    caller: Callable[[], str],
    *,
    is_each: bool = False,
    is_apart: bool = False,
) -> str:
    """Do `attempt` for an outermost fragment of *root*, or put in what is kept of it if nothing it saw has changed."""
    key = origin.key
    kept = root.kept.get(key)
    if kept is not None and _is_reusable(run, kept, origin, resource, scope):
        run.keeping[key] = kept
        _replay(run, kept.trace)
        run.grant_output(size_of(kept.text))
        return kept.text
    outer = run.trace
    trace = run.trace = Trace(is_each=is_each)
    try:
        text = attempt(run, origin, resource, caller, is_apart=is_apart)
    finally:
        run.trace = outer
    # What an each sees has been made to stay as it is already.
    seen = scope if is_each or scope is None else as_it_is(scope)
    kept = Kept(root, origin, resource, seen, trace, text)
    kept.asked = run.index.add(kept, kept.asked)
    run.keeping[key] = kept
    _replay(run, trace, again=False)
    run.grant_output(size_of(text))
    return text


def _is_reusable(
    run: RenderRun, kept: Kept, origin: Origin, resource: Mapping[str, Any], scope: Mapping[str, Any] | None
) -> bool:
    trace = kept.trace
    return (
        kept.is_valid
        and scope is not None
        and kept.scope is not None
        and kept.resource is resource
        and kept.origin == origin
        and trace.attempts == len(trace.files)
        and all(run.known_file(path) is None for path in trace.files)
        and all(run.ordinals[counted] == ordinal for counted, ordinal in trace.ordinals)
        and same(kept.scope, scope, run.memo)
    )


def _replay(run: RenderRun, trace: Trace, *, again: bool = True) -> None:
    """Take what *trace* has given as part of the root in hand."""
    root_trace = run.trace
    root_trace.outputs.update(trace.outputs)
    root_trace.remarks.update(trace.remarks)
    root_trace.origins += trace.origins
    if again:
        for counted, ordinal in trace.ordinals:
            run.ordinals[counted] = ordinal + 1
        for file in trace.files.values():
            run.register(file)
    assert run.unit is not None
    position = run.unit.position
    root_trace.refusals += [(position, refusal) for _, refusal in trace.refusals]
