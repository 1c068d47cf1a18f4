"""Static assertions: rendered files, rejected objects, and the cost of a change."""

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from haptic_trio.config.assertions import (
    Assertion,
    Behaviour,
    Contains,
    Deterministic,
    Equals,
    HaproxyValid,
    JsonPathHolds,
    MapEntry,
    MatchCount,
    NotContains,
    PlanIs,
    PlanOutcome,
    RenderingError,
)
from haptic_trio.config.decode import nearest_hint
from haptic_trio.config.templates import MAIN_TEMPLATE
from haptic_trio.errors import Problem
from haptic_trio.haproxy.config.maps import parse_map_file
from haptic_trio.haproxy.plan.capabilities import capabilities_of
from haptic_trio.haproxy.plan.plan import make_plan
from haptic_trio.jsonpath import compile_path
from haptic_trio.validation_tests.rendering import RenderedTest, Rendering
from haptic_trio.validation_tests.results import RENDER_FAILS, difference, text_diff

_MOST_NAMED = 12
_MOST_COMPARED: Final = 5000
"""Lines among which a similar one is searched."""
_RESOURCE: Final = re.compile(r"\$?\.?resources\.(\w+)")


class Fault(msgspec.Struct, frozen=True):
    """Reason of a failed assertion."""

    message: str
    diff: str = ""
    actual: str | None = None
    """Actual text of `equals`."""
    causes: tuple[Problem, ...] = ()
    """Problems in the user's own templates that the message quotes."""


class _Absent(Exception):  # noqa: N818  private to this module
    """The target of an assertion does not exist, because of *causes* if the render fails."""

    def __init__(self, message: str, causes: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.causes = causes


def check(assertion: Assertion, rendered: RenderedTest) -> Fault | None:
    """Return why *assertion* fails, or None. For `haproxy_valid`, only the parser of haptic-trio is used."""
    try:
        return _check(assertion, rendered)
    except _Absent as absent:
        return Fault(str(absent), causes=rendered.own.choose(absent.causes))


def _check(assertion: Assertion, rendered: RenderedTest) -> Fault | None:  # noqa: C901, PLR0911  one case for each type
    rendering = rendered.rendering
    match assertion:
        case HaproxyValid():
            return _check_valid(rendered)
        case Contains():
            return _check_contained(assertion, rendering)
        case NotContains():
            return _check_absent(assertion, rendering)
        case MatchCount():
            return _check_count(assertion, rendering)
        case Equals():
            return _check_equals(assertion, rendering)
        case JsonPathHolds():
            values = compile_path(assertion.path).find(rendered.seen)
            if values == assertion.expected:
                return None
            return Fault(
                "it selects another value"
                if values
                else f"it selects nothing{_unknown(assertion.path, rendered.seen)}",
                text_diff(_as_json(assertion.expected), _as_json(values)),
            )
        case MapEntry():
            return _check_entry(assertion, rendering)
        case Deterministic():
            return _check_determinism(assertion, rendered)
        case RenderingError():
            return _check_rejection(assertion, rendering)
        case PlanIs():
            return _check_plan(assertion, rendered)
        case Behaviour():
            raise TypeError("assertion needs a running HAProxy")


def describe_problems(problems: Sequence[Problem]) -> str:
    """Return *problems* as one line."""
    shown = "; ".join(str(problem) for problem in problems[:3])
    return shown if len(problems) <= 3 else f"{shown}; and {len(problems) - 3} more"


def _check_valid(rendered: RenderedTest) -> Fault | None:
    rendering = rendered.rendering
    if rendering.problems:
        return Fault(describe_problems(rendering.problems), causes=rendered.own.choose(rendering.problems))
    rejections = rendering.output.rejections if rendering.output is not None else ()
    if rejections:
        named = [f"{rejection.subject}: {rejection.problem.message}" for rejection in rejections[:3]]
        more = f"; and {len(rejections) - 3} more" if len(rejections) > 3 else ""
        return Fault(f"rejected: {'; '.join(named)}{more}")
    return None


def _check_contained(assertion: Contains, rendering: Rendering) -> Fault | None:
    text = _text(rendering, assertion.target, assertion.section)
    if _find_all(assertion, text):
        return None
    found = "no such text"
    wanted = assertion.text.strip().splitlines()
    if wanted and not _is_secret(rendering, assertion.target):
        lines = dict.fromkeys(line.strip() for line in text.splitlines()[:_MOST_COMPARED])
        similar = difflib.get_close_matches(wanted[0].strip(), lines, n=1)
        found += f", but {similar[0]!r}" if similar else ""
    return Fault(difference(_place(assertion), _needle(assertion), found))


def _check_count(assertion: MatchCount, rendering: Rendering) -> Fault | None:
    number = len(_find_all(assertion, _text(rendering, assertion.target, assertion.section)))
    if number == assertion.count:
        return None
    return Fault(difference(_place(assertion), f"{_needle(assertion)} {assertion.count} times", f"{number} times"))


def _check_absent(assertion: NotContains, rendering: Rendering) -> Fault | None:
    if rendering.output is not None and not assertion.section and _path_of(rendering, assertion.target) is None:
        return None
    found = _find_all(assertion, _text(rendering, assertion.target, assertion.section))
    if not found:
        return None
    what = "it" if _is_secret(rendering, assertion.target) else repr(found[0])
    return Fault(difference(_place(assertion), f"no {_needle(assertion)}", what))


def _check_equals(assertion: Equals, rendering: Rendering) -> Fault | None:
    expected, found = (
        _normal(text) for text in (assertion.expected, _text(rendering, assertion.target, assertion.section))
    )
    if expected == found:
        return None
    message = f"{_place(assertion)} differs"
    if _is_secret(rendering, assertion.target):
        return Fault(f"{message}; the content is secret and not shown")
    return Fault(message, text_diff(expected, found), found)


def _normal(text: str) -> str:
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return "".join(f"{line}\n" for line in lines)


def _unknown(path: str, seen: Mapping[str, Any]) -> str:
    """Return the reason why *path* selects nothing, if it is known."""
    match = _RESOURCE.match(path)
    known = seen["resources"]
    if match is None or match[1] in known:
        return ""
    hint = nearest_hint(match[1], known)
    return f": no watched resource {match[1]!r}; {hint}"


def _check_entry(assertion: MapEntry, rendering: Rendering) -> Fault | None:
    entries = parse_map_file(_text(rendering, assertion.map).encode(errors="surrogateescape"))
    found = next((value for key, value in entries if key == assertion.key), None)
    if assertion.absent:
        return None if found is None else Fault(difference(f"the key {assertion.key}", "none", f"the value {found!r}"))
    if found is None:
        others = f"{len(entries)} others{_named([key for key, _ in entries])}"
        return Fault(difference(assertion.map, f"the key {assertion.key}", others))
    if assertion.value and found != assertion.value:
        return Fault(difference(f"the key {assertion.key}", f"the value {assertion.value!r}", repr(found)))
    return None


def _named(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = ", …" if len(names) > _MOST_NAMED else ""
    return f": {', '.join(names[:_MOST_NAMED])}{more}"


def _check_determinism(assertion: Deterministic, rendered: RenderedTest) -> Fault | None:
    first = rendered.rendering
    for number in range(1, assertion.rounds + 1):
        other = rendered.again(number)
        if first.output is None or other.output is None:
            if first.problems == other.problems:
                continue
            return Fault("the render fails in one order of objects only")
        before, after = first.output.texts, other.output.texts
        for path in sorted(before.keys() | after.keys()):
            old, new = (texts[path].text if path in texts else "" for texts in (before, after))
            if (path in before) != (path in after) or old != new:
                diff = "" if _is_secret(first, path) else text_diff(old, new)
                return Fault(f"{path} depends on the order of the objects", diff)
        if set(first.output.rejections) != set(other.output.rejections):
            return Fault("which objects are left out depends on their order")
    return None


def _check_rejection(assertion: RenderingError, rendering: Rendering) -> Fault | None:
    candidates: list[tuple[str, str]] = []
    if rendering.output is not None:
        candidates = [(str(one.subject), one.problem.message) for one in rendering.output.rejections]
    elif not assertion.object:
        candidates = [("", problem.message) for problem in rendering.problems]
    own = [message for subject, message in candidates if assertion.object in {"", subject}]
    if any(_matches(assertion, message) for message in own):
        return None
    if own:
        return Fault(difference("its message", _needle(assertion), repr(own[0])))
    if rendering.output is None:
        return Fault(f"the whole render fails: {describe_problems(rendering.problems)}")
    others = f", but {candidates[0][0]}: {candidates[0][1]}" if candidates else ""
    what = assertion.object or "some object"
    return Fault(difference(what, "an error", f"none: the object is rendered without error{others}"))


def _check_plan(assertion: PlanIs, rendered: RenderedTest) -> Fault | None:
    before, after = rendered.before, rendered.rendering
    for rendering, name in ((before, "the state before"), (after, "the state afterwards")):
        if rendering is None or rendering.generation is None:
            problems = rendering.problems if rendering is not None else after.problems
            raise _Absent(f"{name} is not a valid configuration: {describe_problems(problems)}", problems)
    assert before is not None
    assert after.generation is not None
    version = tuple(int(part) for part in assertion.haproxy_version.split("."))
    plan = make_plan(before.generation, after.generation, capabilities=capabilities_of(version))
    kinds = sorted({type(operation).__name__ for operation in plan.operations})
    outcome = PlanOutcome.RELOAD if plan.reloads else PlanOutcome.RUNTIME if plan.operations else PlanOutcome.NONE
    if outcome is not assertion.outcome:
        why = f": {'; '.join(plan.reasons[:3])}" if plan.reasons else f": {', '.join(kinds)}" if kinds else ""
        return Fault(difference("the cost of the change", assertion.outcome, f"{outcome}{why}"))
    if assertion.operations and kinds != sorted(set(assertion.operations)):
        wanted = ", ".join(sorted(set(assertion.operations)))
        return Fault(difference("the operations", wanted, ", ".join(kinds) or "none"))
    if (assertion.text or assertion.pattern) and not any(_matches(assertion, reason) for reason in plan.reasons):
        return Fault(difference("the reasons", _needle(assertion), "; ".join(plan.reasons) or "none"))
    return None


def _matches(assertion: RenderingError | PlanIs, message: str) -> bool:
    if assertion.pattern:
        return re.search(assertion.pattern, message, re.MULTILINE) is not None
    return assertion.text in message


def _find_all(assertion: Contains | NotContains | MatchCount, text: str) -> list[str]:
    if assertion.pattern:
        return [match[0] for match in re.finditer(assertion.pattern, text, re.MULTILINE)]
    return [assertion.text] * text.count(assertion.text)


def _text(rendering: Rendering, target: str, section: str = "") -> str:
    """Return the target of the assertion; raises `_Absent`."""
    if rendering.output is None:
        raise _Absent(f"{RENDER_FAILS}{describe_problems(rendering.problems)}", rendering.problems)
    path = _path_of(rendering, target)
    if path is None:
        raise _Absent(f"no file {target!r}{_named(sorted(rendering.output.texts))}")
    if not section:
        return rendering.output.texts[path].text
    if rendering.generation is None:
        raise _Absent(f"{MAIN_TEMPLATE} cannot be parsed: {describe_problems(rendering.problems)}", rendering.problems)
    kind, _, name = section.partition(" ")
    found = rendering.generation.config.find(kind, name.strip())
    if found is None:
        names = [f"{one.kind} {one.name}".strip() for one in rendering.generation.config.all(kind)]
        raise _Absent(f"no section {section!r}{_named(names)}")
    return found.text


def _path_of(rendering: Rendering, target: str) -> str | None:
    assert rendering.output is not None
    texts = rendering.output.texts
    if target in texts:
        return target
    named = [path for path in texts if PurePosixPath(path).name == target]
    return named[0] if len(named) == 1 else None


def _is_secret(rendering: Rendering, target: str) -> bool:
    if rendering.output is None:
        return False
    path = _path_of(rendering, target)
    file = rendering.output.files.get(path) if path is not None and path != MAIN_TEMPLATE else None
    return file is not None and file.secret


def _place(assertion: Contains | NotContains | MatchCount | Equals) -> str:
    return assertion.section or assertion.target


def _needle(assertion: Contains | NotContains | MatchCount | RenderingError | PlanIs) -> str:
    return f"/{assertion.pattern}/" if assertion.pattern else repr(assertion.text)


def _as_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2).decode()
