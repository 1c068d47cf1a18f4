"""Explanations as text for terminals."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from functools import singledispatch

from rich.console import Console
from rich.text import Text

from haptic_trio.cli.output.findings import visible
from haptic_trio.explain.answers import (
    Answer,
    Certificate,
    CertificateAnswer,
    Entry,
    FileAnswer,
    FragmentProblem,
    GatewayRoute,
    GatewayVisit,
    HostAnswer,
    Line,
    LineAnswer,
    Lookup,
    MadeBy,
    Named,
    ObjectAnswer,
    Part,
    RouteAnswer,
    SearchAnswer,
    SectionAnswer,
)
from haptic_trio.explain.gateways import place_of

_LINES = 20
_WIDTH = 14
_NARROWEST = 30
_DIGITS = 12
"""Shown digits of a digest: enough to compare two."""

Row = tuple[str, str, str]
"""Label, text and style; a row without a label continues the previous one."""


def print_answer(console: Console, answer: Answer) -> None:
    """Print *answer*; on a terminal each text stays in its column."""
    for label, text, style in rows_of(answer):
        shown = one_line(text)
        for number, part in enumerate(_fold(shown, console.width) if console.is_terminal else [shown]):
            line = Text()
            line.append(f"{'' if number else label:<{_WIDTH}}", style="dim")
            line.append(part, style=style)
            line.rstrip()
            console.print(line)


def _fold(text: str, width: int) -> list[str]:
    """Return *text* as lines that fit beside a label; words are never split, so that they can be copied."""
    lead = text[: len(text) - len(text.lstrip())]
    return textwrap.wrap(
        text,
        max(width - _WIDTH, _NARROWEST),
        subsequent_indent=f"{lead}  ",
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]


def one_line(text: str) -> str:
    """Return untrusted *text* as one line, with control characters escaped."""
    return visible(text).replace("\n", "\\n")


@singledispatch
def rows_of(answer: Answer) -> Iterator[Row]:
    """Yield the rows of *answer*."""
    raise NotImplementedError(type(answer).__name__)


@rows_of.register
def _(answer: LineAnswer) -> Iterator[Row]:
    yield from _rows("line", [_place(answer.line), f"    {answer.line.text.strip()}"], "bold")
    if answer.section:
        yield "in", answer.section, ""
    yield from _maker_rows(answer.made_by)
    if answer.sources:
        yield "similar to", ", or ".join(f"{source.template}:{source.line}" for source in answer.sources), ""
    yield from _lookup_rows(answer.depends_on)
    yield from _problem_rows(answer.problems)


@rows_of.register
def _(answer: SectionAnswer) -> Iterator[Row]:
    yield "section", answer.section, "bold"
    yield "lines", f"haproxy.cfg:{_span(answer.first, answer.last)}", ""
    yield from _part_rows(answer.parts, len(answer.parts))
    if answer.section.startswith(("backend ", "listen ")):
        yield from _rows("routes", [_entry(entry) for entry in answer.routes[:_LINES]] or ["no map entry points to it"])
        yield from _more(answer.routes_count, min(len(answer.routes), _LINES))
    yield from _lookup_rows(answer.depends_on)
    yield from _problem_rows(answer.problems)


@rows_of.register
def _(answer: FileAnswer) -> Iterator[Row]:
    yield "file", answer.path, "bold"
    yield "is", f"{answer.kind}, {answer.lines} lines, {answer.size} bytes, digest {answer.digest[:_DIGITS]}", ""
    if answer.is_secret:
        yield "", "secret: content hidden", "yellow"
    if answer.output != answer.path:
        yield "by", f"template {answer.output}", ""
    yield from _part_rows(answer.parts, answer.parts_count)
    yield from _lookup_rows(answer.depends_on)
    yield from _problem_rows(answer.problems)


@rows_of.register
def _(answer: RouteAnswer) -> Iterator[Row]:
    yield "request", f"{answer.host}{answer.path}", "bold"
    yield from _destination_rows(answer)
    yield from _reason_rows(answer)
    if answer.winner is not None:
        yield from _rows("matched by", [_entry(answer.winner)])
        yield from _maker_rows(answer.winner.made_by)
    if answer.backend_made_by is not None:
        yield "backend by", _maker(answer.backend_made_by), ""
    steps = [f"{step.path}: {step.match} {step.key}{'  <- found' if step.found else ''}" for step in answer.steps]
    if answer.winner is not None or not answer.gateways:
        yield from _rows("lookups", steps)
    yield from _rows("next match", [_entry(entry) for entry in answer.others])
    yield from _more(answer.others_count, len(answer.others))
    yield from _lookup_rows(answer.depends_on)
    yield from _certificate_rows(answer.certificates)
    yield from _rows("note", answer.notes)


@rows_of.register
def _(answer: HostAnswer) -> Iterator[Row]:
    yield "host", answer.host, "bold"
    yield from _reason_rows(answer)
    yield from _rows("routes", [_entry(entry) for entry in answer.entries[:_LINES]] or ["none"])
    yield from _more(answer.entries_count, min(len(answer.entries), _LINES))
    yield from _certificate_rows(answer.certificates)
    yield from _rows("note", answer.notes)


@rows_of.register
def _(answer: CertificateAnswer) -> Iterator[Row]:
    yield "server name", answer.name, "bold"
    yield from _certificate_rows(answer.certificates)
    yield from _rows("note", answer.notes)
    yield from _lookup_rows(answer.depends_on)
    yield from _problem_rows(answer.problems, excerpt=False)


@rows_of.register
def _(answer: ObjectAnswer) -> Iterator[Row]:
    yield "object", _object(answer.object), "bold"
    if not answer.exists:
        yield "", "does not exist, but fragments look it up", "yellow"
    yield "watched as", ", ".join(answer.watched_as) or "nothing", ""
    if answer.exists and not answer.products:
        yield "made", "nothing", "yellow"
    for product in answer.products:
        yield "made", f"by {_fragment(product.made_by)}", ""
        yield from _rows("", [f"  {_place(line)}  {line.text.rstrip()}" for line in _written(product.lines)])
        yield from _more(product.lines_count, len(product.lines[:_LINES]))
        yield from _rows("", [f"  file {path}" for path in product.files])
        yield from _lookup_rows(product.depends_on)
    yield from _rows("no output of", [_fragment(made_by) for made_by in answer.idle])
    for use in answer.used_by:
        maker = f"fragment {use.fragment} ({use.template}:{use.line})" if use.fragment else f"template {use.output}"
        yield "used by", f"{maker} as {', '.join(use.questions)}", ""
        if use.count:
            yield "", f"  for {_some(use.objects, use.count)}", ""
    yield from _problem_rows(answer.problems)
    yield from _rows("warning", answer.warnings, "yellow")
    yield from _rows("note", answer.notes)


@rows_of.register
def _(answer: SearchAnswer) -> Iterator[Row]:
    yield "search", answer.text, "bold"
    texts = [f"{_place(hit.line)}  {hit.line.text.strip()}{_made_for(hit.made_by)}" for hit in answer.hits]
    yield from _rows("found", texts or ["nothing"])
    yield from _more(answer.count, len(answer.hits))


def _made_for(made_by: MadeBy) -> str:
    return f"  [{made_by.object}]" if made_by.object is not None else ""


def _reason_rows(answer: RouteAnswer | HostAnswer) -> Iterator[Row]:
    """Yield what an owner of the host should know first."""
    yield from _rows("reason", answer.reasons, "yellow")
    yield from _rows("warning", answer.warnings, "yellow")
    yield from _problem_rows(answer.problems, excerpt=False)


def _written(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines[:_LINES] if line.text.strip()]


def _rows(label: str, texts: Iterable[str], style: str = "") -> Iterator[Row]:
    for number, text in enumerate(texts):
        yield (label if number == 0 else ""), text, style if number == 0 else ""


def _more(count: int, shown: int) -> Iterator[Row]:
    if count > shown:
        yield "", f"… and {count - shown} more", "dim"


def _destination_rows(answer: RouteAnswer) -> Iterator[Row]:
    """Yield what the frontends of Gateways, and those of the library `base`, do with the request."""
    rows = [_visit(visit) for visit in answer.gateways]
    text, style = _destination(answer)
    if not rows:
        rows = [(text, style)]
    elif answer.winner is not None or answer.status != 404:
        rows.insert(0, (text, style))
    else:
        rows.append((f"404 at other frontends: {text.partition(': ')[2]}", "dim"))
    for number, (text, style) in enumerate(rows):
        yield ("routed to" if number == 0 else ""), text, style


def _visit(visit: GatewayVisit) -> tuple[str, str]:
    routes = [_gateway_route(route) for route in visit.routes]
    is_certain = bool(visit.routes) and not visit.routes[-1].conditions
    text = "; else ".join([*routes, *([] if is_certain else ["404: no route matches"])])
    style = "green" if is_certain and visit.routes[0].outcomes[0].startswith("backend") else "red"
    return f"{text}, at the listener {visit.listener} of {place_of(visit.frontend, visit.front)}", style


def _gateway_route(route: GatewayRoute) -> str:
    place = f"{route.path}:{route.line}" + (f", {route.object}" if route.object is not None else "")
    condition = f" if {' and '.join(route.conditions)}" if route.conditions else ""
    return f"{' and '.join(route.outcomes)}{condition} ({place})"


def _destination(answer: RouteAnswer) -> tuple[str, str]:
    match answer.status:
        case 0:
            return f"backend {answer.backend}", "green"
        case 503:
            return f"503: backend {answer.backend} does not exist", "red"
        case 404:
            return "404: no entry matches", "red"
        case _:
            return f"{answer.status}: the host is rejected", "red"


def _maker_rows(made_by: MadeBy) -> Iterator[Row]:
    if made_by.object is None:
        yield "made by", f"template {made_by.output}, for no object", ""
    else:
        yield "made by", _fragment(made_by), "cyan"
        yield "for", _object(made_by.object), "magenta"


def _maker(made_by: MadeBy) -> str:
    if made_by.object is None:
        return f"template {made_by.output}"
    return f"{made_by.object}, {_fragment(made_by)}"


def _fragment(made_by: MadeBy) -> str:
    return f"fragment {made_by.fragment}, {made_by.template}:{made_by.line}"


def _object(named: Named) -> str:
    return f"{named}, resourceVersion {named.resource_version}" if named.resource_version else str(named)


def _place(line: Line) -> str:
    return f"{line.path}:{line.line}"


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _entry(entry: Entry) -> str:
    return f"{_place(entry.line)}  {entry.line.text}  ({entry.match}){_made_for(entry.made_by)}"


def _part_rows(parts: Sequence[Part], count: int) -> Iterator[Row]:
    texts = [f"{_span(part.first, part.last)}  {_maker(part.made_by)}" for part in parts[:_LINES]]
    yield from _rows("made by", texts)
    yield from _more(count, len(texts))


def _certificate_rows(certificates: Sequence[Certificate]) -> Iterator[Row]:
    for number, certificate in enumerate(certificates):
        names = ", ".join(certificate.names)
        text = f"{_place(certificate.line)}  {certificate.path} for {names}, digest {certificate.digest[:_DIGITS]}"
        yield ("" if number else "certificate"), text, ""
        yield "", f"  {_maker(certificate.made_by)}", ""


def _lookup_rows(lookups: Sequence[Lookup]) -> Iterator[Row]:
    # Lookups of free file names do not help users.
    shown = [lookup for lookup in lookups if not lookup.question.startswith("file ")]
    texts = [f"{one.question}: {_some(one.found, one.count) if one.count else 'nothing'}" for one in shown]
    yield from _rows("depends on", texts)


def _some(objects: Sequence[Named], count: int) -> str:
    text = ", ".join(str(one) for one in objects)
    return f"{text}, … ({count})" if count > len(objects) else text


def _problem_rows(problems: Sequence[FragmentProblem], *, excerpt: bool = True) -> Iterator[Row]:
    for problem in problems:
        yield "problem", f"{problem.object}, fragment {problem.fragment}: {problem.message}", "bold red"
        fallback = "its last good output is used" if problem.has_fallback else "it has no fallback"
        yield "", f"{problem.place}; {fallback}", ""
        yield from _rows("", problem.excerpt.splitlines() if excerpt else ())
        if problem.hint:
            yield "", f"hint: {problem.hint}", "green"
