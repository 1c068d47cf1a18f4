"""Calls of the bodies of fragments, within the limits of fragments and namespaces."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

import msgspec

from haptic_trio.errors import Problem
from haptic_trio.templating.incremental.outputs import EMPTY, BodyResult, FragmentOutput, frozen, own_part
from haptic_trio.templating.incremental.run import RenderRun
from haptic_trio.templating.incremental.settling.former_endpoints import endpoint_lookups
from haptic_trio.templating.incremental.shares import question_of as question_of_room
from haptic_trio.templating.values.costs import Costs
from haptic_trio.templating.values.limits import LimitReachedError, cpu_clock
from haptic_trio.templating.values.marks import strip_marks
from haptic_trio.templating.values.report import describe, problem_of
from haptic_trio.templating.values.subjects import FragmentKey, Origin

_READS: Final = frozenset({"get", "object"})
"""Kinds of questions that return content of objects; `has` never returns that of a Secret."""
_UNREPORTED: Final = Problem(message="the closing of a rejected object leaves this out")


class Given:
    """Savepoint of the current unit: later files, outputs, rejections and warnings can be undone."""

    __slots__ = ("files", "found", "outputs", "rejections", "unused", "warnings")

    def __init__(self, run: RenderRun) -> None:
        trace = run.trace
        self.files, self.found, self.outputs = len(run.unit_files), len(trace.found), len(trace.outputs)
        self.rejections, self.warnings, self.unused = len(trace.rejections), len(trace.warnings), len(trace.unused)

    def restore(self, run: RenderRun, *, keep_rejections: bool = False) -> None:
        """Undo what was added to *run* since."""
        trace = run.trace
        while len(trace.outputs) > self.outputs:
            trace.outputs.popitem()
        while len(trace.unused) > self.unused:
            trace.unused.popitem()
        if not keep_rejections:
            del trace.rejections[self.rejections :]
        while len(trace.warnings) > self.warnings:
            trace.warnings.popitem()
        while len(trace.found) > self.found:
            trace.found.popitem()
        while len(run.unit_files) > self.files:
            run.forget_file(next(reversed(run.unit_files)))


def has_read_secret(run: RenderRun) -> bool:
    """Whether the current rendering of *run* has looked up the content of a Secret so far."""
    stores = run.secret_stores
    return bool(stores) and any(
        isinstance(one, tuple) and one[0] in _READS and one[1] in stores for one in run.trace.asked
    )


def call_body(run: RenderRun, origin: Origin, key: FragmentKey, resource: Any, caller: Callable[[], str]) -> BodyResult:
    """Call the body *caller* for *resource*, within the limits of a fragment."""
    if run.subjects:
        # Its time is a part of that of the fragment around it.
        return _call(run, origin, key, resource, caller)
    began = cpu_clock()
    try:
        return _call(run, origin, key, resource, caller)
    finally:
        run.shares.spend(origin.subject.namespace, cpu_clock() - began)


def _call(run: RenderRun, origin: Origin, key: FragmentKey, resource: Any, caller: Callable[[], str]) -> BodyResult:
    trace, subjects = run.trace, run.subjects
    registered, depth, counted = len(run.unit_files), len(subjects), len(trace.ordinals)
    wanted, produced = len(trace.wants), len(trace.outputs)
    asked_before, run.asks_rejected = run.asks_rejected, False
    outer_concerns, trace.concerns = trace.concerns, []
    outer_guards, trace.guards = trace.guards, set()
    outer_permits, trace.permits = trace.permits, {}
    outer_conditions, trace.conditions = trace.conditions, []
    outer_costs, trace.costs = trace.costs, Costs(authorities=trace.costs.authorities)
    outer = run.begin_fragment(key, resource)
    subjects.append(origin.subject)
    run.rendered += 1
    budget = run.switch_to_fragment(origin.fragment, origin.subject.namespace)
    text, output, problem, reason, is_limit, is_clash = "", None, None, "", False, False
    try:
        text = caller()
        files = run.registered_since(registered)
        own_text, inner_files = (None, EMPTY) if run.is_closing else own_part(origin, text, files, run.origins)
        has_inner = own_text is not None
        if run.is_former:
            # Fragments inside have no outputs of their own.
            own_text, inner_files = None, EMPTY
        made = FragmentOutput(
            strip_marks(text),
            files,
            origin.subject.resource_version,
            resource=resource,
            guards=frozen(trace.guards),
            permits=tuple(trace.permits.items()),
            conditions=tuple(trace.conditions),
            endpoints=endpoint_lookups(trace.asked, run.endpoint_stores) if run.endpoint_stores else (),
            rounds=trace.costs.rounds,
            certificates=trace.costs.certificates,
            authorities=trace.costs.authorities,
            is_secret=has_read_secret(run),
            own_text=own_text,
            inner_files=inner_files,
            found_files=run.found_since(wanted, produced, key, files),
            has_inner=has_inner,
        )
        if run.clash is None:
            _check_limits(run, key, made)
            output = made
        else:
            (problem, reason), is_clash = _explained(run, run.clash, origin, resource), True
    except MemoryError:
        # Not a fault of this object. The subject stays on the stack, so that the error can name it.
        raise
    except LimitReachedError as error:
        if error.is_time:
            run.note_slow(origin.fragment, origin.subject.namespace)
            # It might have asked later.
            run.asks_rejected = True
        (problem, _), is_limit = _explained(run, error, origin, None), True
    except Exception as error:  # noqa: BLE001  whatever an object's data breaks must break this object alone
        problem, reason = _explained(run, error, origin, resource)
    finally:
        run.leave_fragment(budget)
        run.fragment, run.clash = outer
        concerns, trace.concerns = trace.concerns, outer_concerns
        guards, trace.guards = frozen(trace.guards), outer_guards
        trace.permits, trace.conditions = outer_permits, outer_conditions
        trace.costs = outer_costs
        asks_rejected, run.asks_rejected = run.asks_rejected, run.asks_rejected or asked_before
    del subjects[depth:]
    ordinals = tuple(trace.ordinals[counted:]) if problem is not None else ()
    return BodyResult(text, output, problem, concerns, guards, reason, is_limit, is_clash, asks_rejected, ordinals)


def _explained(run: RenderRun, error: BaseException, origin: Origin, resource: Any) -> tuple[Problem, str]:
    """Return *error* as a problem of the fragment *origin*, and the reason alone.

    The closing of a rejected object leaves out what fails, without a report: it may be thousands of fragments.
    """
    if run.is_closing:
        return _UNREPORTED, ""
    return problem_of(error, origin.subject, resource), describe(error)[0]


def _check_limits(run: RenderRun, key: FragmentKey, output: FragmentOutput) -> None:
    """Raise `LimitReachedError` if the fragment *key* has used too much, or its namespace has no room for *output*."""
    # One long operation may have used more time than the loops and calls around it have seen.
    run.tick()
    if output.text or output.files:
        if output.size > run.limits.fragment_bytes:
            raise run.too_large()
        _check_backends(run, output)
    run.note_success(key.fragment)
    # The output for a former version counts as a whole, with the fragments inside.
    is_inside = run.is_former and len(run.subjects) > 1
    if not run.ahead.is_rendering and not is_inside:
        _claim(run, key, output, is_closing=run.is_closing or run.is_former)


def _claim(run: RenderRun, key: FragmentKey, output: FragmentOutput, *, is_closing: bool) -> None:
    try:
        run.shares.claim(key, run.produced.get(key), output, run.claimed, is_closing=is_closing)
    except LimitReachedError:
        run.ask(question_of_room(key.namespace))
        raise


def _check_backends(run: RenderRun, output: FragmentOutput) -> None:
    limits = run.limits
    # Most outputs have too few servers for a look at their sections.
    is_large = output.own_text is not None or run.shares.uses_of(output).servers > limits.backend_servers
    if is_large and output.largest_backend > limits.backend_servers:
        raise LimitReachedError(
            f"a backend has more than {limits.backend_servers:,} servers",
            "use a Service with fewer endpoints, or raise templating.maxBackendServers",
        )
    if output.rules > limits.backend_rules:
        raise LimitReachedError(
            f"a backend has more than {limits.backend_rules:,} rules, which each request runs",
            "write the values to a map, or raise templating.maxBackendRules",
        )


def call_closing(run: RenderRun, origin: Origin, resource: Any, caller: Callable[[], str]) -> BodyResult:
    """Call the body *caller* for a rejected object; no output if the template does not call `rejected`."""
    outer = run.is_closing, run.asks_rejected
    run.is_closing, run.asks_rejected = True, False
    try:
        made = call_body(run, origin, origin.key, resource, caller)
        return made if run.asks_rejected else made._replace(output=None)
    finally:
        run.is_closing, run.asks_rejected = outer


def call_former(run: RenderRun, origin: Origin, former: FragmentOutput, caller: Callable[[], str]) -> BodyResult:
    """Call the body *caller* of a turn for the version of the object that has given *former*; undo all records.

    Its lookups stay recorded. The output is a revision of *former*.
    """
    before, trace, counted = Given(run), run.trace, len(run.trace.ordinals)
    # The lookups of the present version say nothing about the endpoints of this one.
    asked, trace.asked = trace.asked, set()
    outer = run.asks_rejected, run.ordinals, run.claimed, run.quarantined, run.rendered
    # As at the beginning of the turn: fragments inside have the same keys as for the present version.
    run.ordinals, run.claimed = defaultdict(int), {}
    run.quarantined, run.is_former = run.quarantined.for_trial(), True
    try:
        made = call_body(run, origin, origin.key, former.resource, caller)
    finally:
        asked |= trace.asked
        run.is_former, trace.asked = False, asked
        run.asks_rejected, run.ordinals, run.claimed, run.quarantined, run.rendered = outer
    before.restore(run)
    del trace.ordinals[counted:]
    if made.output is None:
        return made
    output = msgspec.structs.replace(made.output, version=former.version, original=former, is_renewed=True)
    return made._replace(output=output)


def with_room(run: RenderRun, origin: Origin, made: BodyResult, *, is_closing: bool = False) -> BodyResult:
    """Return *made*, or a failure if the namespace has no room for it."""
    if made.output is None:
        return made
    try:
        _claim(run, origin.key, made.output, is_closing=is_closing)
    except LimitReachedError as error:
        return made._replace(output=None, problem=problem_of(error, origin.subject), is_limit=True)
    return made
