"""Match of a request as text, from the map line to the servers with their live figures."""

from collections.abc import Iterator, Mapping

import msgspec

from haptic_trio.cli.output.answer_rows import (
    Row,
    certificate_rows,
    destination,
    entry_text,
    gateway_route,
    listed,
    lookup_rows,
    maker_rows,
    more,
    reason_rows,
    step_rows,
)
from haptic_trio.cli.output.findings import quantity
from haptic_trio.dataplane.figures import BackendFigures
from haptic_trio.explain.answers import RouteAnswer
from haptic_trio.explain.requests import RequestBackend, RequestMatch

_VERDICTS = {"yes": "matches", "no": "does not match", "unknown": "depends on a regular expression"}


def rows_of_match(match: RequestMatch, method: str, figures: Mapping[str, BackendFigures]) -> Iterator[Row]:
    """Yield the rows of *match*, from the request to the servers; *figures* are live figures by backend."""
    route = msgspec.convert(match.route, RouteAnswer)
    yield "request", f"{method} {route.host}{route.path}", "bold"
    yield "answer", *_verdict(match, route)
    yield from reason_rows(route)
    if route.winner is not None:
        yield from listed("matched by", [entry_text(route.winner)])
        yield from maker_rows(route.winner.made_by)
    for visit in match.visits:
        yield from listed("gateway", [f"listener {visit.listener}"])
        yield from listed(
            "", [f"  {_VERDICTS[one.verdict]}: {gateway_route(one)}" for one in visit.routes] or ["  no route"]
        )
    for backend in match.backends:
        yield from _backend_rows(backend, figures.get(backend.name))
    yield from certificate_rows(route.certificates)
    yield from listed("next match", [entry_text(entry) for entry in route.others])
    yield from more(route.others_count, len(route.others))
    yield from step_rows(route.steps)
    yield from lookup_rows(route.depends_on)
    yield from listed("note", route.notes)


def _verdict(match: RequestMatch, route: RouteAnswer) -> tuple[str, str]:
    """Return the answer to the request, and its style."""
    effective = [one for visit in match.visits for one in visit.routes if one.verdict == "yes"][:1]
    if route.status and not (effective and route.status == 404):
        return destination(route)
    outcome = ", ".join(effective[0].outcomes) if route.status else f"backend {route.backend}"
    if match.backends and not any(server.is_enabled for one in match.backends for server in one.servers):
        return f"503: {outcome} has no enabled server", "red"
    return outcome, "green"


def _backend_rows(backend: RequestBackend, figures: BackendFigures | None) -> Iterator[Row]:
    if not backend.line:
        yield "backend", f"{backend.name} does not exist", "red"
        return
    yield "backend", f"{backend.name}  (haproxy.cfg:{backend.line})", ""
    if backend.object is not None:
        yield "", f"  for {backend.object}", "magenta"
    if figures is not None:
        yield "", f"  {traffic_of(figures)}", ""
    known = {one.name: one for one in figures.servers} if figures is not None else {}
    for server in backend.servers:
        live = known.get(server.name)
        state = f" {live.status}, {live.sessions} present, {live.rate}/s" if live is not None else ""
        disabled = "" if server.is_enabled else " (disabled)"
        text = f"{server.name or 'derives from a Secret'} {server.address}{disabled}{state}"
        yield "server", text, "red" if (live is not None and not live.is_up) or not server.is_enabled else "green"
    if not backend.servers:
        yield "server", "none", "red"
    yield from more(backend.servers_count, len(backend.servers))


def traffic_of(figures: BackendFigures) -> str:
    """Return the live figures of a backend as a sentence."""
    return (
        f"{quantity(figures.up, 'server')} up, {figures.rate} requests/s, {figures.sessions} present,"
        f" {figures.queued} queued, {quantity(figures.errors, 'error')}; since the last reload"
        f" {quantity(figures.answers, 'answer')}, {figures.answers_5xx} with 5xx"
    )
