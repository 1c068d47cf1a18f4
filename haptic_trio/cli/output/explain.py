"""Explanations as text for terminals."""

import textwrap
from collections.abc import Iterable, Iterator
from functools import singledispatch

from rich.console import Console
from rich.text import Text

from haptic_trio.cli.output.answer_rows import (
    DIGITS,
    LINES,
    Row,
    certificate_rows,
    destination,
    entry_text,
    fragment,
    gateway_route,
    listed,
    lookup_rows,
    made_for,
    maker,
    maker_rows,
    more,
    object_name,
    one_line,
    part_rows,
    place,
    problem_rows,
    reason_rows,
    some,
    span,
    step_rows,
    written,
)
from haptic_trio.explain.answers import (
    Answer,
    CertificateAnswer,
    FileAnswer,
    GatewayVisit,
    HostAnswer,
    LineAnswer,
    ObjectAnswer,
    RouteAnswer,
    SearchAnswer,
    SectionAnswer,
)
from haptic_trio.explain.gateways import place_of

_WIDTH = 14
_NARROWEST = 30


def print_answer(console: Console, answer: Answer) -> None:
    """Print *answer*; on a terminal each text stays in its column."""
    for line in lines_of(rows_of(answer), console.width if console.is_terminal else None):
        console.print(line)


def lines_of(rows: Iterable[Row], width: int | None = None) -> Iterator[Text]:
    """Yield *rows* as lines, with control characters escaped; with *width*, each text stays in its column."""
    for label, text, style in rows:
        shown = one_line(text)
        for number, part in enumerate([shown] if width is None else _fold(shown, width)):
            line = Text()
            line.append(f"{'' if number else label:<{_WIDTH}}", style="dim")
            line.append(part, style=style)
            line.rstrip()
            yield line


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


@singledispatch
def rows_of(answer: Answer) -> Iterator[Row]:
    """Yield the rows of *answer*."""
    raise NotImplementedError(type(answer).__name__)


@rows_of.register
def _(answer: LineAnswer) -> Iterator[Row]:
    yield from listed("line", [place(answer.line), f"    {answer.line.text.strip()}"], "bold")
    if answer.section:
        yield "in", answer.section, ""
    yield from maker_rows(answer.made_by)
    if answer.sources:
        yield "similar to", ", or ".join(f"{source.template}:{source.line}" for source in answer.sources), ""
    yield from lookup_rows(answer.depends_on)
    yield from problem_rows(answer.problems)


@rows_of.register
def _(answer: SectionAnswer) -> Iterator[Row]:
    yield "section", answer.section, "bold"
    yield "lines", f"haproxy.cfg:{span(answer.first, answer.last)}", ""
    yield from part_rows(answer.parts, len(answer.parts))
    if answer.section.startswith(("backend ", "listen ")):
        yield from listed(
            "routes", [entry_text(entry) for entry in answer.routes[:LINES]] or ["no map entry points to it"]
        )
        yield from more(answer.routes_count, min(len(answer.routes), LINES))
    yield from lookup_rows(answer.depends_on)
    yield from problem_rows(answer.problems)


@rows_of.register
def _(answer: FileAnswer) -> Iterator[Row]:
    yield "file", answer.path, "bold"
    yield "is", f"{answer.kind}, {answer.lines} lines, {answer.size} bytes, digest {answer.digest[:DIGITS]}", ""
    if answer.is_secret:
        yield "", "secret: content hidden", "yellow"
    if answer.output != answer.path:
        yield "by", f"template {answer.output}", ""
    yield from part_rows(answer.parts, answer.parts_count)
    yield from lookup_rows(answer.depends_on)
    yield from problem_rows(answer.problems)


@rows_of.register
def _(answer: RouteAnswer) -> Iterator[Row]:
    yield "request", f"{answer.host}{answer.path}", "bold"
    yield from _destination_rows(answer)
    yield from reason_rows(answer)
    if answer.winner is not None:
        yield from listed("matched by", [entry_text(answer.winner)])
        yield from maker_rows(answer.winner.made_by)
    if answer.backend_made_by is not None:
        yield "backend by", maker(answer.backend_made_by), ""
    if answer.winner is not None or not answer.gateways:
        yield from step_rows(answer.steps)
    yield from listed("next match", [entry_text(entry) for entry in answer.others])
    yield from more(answer.others_count, len(answer.others))
    yield from lookup_rows(answer.depends_on)
    yield from certificate_rows(answer.certificates)
    yield from listed("note", answer.notes)


@rows_of.register
def _(answer: HostAnswer) -> Iterator[Row]:
    yield "host", answer.host, "bold"
    yield from reason_rows(answer)
    yield from listed("routes", [entry_text(entry) for entry in answer.entries[:LINES]] or ["none"])
    yield from more(answer.entries_count, min(len(answer.entries), LINES))
    yield from certificate_rows(answer.certificates)
    yield from listed("note", answer.notes)


@rows_of.register
def _(answer: CertificateAnswer) -> Iterator[Row]:
    yield "server name", answer.name, "bold"
    yield from certificate_rows(answer.certificates)
    yield from listed("note", answer.notes)
    yield from lookup_rows(answer.depends_on)
    yield from problem_rows(answer.problems, excerpt=False)


@rows_of.register
def _(answer: ObjectAnswer) -> Iterator[Row]:
    yield "object", object_name(answer.object), "bold"
    if not answer.exists:
        yield "", "does not exist, but fragments look it up", "yellow"
    yield "watched as", ", ".join(answer.watched_as) or "nothing", ""
    if answer.exists and not answer.products:
        yield "made", "nothing", "yellow"
    for product in answer.products:
        yield "made", f"by {fragment(product.made_by)}", ""
        yield from listed("", [f"  {place(line)}  {line.text.rstrip()}" for line in written(product.lines)])
        yield from more(product.lines_count, len(product.lines[:LINES]))
        yield from listed("", [f"  file {path}" for path in product.files])
        yield from lookup_rows(product.depends_on)
    yield from listed("no output of", [fragment(made_by) for made_by in answer.idle])
    for use in answer.used_by:
        maker = f"fragment {use.fragment} ({use.template}:{use.line})" if use.fragment else f"template {use.output}"
        yield "used by", f"{maker} as {', '.join(use.questions)}", ""
        if use.count:
            yield "", f"  for {some(use.objects, use.count)}", ""
    yield from problem_rows(answer.problems)
    yield from listed("warning", answer.warnings, "yellow")
    yield from listed("note", answer.notes)


@rows_of.register
def _(answer: SearchAnswer) -> Iterator[Row]:
    yield "search", answer.text, "bold"
    texts = [f"{place(hit.line)}  {hit.line.text.strip()}{made_for(hit.made_by)}" for hit in answer.hits]
    yield from listed("found", texts or ["nothing"])
    yield from more(answer.count, len(answer.hits))


def _destination_rows(answer: RouteAnswer) -> Iterator[Row]:
    """Yield what the frontends of Gateways, and those of the library `base`, do with the request."""
    rows = [_visit(visit) for visit in answer.gateways]
    text, style = destination(answer)
    if not rows:
        rows = [(text, style)]
    elif answer.winner is not None or answer.status != 404:
        rows.insert(0, (text, style))
    else:
        rows.append((f"404 at other frontends: {text.partition(': ')[2]}", "dim"))
    for number, (text, style) in enumerate(rows):
        yield ("routed to" if number == 0 else ""), text, style


def _visit(visit: GatewayVisit) -> tuple[str, str]:
    routes = [gateway_route(route) for route in visit.routes]
    is_certain = bool(visit.routes) and not visit.routes[-1].conditions
    text = "; else ".join([*routes, *([] if is_certain else ["404: no route matches"])])
    style = "green" if is_certain and visit.routes[0].outcomes[0].startswith("backend") else "red"
    return f"{text}, at the listener {visit.listener} of {place_of(visit.frontend, visit.front)}", style
