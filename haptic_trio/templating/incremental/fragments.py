"""Rendering and reuse of `{% fragment "name" for object %} … {% endfragment %}`, output of one object.

The body compiles to a closure without arguments, which reaches objects only
through the variables of the render.
"""

from collections.abc import Callable, Mapping
from typing import Any

from haptic_trio.templating.incremental.attempts import attempt
from haptic_trio.templating.incremental.records import Kept, Root, Trace
from haptic_trio.templating.incremental.run import RenderRun, current_run
from haptic_trio.templating.incremental.scope import as_it_is, same
from haptic_trio.templating.values.faults import TemplateFaultError
from haptic_trio.templating.values.subjects import Origin, size_of, subject_of


def render_fragment(
    name: str,
    resource: Mapping[str, Any],
    template: str,
    line: int,
    scope: Mapping[str, Any] | None,
    caller: Callable[[], str],
) -> str:
    """Return the output of *caller* marked with its origin.

    If it fails, the failure is recorded in the run, and the fallback of the
    fragment is returned, or nothing. *scope* has the variables around it
    that it can use; None if they are not known.
    """
    run = current_run()
    if not isinstance(resource, Mapping):
        raise TemplateFaultError(f"the fragment {name!r} is not for an object")
    if run.importing:
        raise TemplateFaultError(
            f"an imported template contains the fragment {name!r}",
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
    """Return the kept output of an outermost fragment of *root* if it is still valid; otherwise `attempt` it."""
    key = origin.key
    kept = root.kept.get(key)
    if kept is not None and _is_reusable(run, kept, origin, resource, scope):
        if run.alike:
            # It refers to the environment of a former configuration.
            kept.scope = scope if is_each or scope is None else as_it_is(scope)
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
    # The scope of an each is frozen already.
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
        and origin.template not in run.alike.changed
        and trace.attempts == len(trace.files)
        and all(run.known_file(path) is None for path in trace.files)
        and all(run.ordinals[counted] == ordinal for counted, ordinal in trace.ordinals)
        and same(kept.scope, scope, run.memo)
    )


def _replay(run: RenderRun, trace: Trace, *, again: bool = True) -> None:
    """Add the records of *trace* to those of the current root."""
    root_trace = run.trace
    root_trace.outputs.update(trace.outputs)
    root_trace.unused.update(trace.unused)
    root_trace.wants.update(trace.wants)
    root_trace.warnings.update(trace.warnings)
    root_trace.origins += trace.origins
    if again:
        for counted, ordinal in trace.ordinals:
            run.ordinals[counted] = ordinal + 1
        for file in trace.files.values():
            run.register(file)
    assert run.unit is not None
    position = run.unit.position
    root_trace.rejections += [(position, rejection) for _, rejection in trace.rejections]
