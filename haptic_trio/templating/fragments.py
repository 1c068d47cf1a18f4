"""`{% fragment "name" for object %} … {% endfragment %}`: a piece of output that belongs to one object.

What an object breaks is reported, and its last good output stands in for it, or
nothing; everything else renders on. The body compiles to a closure without arguments that reaches
objects only through the render's variables.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from haptic_trio.errors import Problem
from haptic_trio.templating.emit import Emitted, TemplateFaultError
from haptic_trio.templating.limits import LimitReachedError
from haptic_trio.templating.marks import mark, strip_marks
from haptic_trio.templating.outputs import FragmentOutput
from haptic_trio.templating.paths import RenderedFile
from haptic_trio.templating.records import Kept, Root, Trace
from haptic_trio.templating.remarks import remark_of
from haptic_trio.templating.report import problem_of
from haptic_trio.templating.run import RenderRun, current_run
from haptic_trio.templating.scope import as_it_is, same
from haptic_trio.templating.shares import question_of
from haptic_trio.templating.subjects import Concern, FragmentKey, Origin, Refusal, RenderedText, size_of, subject_of

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
        return attempt(run, origin, caller)
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
        text = attempt(run, origin, caller)
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


def attempt(run: RenderRun, origin: Origin, caller: Callable[[], str]) -> str:
    """Return the output of *caller* marked with *origin*, or what stands in for it."""
    trace, subjects = run.trace, run.subjects
    registered, depth = len(run.unit_files), len(subjects)
    outputs, refusals, remarks = len(trace.outputs), len(trace.refusals), len(trace.remarks)
    outer_concerns, trace.concerns = trace.concerns, []
    subjects.append(origin.subject)
    run.rendered += 1
    budget = run.switch_to_fragment(origin.fragment, origin.subject.namespace)
    try:
        text = caller()
        output = FragmentOutput(strip_marks(text), _registered(run, registered), origin.subject.resource_version)
        _check_limits(run, origin.key, output)
    except MemoryError:
        # No fault of this object. It stays on the stack, so that the error can name it.
        raise
    except LimitReachedError as error:
        if error.is_time:
            run.note_slow(origin.fragment, origin.subject.namespace)
        problem = problem_of(error, origin.subject)
    except Exception as error:  # noqa: BLE001  whatever an object's data breaks must break this object alone
        problem = problem_of(error, origin.subject)
    else:
        del subjects[depth:]
        key = origin.key
        blocked = run.recall.blocked.get(key)
        found = run.recall.held.get(key)
        if found is None and blocked:
            found = blocked.get(output.digest()) or blocked.get(output.edition)
        if found is None:
            trace.outputs[key] = output
            _attribute_files(run, len(run.unit_files) - registered, origin)
            return _marked(run, origin, text)
        problem = found
    finally:
        run.switch(budget)
        concerns, trace.concerns = trace.concerns, outer_concerns
    del subjects[depth:]
    # What was within is left out together with it.
    while len(trace.outputs) > outputs:
        trace.outputs.popitem()
    del trace.refusals[refusals:]
    while len(trace.remarks) > remarks:
        trace.remarks.popitem()
    while len(run.unit_files) > registered:
        run.forget_file(next(reversed(run.unit_files)))
    return _stand_in(run, origin, problem, concerns)


def _check_limits(run: RenderRun, key: FragmentKey, output: FragmentOutput) -> None:
    """Raise `LimitReachedError` if the fragment *key* has used too much, or its namespace has no room for *output*."""
    # One long operation may have used more time than the loops and calls around it have seen.
    run.tick()
    if output.size > run.limits.fragment_bytes:
        raise run.too_large()
    run.note_success(key.fragment)
    before = run.produced.get(key)
    more = output.size - (before.size if before else 0)
    try:
        run.shares.check(key, run.claimed[key.namespace] + more)
    except LimitReachedError:
        run.ask(question_of(key.namespace))
        raise
    run.claimed[key.namespace] += more


def _stand_in(run: RenderRun, origin: Origin, problem: Problem, concerns: Iterable[Concern]) -> str:
    key = origin.key
    good = run.stand_ins[key] = run.recall.good.get(key)
    if good is not None:
        for file in good.files:
            run.ask(("file", file.path))
        if good.digest() in run.recall.blocked.get(key, {}) or any(run.known_file(file.path) for file in good.files):
            # HAProxy has come to refuse that, too, or others have taken the names of its files.
            good = None
    refusal = Refusal(origin.fragment, origin.subject, problem, origin.ordinal, good is not None, origin.within)
    assert run.unit is not None
    run.trace.refusals.append((run.unit.position, refusal))
    run.trace.remarks.update(
        (remark_of(concern, problem.message, has_stand_in=good is not None), None) for concern in concerns
    )
    if good is None:
        return Emitted("")
    run.trace.outputs[key] = good
    registered = len(run.unit_files)
    run.trace.attempts += len(good.files)
    for file in good.files:
        run.register(file)
    _attribute_files(run, len(run.unit_files) - registered, origin)
    return _marked(run, origin, good.text)


def _marked(run: RenderRun, origin: Origin, text: str) -> str:
    if not text:
        return Emitted("")
    return mark(text, run.number_origin(origin))


def _registered(run: RenderRun, before: int) -> tuple[RenderedFile, ...]:
    """Return the files that were registered after the first *before*; the cost is that of these."""
    return tuple(islice(reversed(run.unit_files.values()), len(run.unit_files) - before))[::-1]


def _attribute_files(run: RenderRun, count: int, origin: Origin) -> None:
    """Note that *origin* made the newest *count* files, where no fragment inside them says otherwise."""
    # From the end, so that the cost is that of the fragment's own files; a list, since values are replaced.
    for path in list(islice(reversed(run.unit_files), count)):
        file = run.unit_files[path]
        if all(piece.origin is None for piece in file.content.pieces):
            replaced = msgspec.structs.replace(file, content=RenderedText.of(file.text, origin))
            run.unit_files[path] = run.trace.files[path] = replaced
