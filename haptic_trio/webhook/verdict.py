"""Verdict of a review: only problems that the object itself causes reject it."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TypeAlias

from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.pipeline.review.dry_run import DryRun, Fault
from haptic_trio.templating.values.subjects import Subject
from haptic_trio.webhook.review import MOST_WARNINGS, Answer

MOST_FAULTS = 10
_CONFIG = "haproxy.cfg"
_AS_BEFORE = "rejected already before this change: "

NameFields: TypeAlias = Callable[[Problem], Problem]
"""Returns a problem of the reviewed object with the paths of the fields at fault."""


def judge(
    ref: ResourceRef,
    operation: str,
    found: DryRun,
    clean: Callable[[str], str],
    clean_overall: Callable[[str], str],
    name_fields: NameFields = lambda problem: problem,
) -> Answer:
    """Return the answer for a change of *ref*.

    *clean* redacts secrets in a text about an object of the same namespace,
    and *clean_overall* in one about the complete configuration.

    A change is rejected if it newly breaks the object, another object of its
    namespace, or the complete configuration. Objects of other namespaces that
    it breaks, and problems that exist already, become warnings. A deletion is
    always allowed.
    """
    sentence = partial(_sentence, ref=ref, clean=clean, clean_overall=clean_overall, name_fields=name_fields)
    own = [fault for fault in found.faults if not fault.is_known and _concerns(fault, ref)]
    # One change can lead to any number of texts, and redaction costs time: only those that are shown are redacted.
    warnings = [
        f"{warning.subject}: {clean(warning.message)}"
        for warning in islice((one for one in found.warnings if one.subject.namespace == ref.namespace), MOST_WARNINGS)
    ]
    if operation == "DELETE":
        broken = (fault for fault in _distinct(found.faults) if not fault.is_known)
        warnings += map(sentence, islice(broken, MOST_FAULTS))
        return Answer(warnings=tuple(warnings))
    if own:
        return Answer(allowed=False, message=_message(ref, _distinct(own), sentence), warnings=tuple(warnings))
    for fault in [each for each in _distinct(found.faults) if _matters(each, ref)][:MOST_FAULTS]:
        warnings.append(f"{_AS_BEFORE if fault.is_known else ''}{sentence(fault)}")
    if found.unchecked:
        warnings.append(f"{ref} was not checked by HAProxy: {clean_overall(found.unchecked)}")
    return Answer(warnings=tuple(warnings))


def _concerns(fault: Fault, ref: ResourceRef) -> bool:
    subject = fault.subject
    return subject is None or _is_same(subject, ref) or (bool(ref.namespace) and subject.namespace == ref.namespace)


def _is_same(subject: Subject, ref: ResourceRef) -> bool:
    return (subject.kind, subject.namespace, subject.name) == (ref.kind, ref.namespace, ref.name)


def _matters(fault: Fault, ref: ResourceRef) -> bool:
    """Whether *fault*, which does not reject *ref*, is worth a warning."""
    return not fault.is_known or (fault.subject is not None and _is_same(fault.subject, ref))


def _message(ref: ResourceRef, faults: Sequence[Fault], sentence: Callable[[Fault], str]) -> str:
    # Format only the reported faults.
    lines = [sentence(fault) for fault in faults[:MOST_FAULTS]]
    if len(faults) > MOST_FAULTS:
        lines.append(f"and {len(faults) - MOST_FAULTS} more")
    if len(lines) == 1:
        return f"{ref} cannot be served: {lines[0]}"
    return "\n".join([f"{ref} cannot be served:", *(f"- {line}" for line in lines)])


def _sentence(
    fault: Fault,
    *,
    ref: ResourceRef,
    clean: Callable[[str], str],
    clean_overall: Callable[[str], str],
    name_fields: NameFields,
) -> str:
    problem = fault.problem
    if fault.subject is None:
        clean = clean_overall
    if fault.subject is not None and ref.namespace and fault.subject.namespace != ref.namespace:
        # The reason quotes the object, which the author of this one may not be allowed to read.
        return f"{fault.subject} could no longer be served"
    is_own = fault.subject is not None and _is_same(fault.subject, ref)
    if is_own and fault.phase == "render":
        problem = name_fields(problem)
    text = clean(f"{problem.path}: {problem.message}" if problem.path else problem.message)
    if fault.phase != "render" and problem.line:
        text = f"{text} (line {problem.line} of the resulting {problem.source or _CONFIG})"
    if fault.phase == "render" and problem.hint:
        text = f"{text} ({clean(problem.hint)})"
    if fault.subject is None:
        return f"the complete configuration would be invalid: {text}"
    return text if is_own else f"{fault.subject} could no longer be served: {text}"


def _distinct(faults: Iterable[Fault]) -> list[Fault]:
    """Return *faults* without duplicates: several fragments of an object may fail for one reason."""
    return list({(fault.problem.message, fault.problem.line, fault.subject): fault for fault in faults}.values())
