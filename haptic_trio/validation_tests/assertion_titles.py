"""One-line titles of assertions."""

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
    RenderingError,
)

_LONGEST = 60


def title_of(assertion: Assertion) -> str:  # noqa: C901, PLR0911  one case for each type
    """Return what *assertion* asserts: its description, or a summary of its fields."""
    if assertion.description:
        return assertion.description
    match assertion:
        case HaproxyValid():
            return "HAProxy accepts it"
        case Contains():
            return f"{_place(assertion)} contains {_needle(assertion)}"
        case NotContains():
            return f"{_place(assertion)} does not contain {_needle(assertion)}"
        case MatchCount():
            return f"{_place(assertion)} contains {_needle(assertion)} {assertion.count} times"
        case Equals():
            return f"{_place(assertion)} is as expected"
        case JsonPathHolds():
            return f"{assertion.path} is as expected"
        case MapEntry():
            has = "has no" if assertion.absent else "has"
            value = f" → {assertion.value}" if assertion.value else ""
            return f"{assertion.map} {has} {_short(assertion.key)}{value}"
        case Deterministic():
            return "the order of objects makes no difference"
        case RenderingError():
            return f"{assertion.object or 'something'} cannot be rendered"
        case PlanIs():
            return f"the change costs {assertion.outcome} on HAProxy {assertion.haproxy_version}"
        case Behaviour():
            return _request(assertion)


def _request(assertion: Behaviour) -> str:
    request, expect = assertion.request, assertion.expect
    scheme = "https" if request.tls else "http"
    who = expect.endpoint or expect.server or expect.backend or ("HAProxy itself" if expect.by_haproxy else "")
    return (
        f"{request.method} {scheme}://{request.host or '-'}{_short(request.path)} → {expect.status or 'closed'}"
        f"{f' from {who}' if who else ''}"
    )


def _place(assertion: Contains | NotContains | MatchCount | Equals) -> str:
    return assertion.section or assertion.target


def _needle(assertion: Contains | NotContains | MatchCount) -> str:
    return f"/{_short(assertion.pattern)}/" if assertion.pattern else repr(_short(assertion.text))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
