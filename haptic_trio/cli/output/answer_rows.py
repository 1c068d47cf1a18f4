"""Rows for parts of an explanation: lines, makers, lookups, certificates and problems."""

import time
from collections.abc import Iterable, Iterator, Sequence

from haptic_trio.cli.output.findings import visible
from haptic_trio.explain.answers import (
    Certificate,
    Entry,
    FragmentProblem,
    GatewayRoute,
    HostAnswer,
    Line,
    Lookup,
    MadeBy,
    Named,
    Part,
    RouteAnswer,
    Step,
)

LINES = 20
"""Maximum number of lines, parts or entries of one kind."""
DIGITS = 12
"""Shown digits of a digest: enough to compare two."""

Row = tuple[str, str, str]
"""Label, text and style; a row without a label continues the previous one."""


def one_line(text: str) -> str:
    """Return untrusted *text* as one line, with control characters escaped."""
    return visible(text).replace("\n", "\\n")


def made_for(made_by: MadeBy) -> str:
    """Return the object of *made_by* in brackets; nothing outside of objects."""
    return f"  [{made_by.object}]" if made_by.object is not None else ""


def reason_rows(answer: RouteAnswer | HostAnswer) -> Iterator[Row]:
    """Yield what an owner of the host should know first."""
    yield from listed("reason", answer.reasons, "yellow")
    yield from listed("warning", answer.warnings, "yellow")
    yield from problem_rows(answer.problems, excerpt=False)


def written(lines: Sequence[Line]) -> list[Line]:
    """Return the first of *lines* that are not empty."""
    return [line for line in lines[:LINES] if line.text.strip()]


def listed(label: str, texts: Iterable[str], style: str = "") -> Iterator[Row]:
    """Yield *texts*, the first with *label* and *style*."""
    for number, text in enumerate(texts):
        yield (label if number == 0 else ""), text, style if number == 0 else ""


def more(count: int, shown: int) -> Iterator[Row]:
    """Yield the number of omitted items, if any."""
    if count > shown:
        yield "", f"… and {count - shown} more", "dim"


def gateway_route(route: GatewayRoute) -> str:
    """Return outcomes, conditions and place of *route*."""
    place = f"{route.path}:{route.line}" + (f", {route.object}" if route.object is not None else "")
    condition = f" if {' and '.join(route.conditions)}" if route.conditions else ""
    return f"{' and '.join(route.outcomes)}{condition} ({place})"


def destination(answer: RouteAnswer) -> tuple[str, str]:
    """Return what the frontends of the library `base` do with the request, and a style."""
    match answer.status:
        case 0:
            return f"backend {answer.backend}", "green"
        case 503:
            return f"503: backend {answer.backend} does not exist", "red"
        case 404:
            return "404: no entry matches", "red"
        case _:
            return f"{answer.status}: the host is rejected", "red"


def maker_rows(made_by: MadeBy) -> Iterator[Row]:
    """Yield the fragment and the object of *made_by*."""
    if made_by.object is None:
        yield "made by", f"template {made_by.output}, for no object", ""
    else:
        yield "made by", fragment(made_by), "cyan"
        yield "for", object_name(made_by.object), "magenta"


def maker(made_by: MadeBy) -> str:
    """Return object and fragment of *made_by* as one text."""
    if made_by.object is None:
        return f"template {made_by.output}"
    return f"{made_by.object}, {fragment(made_by)}"


def fragment(made_by: MadeBy) -> str:
    """Return name and place of the fragment."""
    return f"fragment {made_by.fragment}, {made_by.template}:{made_by.line}"


def object_name(named: Named) -> str:
    """Return the name of an object with its version."""
    return f"{named}, resourceVersion {named.resource_version}" if named.resource_version else str(named)


def place(line: Line) -> str:
    """Return file and number of *line*."""
    return f"{line.path}:{line.line}"


def span(first: int, last: int) -> str:
    """Return a range of lines."""
    return str(first) if first == last else f"{first}-{last}"


def entry_text(entry: Entry) -> str:
    """Return an entry of a map with its place and object."""
    return f"{place(entry.line)}  {entry.line.text}  ({entry.match}){made_for(entry.made_by)}"


def part_rows(parts: Sequence[Part], count: int) -> Iterator[Row]:
    """Yield the makers of the first of *count* parts."""
    texts = [f"{span(part.first, part.last)}  {maker(part.made_by)}" for part in parts[:LINES]]
    yield from listed("made by", texts)
    yield from more(count, len(texts))


def certificate_rows(certificates: Sequence[Certificate]) -> Iterator[Row]:
    """Yield *certificates* with names, expiry and maker."""
    for number, certificate in enumerate(certificates):
        names = ", ".join(certificate.names)
        text = f"{place(certificate.line)}  {certificate.path} for {names}, digest {certificate.digest[:DIGITS]}"
        if certificate.expires is not None:
            text += f", expires {day_of(certificate.expires)}"
        yield ("" if number else "certificate"), text, ""
        yield "", f"  {maker(certificate.made_by)}", ""


def day_of(unix: float) -> str:
    """Return the day of *unix*, in seconds since 1970, as `YYYY-MM-DD` in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(unix))


def step_rows(steps: Sequence[Step]) -> Iterator[Row]:
    """Yield the map lookups of a request, in order."""
    texts = [f"{step.path}: {step.match} {step.key}{'  <- found' if step.found else ''}" for step in steps]
    yield from listed("lookups", texts)


def lookup_rows(lookups: Sequence[Lookup]) -> Iterator[Row]:
    """Yield lookups with their results."""
    # Lookups of free file names do not help users.
    shown = [lookup for lookup in lookups if not lookup.question.startswith("file ")]
    texts = [f"{one.question}: {some(one.found, one.count) if one.count else 'nothing'}" for one in shown]
    yield from listed("depends on", texts)


def some(objects: Sequence[Named], count: int) -> str:
    """Return the names of the first of *count* objects."""
    text = ", ".join(str(one) for one in objects)
    return f"{text}, … ({count})" if count > len(objects) else text


def problem_rows(problems: Sequence[FragmentProblem], *, excerpt: bool = True) -> Iterator[Row]:
    """Yield problems with place, fallback and hint."""
    for problem in problems:
        yield "problem", f"{problem.object}, fragment {problem.fragment}: {problem.message}", "bold red"
        fallback = "its last good output is used" if problem.has_fallback else "it has no fallback"
        yield "", f"{problem.place}; {fallback}", ""
        yield from listed("", problem.excerpt.splitlines() if excerpt else ())
        if problem.hint:
            yield "", f"hint: {problem.hint}", "green"
