"""Output of a fragment: the text of its body, or the fallback.

An error of one object is reported. All fragments of the object output their
fallbacks (see `quarantined`), or nothing; other objects render on.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import msgspec

from haptic_trio.errors import Problem
from haptic_trio.templating.incremental.ahead import Result, without_known_files
from haptic_trio.templating.incremental.bodies import Given, call_body, call_closing, call_former, with_room
from haptic_trio.templating.incremental.outputs import BodyResult, Fallback, FragmentOutput
from haptic_trio.templating.incremental.records import Child, id_of_subject, is_turn_of, question_of
from haptic_trio.templating.incremental.run import RenderRun
from haptic_trio.templating.incremental.settling.former_endpoints import as_it_may_be
from haptic_trio.templating.incremental.shares import added_rounds
from haptic_trio.templating.incremental.shares import question_of as question_of_room
from haptic_trio.templating.values.limits import LimitReachedError
from haptic_trio.templating.values.marks import mark, strip_marks
from haptic_trio.templating.values.subjects import FragmentKey, Origin, Rejection, is_same_object
from haptic_trio.templating.values.text import Emitted

Bodies: TypeAlias = Callable[[Any], Callable[[], str]]
"""Returns the body of a turn for a version of its object."""


def attempt(run: RenderRun, origin: Origin, resource: Any, caller: Callable[[], str], *, is_apart: bool = False) -> str:
    """Return the output of *caller* for *resource*, marked with its origin; see `find_output`."""
    text, origin = find_output(run, origin, resource, caller, is_apart=is_apart)
    if text and run.subjects and not _is_inner(run, origin):
        run.grant_inner(text)
    return mark(text, run.number_origin(origin)) if text else Emitted("")


def find_output(
    run: RenderRun,
    origin: Origin,
    resource: Any,
    caller: Callable[[], str],
    *,
    is_apart: bool = False,
    bodies: Bodies | None = None,
) -> tuple[str, Origin]:
    """Return the output of *caller* for *resource*, or the fallback, and the origin of that text: *origin*, mostly.

    If the object is quarantined, *caller* is called nevertheless, to find out
    whether it still fails. With *is_apart* a failure affects this fragment only.
    A turn has *bodies*, so that its fallback can be rendered again.
    """
    subject = origin.subject
    is_inner = _is_inner(run, origin)
    fallback = None if is_apart or is_inner else run.quarantined.fallback_of(subject)
    is_turn = not is_inner and is_turn_of(run.unit, subject)
    if not is_inner and not is_turn:
        run.ask(question_of(id_of_subject(subject)))
    registered = len(run.unit_files)
    before = Given(run)
    key = origin.key
    ahead = _find_ahead(run) if is_turn else None
    made = _made_ahead(run, origin, ahead) if ahead is not None else None
    if made is None:
        made = _known_failure(run, key)
    if made is None:
        made = call_body(run, origin, key, resource, caller)
    problem, omitted = made.problem, run.recall.omitted.get(key)
    if omitted is not None:
        # Only this fragment is affected, not others of its object.
        problem, fallback, is_apart = omitted, Fallback.VALID, True
    elif made.output is not None:
        problem = run.recall.problem_with(key, made.output, is_closing=run.is_closing)
        if problem is None and fallback is None:
            run.trace.outputs[key] = made.output
            run.quarantined.forget(key)
            run.attribute_files(len(run.unit_files) - registered, origin)
            return made.text, origin
    run.quarantined.demand(key, made.guards)
    if isinstance(run.unit, Child):
        run.quarantined.note_result(key, made, run.unit.object_id)
    # Inner fragments are dropped with it, but their rejections are reasons why the object is quarantined.
    before.restore(run, keep_rejections=problem is None)
    good = _find_output(run, origin, fallback, resource, made, is_apart=is_apart, is_turn=bodies is not None)
    if omitted is None and (is_apart or fallback is not None):
        render = partial(_for_former, run, origin, resource, made, bodies, ahead)
        good = _renew(run, origin, good, render, is_apart=is_apart)
    else:
        good = _as_it_was(run, origin, good)
    good = _as_shared(run, origin, good)
    if problem is not None:
        _reject(run, origin, problem, made, has_fallback=_has_fallback(run, origin, fallback, good), is_apart=is_apart)
    if good is None:
        run.trace.unused[key] = None
        is_closed = fallback is Fallback.CLOSED and made.asks_rejected
        return _render_closing(run, origin, resource, caller, ahead) if is_closed else (Emitted(""), origin)
    good = run.trace.outputs[key] = good.counted_whole(run.produced.get(key))
    registered = len(run.unit_files)
    for file in good.used_files:
        run.use_file(file, key)
    run.attribute_files(len(run.unit_files) - registered, origin)
    return good.text, origin


def _is_inner(run: RenderRun, origin: Origin) -> bool:
    """Whether the fragment of *origin* is inside one of the same object, and so shares its fate."""
    return bool(run.subjects) and any(is_same_object(outer, origin.subject) for outer in run.subjects)


def attempt_ahead(
    run: RenderRun, origin: Origin, resource: Any, caller: Callable[[], str], bodies: Bodies
) -> Result | None:
    """Return what *caller*, the body of a turn, gives, for an `attempt` after the change that is shown is taken in.

    Whether the object is quarantined and how much its namespace may output is decided by that one.
    Returns None if fragments inside the body fail or use fallbacks.
    """
    before, trace = Given(run), run.trace
    made = call_body(run, origin, origin.key, resource, caller)
    if made.output is None:
        before.restore(run)
    elif trace.rejections or run.quarantined.concerns(trace.asked):
        return None
    origins = {number: run.origins[number] for number in trace.origins}
    inside, closing, former = Given(run), None, None
    fallback = run.quarantined.fallback_of(origin.subject)
    if fallback is Fallback.CLOSED:
        closing = call_closing(run, origin, resource, caller)
        inside.restore(run)
    elif fallback is not None:
        good = run.quarantined.find(run.recall, origin.key, fallback, resource)
        if good is not None and _is_kept(good.resource) and good.resource is not resource:
            former = call_former(run, origin, good, bodies(good.resource))
    return Result(resource, trace, origins, made, closing, former)


def _find_ahead(run: RenderRun) -> Result | None:
    """Return the result of the turn that is being rendered, if its body was called ahead and would still give that."""
    child: Any = run.unit
    result = run.ahead.find(child)
    if result is None or any(key is not None and run.loses_file(key, path) for key, path in result.trace.wants):
        return None
    result = without_known_files(run, result)
    for key, output in result.trace.outputs.items():
        # Fragments inside the body.
        if key in run.recall.omitted or run.recall.problem_with(key, output) is not None:
            return None
        try:
            run.shares.claim(key, run.produced.get(key), output, run.claimed)
        except LimitReachedError:
            return None
    return result


def _made_ahead(run: RenderRun, origin: Origin, ahead: Result) -> BodyResult:
    """Return the result of the body that was called *ahead*, and add its records to those of the turn."""
    trace, known = run.trace, ahead.trace
    trace.asked |= known.asked
    trace.clashes |= known.clashes
    trace.found.update(known.found)
    trace.outputs.update(known.outputs)
    trace.wants.update(known.wants)
    trace.warnings.update(known.warnings)
    trace.ordinals += known.ordinals
    trace.attempts += known.attempts
    trace.origins += ahead.origins
    trace.is_volatile |= known.is_volatile
    run.origins.update(ahead.origins)
    for file in known.files.values():
        if run.known_file(file.path) is not None:
            trace.clashes.add(file.path)
        run.register(file)
    return with_room(run, origin, ahead.made)


def _known_failure(run: RenderRun, key: FragmentKey) -> BodyResult | None:
    known = run.quarantined.known_failure(key)
    if known is not None:
        assert run.unit is not None
        run.trace.asked.update(run.unit.asked)
        run.trace.clashes |= run.unit.clashes
        for counted, ordinal in known.ordinals:
            run.ordinals[counted] = ordinal + 1
        run.trace.ordinals += known.ordinals
    return known


def _find_output(
    run: RenderRun,
    origin: Origin,
    fallback: Fallback | None,
    resource: Any,
    made: BodyResult,
    *,
    is_apart: bool,
    is_turn: bool,
) -> FragmentOutput | None:
    """Return the good output of the fragment that its fallback means; None without a usable one."""
    key, recall = origin.key, run.recall
    found = run.quarantined.find(recall, key, fallback, resource)
    run.quarantined.offer(key, is_known=fallback is not None or is_apart)
    if found is None:
        return _blank_for(run, origin, fallback) if is_turn and not is_apart else None
    for file in found.used_files:
        run.ask(("file", file.path))
    if recall.is_blocked(key, found):
        # HAProxy rejects that, too.
        run.quarantined.give_up(origin.subject)
        return None
    if is_apart and any(run.is_taken(file) for file in found.used_files):
        # For single fragments it is not decided who may have a file.
        return None
    if key.namespace:
        wanted = made.output.rounds if made.output is not None else 0
        run.shares.overall.keep(key, max(found.rounds, wanted), resource)
    return found


def _blank_for(run: RenderRun, origin: Origin, fallback: Fallback | None) -> FragmentOutput | None:
    """Return an output without text for a turn that *fallback* lacks, since a setting has added it to the templates."""
    version = run.quarantined.version_of(run, id_of_subject(origin.subject), fallback or Fallback.CLOSED)
    return FragmentOutput("", (), origin.subject.resource_version, resource=version) if _is_kept(version) else None


def _as_it_was(run: RenderRun, origin: Origin, good: FragmentOutput | None) -> FragmentOutput | None:
    """Return the fallback *good*, as far as it may be used without rendering its version again; None if it may not."""
    if good is None:
        return None
    revised = as_it_may_be(good, run.variables, run.find_addresses)
    if revised is None or run.recall.is_blocked(origin.key, revised):
        # It has what belongs to others now, or HAProxy rejects the rest.
        run.quarantined.give_up(origin.subject)
        return None
    return revised


def _as_shared(run: RenderRun, origin: Origin, good: FragmentOutput | None) -> FragmentOutput | None:
    """Return the fallback *good* with the present content of files that others have; None if HAProxy rejects that."""
    if good is None or (shared := run.contested.as_shared(origin.key, good)) is good:
        return good
    if run.recall.is_blocked(origin.key, shared):
        run.quarantined.give_up(origin.subject)
        return None
    # The same output as before, so that nothing counts as changed.
    before = run.produced.get(origin.key)
    return before if before is not None and before.equals(shared) else shared


def _renew(
    run: RenderRun,
    origin: Origin,
    good: FragmentOutput | None,
    render: Callable[[FragmentOutput], FragmentOutput | None],
    *,
    is_apart: bool,
) -> FragmentOutput | None:
    """Return what is used of the fallback *good*, for the version of which *render* renders again.

    So are the other fallbacks for which that has been done before: whether one can be used depends on its files.
    """
    key, recall, renewals = origin.key, run.recall, run.quarantined.renewals
    others = renewals.besides(key, good) if not is_apart else ()
    if good is not None and _may_be_renewed(run, key, good):
        output = render(good)
        good = _renewed_apart(run, origin, good, output) if is_apart else _renewed(run, origin, good, output)
    else:
        good = _as_it_was(run, origin, good)
    for former in others:
        is_usable = former is recall.valid.get(key) or former is recall.prepared(key)
        renewals.note_besides(key, former, render(former) if is_usable else None)
    if others:
        run.quarantined.offer(key)
    return good


def _may_be_renewed(run: RenderRun, key: FragmentKey, good: FragmentOutput) -> bool:
    """Whether *good* is rendered again: while its object is paused, only for the settings."""
    return run.recall.paused.problem_of(key) is None or run.recall.is_outdated(key, good)


def _for_former(
    run: RenderRun,
    origin: Origin,
    resource: Any,
    made: BodyResult,
    bodies: Bodies | None,
    ahead: Result | None,
    former: FragmentOutput,
) -> FragmentOutput | None:
    """Return the output for the version of the object that has given *former*, as it is now; None if that fails."""
    if former.resource is resource:
        # Another fragment fails, or this one for something that it looked up.
        output = None
        if made.output is not None:
            output = msgspec.structs.replace(made.output, original=former, is_renewed=True)
    elif bodies is None or not _is_kept(former.resource):
        return None
    elif ahead is not None and ahead.former is not None and _is_revision_of(ahead.former.output, former):
        output = with_room(run, origin, ahead.former, is_closing=True).output
    else:
        output = call_former(run, origin, former, bodies(former.resource)).output
    if output is None or run.recall.verdict_on(origin.key, output) is not None:
        return None
    # The same output as before, so that nothing counts as changed.
    before = run.produced.get(origin.key)
    if before is not None and before.equals(output) and not run.recall.is_outdated(origin.key, former):
        return before
    return output if run.shares.overall.has_room(origin.key, added_rounds(output)) else None


def _is_kept(version: Any) -> bool:
    """Whether the content of *version* is known: that of an on-demand object may have to be fetched again."""
    return type(version) is dict


def _is_revision_of(output: FragmentOutput | None, former: FragmentOutput) -> bool:
    return output is None or output.original is former


def _renewed(
    run: RenderRun, origin: Origin, good: FragmentOutput, output: FragmentOutput | None
) -> FragmentOutput | None:
    """Return *output*, or *good* as it was if fragments of the object cannot be rendered again; None if it may not."""
    key = origin.key
    run.quarantined.renew(key, output)
    if run.quarantined.renewals.keeps(key):
        # There may have been no room for all of them together.
        run.ask(question_of_room(key.namespace))
        if run.recall.is_outdated(key, good):
            # It has the former rules of the administrator.
            run.quarantined.give_up(origin.subject)
            return None
    elif output is not None:
        return output
    return _as_it_was(run, origin, good)


def _renewed_apart(
    run: RenderRun, origin: Origin, good: FragmentOutput, output: FragmentOutput | None
) -> FragmentOutput | None:
    """Return *output* of a single fragment, or *good* as it was; None if neither may be used."""
    if output is not None and not any(run.is_taken(file) for file in output.files):
        return output
    # Fragments inside are those of others, such as routes with filters: they have the administrator's rules.
    is_former = good.has_inner and run.recall.is_outdated(origin.key, good)
    return None if is_former else _as_it_was(run, origin, good)


def _has_fallback(run: RenderRun, origin: Origin, fallback: Fallback | None, good: FragmentOutput | None) -> bool:
    if fallback is None:
        return good is not None and not good.is_blank
    return fallback is not Fallback.CLOSED and not run.quarantined.is_blank(origin.subject)


def _reject(
    run: RenderRun, origin: Origin, problem: Problem, made: BodyResult, *, has_fallback: bool, is_apart: bool
) -> None:
    paused, omitted = run.recall.paused.problem_of(origin.key), run.recall.omitted.get(origin.key)
    rejection = Rejection(
        origin.fragment,
        origin.subject,
        problem,
        origin.ordinal,
        has_fallback,
        origin.within,
        is_apart=is_apart,
        is_clash=made.is_clash and problem is made.problem,
        is_limit=(made.is_limit and problem is made.problem) or problem is paused,
        is_verdict=made.problem is None and problem is not paused and problem is not omitted,
    )
    assert run.unit is not None
    run.trace.rejections.append((run.unit.position, rejection))
    run.trace.warnings.update(
        (concern.warning_for(made.reason or problem.message, has_fallback=has_fallback), None)
        for concern in made.concerns
    )


def _render_closing(
    run: RenderRun, origin: Origin, resource: Any, caller: Callable[[], str], ahead: Result | None
) -> tuple[str, Origin]:
    """Return the text for a rejected object, and its origin; no text if the template does not call `rejected`."""
    if ahead is not None and ahead.closing is not None:
        made = with_room(run, origin, ahead.closing, is_closing=True)
    else:
        before = Given(run)
        made = call_closing(run, origin, resource, caller)
        before.restore(run)
    if made.output is None:
        return Emitted(""), origin
    # Marks of inner fragments would name fragments without output.
    text, rounds = strip_marks(made.text), made.output.rounds
    output = FragmentOutput(text, (), origin.subject.resource_version, is_closing=True, rounds=rounds)
    if not text or run.recall.problem_with(origin.key, output, is_closing=True) is not None:
        return Emitted(""), origin
    run.trace.outputs[origin.key] = output
    return text, msgspec.structs.replace(origin, is_closing=True)
