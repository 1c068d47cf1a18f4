"""The tabs of the terminal UI: titles, topics, and rows made from what the console has sent."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from rich.text import Text

from haptic_trio.cli.output.debug import channel_table, event_line, problem_text, scope_note, store_table, task_line
from haptic_trio.cli.output.findings import quantity
from haptic_trio.cli.terminal.known import Known
from haptic_trio.cli.terminal.rows import (
    Details,
    Explain,
    Match,
    Row,
    block_rows,
    columns,
    fitted,
    heading,
    linked_row,
    plain,
    text_row,
)

LEVELS: Final = ("debug", "info", "warning", "error")
SOON: Final = 30 * 86400
"""Seconds before its expiry from which a certificate is marked."""
_STYLES: Final = {"serving": "green", "degraded": "yellow"}
_WIDE: Final = 110
"""Cells of a terminal that has room for the backends of routes."""


class Tab(msgspec.Struct, frozen=True):
    """A tab."""

    title: str
    topics: tuple[str, ...]
    """Topics of its subscription, besides those that all tabs follow."""
    rows: Callable[[Known, int, str], list[Row]] | None
    """Returns all rows for a width and a level of events; None if they come in pages."""
    header: Callable[[int], Text]


def route_header(width: int) -> Text:
    """Return the names of the columns of routes."""
    wide = [("BACKEND", "bold", 0)] if width >= _WIDE else []
    names = [("STATE", "bold", 11), ("ROUTE", "bold", 0), ("OBJECT", "bold", 0), *wide, ("SERVERS", "bold", 7)]
    return columns(names, width)


def route_row(route: Mapping[str, Any], known: Known) -> Row:
    """Return the row of a route, with what HAProxy knows of its servers."""
    state, reason = live_state(route, known)
    name = f"{route['namespace']}/{route['name']}" if route["namespace"] else route["name"]
    shown = f"{route['host']}{route['path']}" if route["host"] else "derives from a Secret"
    rate = sum(known.figures[one].rate for one in route["backend"].split(", ") if one in known.figures)

    def render(width: int) -> list[Text]:
        wide = [(route["backend"], "", 0)] if width >= _WIDE else []
        servers = "" if route["match"] == "none" else route["servers"]
        cells = [(state, _STYLES.get(state, "red"), 11), (shown, "", 0), (f"{route['kind']} {name}", "cyan", 0)]
        lines = [columns([*cells, *wide, (servers, "", 7)], width)]
        notes = [plain(reason)] if reason else []
        notes += [f"{rate} requests/s"] if rate else []
        if notes:
            note = Text(f"            {'; '.join(notes)}", style="dim")
            note.truncate(width, overflow="ellipsis")
            lines.append(note)
        return lines

    # For a wildcard, any host that it matches is taken.
    host = "any.host" if route["host"] == "*" else route["host"].replace("*", "any", 1)
    opens = Match(f"{host}{route['path']}") if route["host"] else None
    return Row(f"{route['host']}{route['path']} {route['match']} {route['place']} {name}", render, opens)


def live_state(route: Mapping[str, Any], known: Known) -> tuple[str, str]:
    """Return state and reason of *route*, with the servers that HAProxy finds up, if they are known."""
    state, reason = route["state"], route["reason"]
    up = [known.figures[one].up if one in known.figures else None for one in route["backend"].split(", ")]
    if route["match"] == "none" or not route["servers"] or None in up:
        return state, reason
    count = sum(one or 0 for one in up)
    if not count:
        return "down", "no server is up"
    if count < route["servers"]:
        return "degraded", "; ".join(filter(None, (f"{count} of {route['servers']} servers are up", reason)))
    return state, reason


def instance_rows(known: Known, _width: int, _level: str) -> list[Row]:
    """Return the instances with their last reload, and the certificates."""
    return [*_instances(known), *_certificates(known)]


def _instances(known: Known) -> Iterator[Row]:
    state = known.state or {"instances": (), "fleet": None}
    groups = (state["fleet"] or {}).get("groups", ())
    states = {one["id"]: one["state"] for group in groups for one in group["instances"]}
    yield heading(f"Instances: {len(state['instances'])}")
    for one in state["instances"]:
        name = one["name"]
        at = one.get("at")
        status = states.get(name) or ("failed" if one.get("error") else "deployed" if at else "waiting")
        line = Text(plain(name), style="bold")
        line.append(f"  {status}", style="red" if one.get("error") else "green" if at else "yellow")
        if process := known.processes.get(name):
            connections = quantity(process["connections"], "connection")
            line.append(f"  HAProxy {process['version']}, up {lasting(process['uptime'])}, {connections}", style="dim")
        yield text_row(name, line, _details(f"Instance {name}", one))
        if at is not None:
            yield text_row(f"{name} deployment", _deployment(one, known), _details(f"Instance {name}", one), folds=True)
        yield text_row(f"{name} reload", _reload(one, known), _details(f"Instance {name}", one), folds=True)


def _deployment(one: Mapping[str, Any], known: Known) -> Text:
    line = Text(f"  {lasting(known.clock - one['at'])} ago, cycle {one.get('correlation', '')}: ")
    if one.get("error"):
        line.append(plain(one["error"]), style="red")
    elif one.get("held"):
        line.append(plain(f"waiting for a reload: {', '.join(one['held'])}"), style="yellow")
    else:
        done = "reloaded" if one.get("reloaded") else quantity(one.get("operations", 0), "operation")
        line.append(f"{done}, generation {one.get('generation', '')}")
    return line


def _reload(one: Mapping[str, Any], known: Known) -> Text:
    reload = one.get("last_reload")
    if not reload:
        return Text("  no reload since the start of the controller", style="dim")
    line = Text(f"  {quantity(one.get('reloads', 1), 'reload')}, the last one at {known.time_of_day(reload['at'])}")
    line.append(f", cycle {reload['correlation']}: ")
    line.append(plain(", ".join(reload["reasons"]) or "no reason is known"), style="yellow")
    if reload["objects"]:
        line.append("; caused by ")
        line.append(plain(", ".join(reload["objects"])), style="cyan")
    return line


def _certificates(known: Known) -> Iterator[Row]:
    page = known.certificates
    if page is None:
        return
    shown = len(page["certificates"])
    more = f", the first {shown} by expiry" if shown < page["total"] else ""
    yield heading(f"Certificates: {page['total']}{more}")
    for one in page["certificates"]:
        yield _certificate_row(one, known.unix)


def _certificate_row(one: Mapping[str, Any], unix: float) -> Row:
    left = one["expires"] - unix
    style = "red" if left <= 0 else "yellow" if left < SOON else "green"
    day = time.strftime("%Y-%m-%d", time.gmtime(one["expires"]))
    when = f"{day}, {'expired' if left <= 0 else f'in {lasting(left, units=1)}'}"
    names, objects = ", ".join(one.get("names", ())), ", ".join(one.get("objects", ()))

    def render(width: int) -> list[Text]:
        return [columns([(when, style, 22), (names or one["path"], "", 0), (objects, "cyan", 0)], width)]

    return Row(
        f"certificate {one['path']}", render, Explain(one["path"]), lambda: f"{when} {names} {objects} {one['path']}"
    )


def problem_rows(known: Known, _width: int, _level: str) -> list[Row]:
    """Return quarantined objects, warnings, and problems of inputs, instances and components."""
    state = known.state
    if state is None:
        return []
    objects = state["objects"]
    rows = [heading(f"Quarantined: {objects['quarantined']}, {quantity(objects['warnings'], 'warning')}")]
    for number, one in enumerate(objects["listed"]):
        rows.append(
            text_row(f"{number} {one['object']} {one['reason']}", problem_text(one), Explain(one["object"]), folds=True)
        )
    if objects["more"]:
        rows.append(text_row("more", Text(f"{objects['more']} more are not listed", style="dim")))
    inputs = [(source, text) for source, texts in state["problems"].items() for text in texts]
    inputs += [(f"instance {one['name']}", one["error"]) for one in state["instances"] if one.get("error")]
    inputs += [(f"component {one['name']}", one["detail"]) for one in state["components"] if one["stalled"]]
    rows.append(heading(f"Inputs, instances and components: {len(inputs)}"))
    for number, (source, text) in enumerate(inputs):
        line = Text(plain(f"{source}: {text}"), style="red")
        rows.append(text_row(f"input {number}", line, _shown(source, text), folds=True))
    return rows


def activity_rows(known: Known, _width: int, level: str) -> list[Row]:
    """Return the reconciliations, and the events of *level* or above, the newest ones first."""
    state = known.state or {"cycles": ()}
    reloads: dict[str, list[str]] = {}
    for event in known.events:
        if event["kind"] == "InstanceDeployed" and event["fields"].get("reasons"):
            reloads.setdefault(event["correlation"], []).extend(event["fields"]["reasons"])
    newest = state["cycles"][-1:]
    rows = [heading("Reconciliations")]
    rows += [
        _cycle_row(cycle, reloads.get(cycle["correlation"], []), known)
        for cycle in reversed(state["cycles"])
        if cycle.get("outcome") != "unchanged" or [cycle] == list(newest)
    ]
    rows.append(heading(f"Events: {level} and above"))
    wanted = LEVELS[LEVELS.index(level) :]
    rows += [_event_row(event, known) for event in reversed(known.events) if event["level"] in wanted]
    return rows


def _cycle_row(cycle: Mapping[str, Any], reasons: list[str], known: Known) -> Row:
    names = ("render", "parse", "check", "deploy_seconds")
    spent = sum(cycle.get(name) or 0.0 for name in names) * 1000
    at = cycle.get("seen") or cycle.get("triggered") or cycle.get("started")
    outcome = cycle.get("outcome", "") or "running"
    is_bad = outcome.startswith("failed") or outcome == "incomplete"
    objects = ", ".join(cycle.get("objects", ()))
    why = "; ".join(dict.fromkeys(reasons))

    def render(width: int) -> list[Text]:
        cells = [(known.time_of_day(at), "dim", 8), (cycle["correlation"], "cyan", 7), (cycle.get("reason", ""), "", 0)]
        lines = [columns([*cells, (f"{spent:.0f} ms", "", 9), (outcome, "red" if is_bad else "", 12)], width)]
        for label, text, style in (("reload: ", why, "yellow"), ("changed: ", objects, "")):
            if text:
                line = Text(f"                 {label}", style="dim")
                line.append(plain(text), style=style)
                line.truncate(width, overflow="ellipsis")
                lines.append(line)
        return lines

    details = _details(f"Reconciliation {cycle['correlation']}", {**cycle, "reload": why})
    words = f"{cycle['correlation']} {cycle.get('reason', '')} {outcome} {objects} {why}"
    return Row(f"cycle {cycle['correlation']}", render, details, lambda: words)


def _event_row(event: dict[str, Any], known: Known) -> Row:
    def line() -> Text:
        return event_line(event, known.unix, known.clock)

    details = _details(f"Event {event['number']}", event)
    return Row(f"event {event['number']}", lambda width: [fitted(line(), width)], details, lambda: line().plain)


def internal_rows(known: Known, width: int, _level: str) -> list[Row]:
    """Return iteration, stages, components, channels, stores and tasks."""
    state = known.state
    rows = []
    if state is not None:
        now = state["iteration"]
        rows.append(heading("Iteration"))
        if now is not None:
            ready = "ready" if now["is_ready"] else "not ready"
            fragments = f"{state['fragments_rendered']} fragments rendered, {state['fragments_reused']} reused"
            rows.append(text_row("iteration", Text(f"iteration {now['number']}, {ready}; {fragments}"), folds=True))
        stages = ", ".join(f"{one['name']} {one['seconds'] * 1000:.0f} ms" for one in state["stages"])
        rows.append(text_row("stages", Text(f"stages: {stages or 'none'}"), folds=True))
        rows.append(heading("Components"))
        for one in state["components"]:
            condition = one["detail"] if one["stalled"] else "busy" if one["busy"] else "idle"
            line = Text(plain(f"{one['name']}: {condition}"), style="red" if one["stalled"] else "")
            rows.append(text_row(f"component {one['name']}", line))
    if known.channels:
        rows += [heading("Channels"), *block_rows("channel", channel_table(known.channels), width)]
    if known.stores:
        rows += [heading("Stores"), *block_rows("store", store_table(known.stores), width)]
    if known.tasks is not None:
        rows.append(heading(f"Tasks: {known.tasks['shown']} of {known.tasks['total']}"))
        rows += _task_rows(known.tasks["root"], known.clock, "")
    return rows


def _task_rows(task: dict[str, Any], clock: float, indent: str) -> Iterator[Row]:
    line = task_line(task)
    yield text_row(f"task {indent}{line.plain}", Text(indent).append_text(line))
    for nursery in task.get("nurseries", ()):
        note = scope_note(nursery["scope"], clock)
        inner = f"{indent}  "
        if note:
            yield text_row(f"nursery {indent}{line.plain}", Text(f"{inner}nursery{note}", style="dim"))
        for child in nursery["tasks"]:
            yield from _task_rows(child, clock, inner)
    if task.get("left_out"):
        yield text_row(f"left out {indent}{line.plain}", Text(f"{indent}  … and {task['left_out']} more", style="dim"))


def _details(title: str, fields: Mapping[str, Any]) -> Details:
    return Details(title, lambda: list(field_lines(fields)))


def field_lines(value: Mapping[str, Any], indent: str = "") -> Iterator[Text]:
    """Yield the fields of *value*, without empty ones."""
    for key, inner in value.items():
        name = key.replace("_", " ")
        if isinstance(inner, Mapping):
            yield Text(f"{indent}{name}:", style="dim")
            yield from field_lines(inner, f"{indent}  ")
        elif inner not in ("", None, [], ()):
            texts = inner if isinstance(inner, list | tuple) else [inner]
            for number, text in enumerate(texts):
                line = Text(f"{indent}{'' if number else f'{name}:'} ", style="dim")
                yield line.append(plain(text), style="default")


def _shown(title: str, text: str) -> Details:
    return Details(title, lambda: [Text(plain(line)) for line in text.splitlines()])


def card_rows(lines: Iterable[Text]) -> list[Row]:
    """Return the rows of a card."""
    return [linked_row(str(number), line) for number, line in enumerate(lines)]


def lasting(seconds: float, *, units: int = 2) -> str:
    """Return a length of time as people write it, such as `3 h 12 min`."""
    rest = max(0, int(seconds))
    parts: list[str] = []
    for size, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if rest >= size or (parts and rest):
            parts.append(f"{rest // size} {name}")
            rest %= size
        if len(parts) == units:
            break
    return " ".join(part for part in parts if not part.startswith("0 ")) or "0 s"


def _titled(text: str) -> Callable[[int], Text]:
    return lambda width: Text(text[:width], style="bold")


TABS: Final = (
    Tab("Routes", ("routes", "live"), None, route_header),
    Tab("Instances", ("live", "certificates"), instance_rows, _titled("INSTANCES, RELOADS AND CERTIFICATES")),
    Tab("Problems", (), problem_rows, _titled("PROBLEMS AND THEIR REASONS")),
    Tab("Configuration", (), None, _titled("LINES AND THEIR OBJECTS")),
    Tab("Activity", (), activity_rows, _titled("WHAT CHANGED, AND WHAT IT CAUSED")),
    Tab("Internals", ("tasks", "channels", "stores"), internal_rows, _titled("ITERATION, CHANNELS, STORES AND TASKS")),
)
ROUTES, INSTANCES, PROBLEMS, CONFIGURATION, ACTIVITY, INTERNALS = range(len(TABS))
