"""Console messages as text for a terminal of 80 columns or more."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from haptic_trio.cli.output.findings import quantity, visible

_BARS = " ▁▂▃▄▅▆▇█"
_LEVELS = {"error": "red", "warning": "yellow", "info": "", "debug": "dim"}
_MOST_FIELDS = 12


def table(*titles: str) -> Table:
    """Return an empty table with the columns *titles*."""
    made = Table(box=None, pad_edge=False, expand=False)
    for title in titles:
        made.add_column(title, no_wrap=True, overflow="ellipsis")
    return made


def task_tree(root: dict[str, Any], clock: float) -> Tree:
    """Return the tasks below *root*; deadlines are shown relative to *clock*."""
    tree = Tree(task_line(root))
    _add_children(tree, root, clock)
    return tree


def _add_children(tree: Tree, task: dict[str, Any], clock: float) -> None:
    for nursery in task.get("nurseries", ()):
        note = scope_note(nursery["scope"], clock)
        branch = tree.add(Text(f"nursery{note}", style="dim")) if note or len(nursery["tasks"]) != 1 else tree
        for child in nursery["tasks"]:
            _add_children(branch.add(task_line(child)), child, clock)
    if task.get("left_out"):
        tree.add(Text(f"… and {task['left_out']} more tasks", style="dim"))


def scope_note(scope: dict[str, Any], clock: float) -> str:
    """Return deadline, shield and cancellation of *scope* in parentheses; nothing without them."""
    notes = []
    if "deadline" in scope:
        notes.append(f"{scope['deadline'] - clock:.1f} s left")
    if scope.get("shield"):
        notes.append("shielded")
    if scope.get("cancelled"):
        notes.append("cancelled")
    return f" ({', '.join(notes)})" if notes else ""


def task_line(task: dict[str, Any]) -> Text:
    """Return name, place and call of *task*."""
    line = Text(task["name"].replace(".<locals>", ""), no_wrap=True, overflow="ellipsis")
    if place := task.get("place"):
        line.append(f"  {place.partition(' ')[0]}", style="cyan")
    if waits := task.get("waits_for"):
        line.append(f"  {waits}", style="dim")
    return line


def channel_table(channels: Iterable[dict[str, Any]]) -> Table:
    """Return the fill levels of the channels."""
    made = table("CHANNEL", "FILL", "HIGH", "SIZE", "ENDS", "WAITING")
    for one in channels:
        if one["kind"] == "latest":
            made.add_row(one["name"], f"{one['puts']} put", "", "latest", "", "")
            continue
        level = round(one["used"] / one["size"] * 8) if one["size"] else 0
        fill = f"{_BARS[min(8, level)]} {one['used']}"
        waiting = f"{one['waiting_senders']} send, {one['waiting_receivers']} receive"
        ends = f"{one['senders']} > {one['receivers']}"
        made.add_row(one["name"], fill, str(one["high"]), str(one["size"]), ends, waiting)
    return made


def store_table(stores: Iterable[dict[str, Any]]) -> Table:
    """Return the sizes of the stores."""
    made = table("STORE", "OBJECTS", "CHANGES")
    for one in stores:
        made.add_row(one["name"], str(one["objects"]), str(one["version"]))
    return made


def event_line(event: dict[str, Any], unix: float, clock: float) -> Text:
    """Return one event as a line; *unix* and *clock* are the same instant."""
    at = unix + event["at"] - clock
    style = _LEVELS.get(event["level"], "")
    line = Text(f"{_time_of_day(at)} ", style="dim")
    line.append(f"{event['correlation']:>6} ", style="cyan")
    line.append(event["text"], style=style)
    for key, value in list(event["fields"].items())[:_MOST_FIELDS]:
        if key != "correlation":
            line.append(f" {key}=", style="dim")
            line.append(visible(_short(value)).replace("\n", " "))
    return line


def _short(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_short, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}:{_short(inner)}" for key, inner in value.items())
    return str(value)


def _time_of_day(unix: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(unix)) + f".{int(unix % 1 * 1000):03d}"


def cycle_table(cycles: Iterable[dict[str, Any]]) -> Table:
    """Return the reconciliations, oldest first; durations in milliseconds."""
    made = table("CYCLE", "REASON", "RENDER", "PARSE", "CHECK", "DEPLOY", "FRAGMENTS", "OUTCOME")
    for one in cycles:
        times = [_ms(one.get(name)) for name in ("render", "parse", "check", "deploy_seconds")]
        fragments = f"{one.get('rendered', 0)}+{one.get('reused', 0)}"
        made.add_row(one["correlation"], one.get("reason", ""), *times, fragments, one.get("outcome", "…"))
    return made


def instance_table(instances: Iterable[dict[str, Any]]) -> Table:
    """Return the instances and their latest deployments."""
    made = table("INSTANCE", "GENERATION", "CYCLE", "MS", "RESULT")
    for one in instances:
        if one.get("error"):
            result = Text(one["error"], style="red")
        elif one.get("held"):
            result = Text("waiting for a reload: " + ", ".join(one["held"]), style="yellow")
        elif one.get("reloaded"):
            result = Text("reloaded: " + ", ".join(one.get("reasons", ())))
        else:
            count = one.get("operations", 0)
            result = Text(quantity(count, "operation"))
        made.add_row(
            one["name"], one.get("generation", ""), one.get("correlation", ""), _ms(one.get("seconds")), result
        )
    return made


def _ms(seconds: float | None) -> str:
    return f"{seconds * 1000:.0f}" if seconds else ""


def config_lines(page: dict[str, Any]) -> Iterator[Text]:
    """Yield the lines of a page of the configuration."""
    for one in page["lines"]:
        line = Text(f"{one['line']:>6} ", style="dim", no_wrap=True)
        line.append(visible(one["text"]), style="magenta" if one.get("is_secret") else "")
        if one.get("made_by"):
            line.append(f"  # {one['made_by']}", style="cyan")
        yield line


def diff_lines(page: dict[str, Any]) -> Iterator[Text]:
    """Yield the summary and the lines of a diff."""
    if not page["before"]:
        yield Text("haproxy.cfg has not changed since the start of the controller.")
        return
    yield Text(f"{page['added']} lines added, {page['removed']} removed")
    for one in page["lines"]:
        style = "green" if one["sign"] == "+" else "red"
        yield Text(f"{one['sign']}{one['line']:>6} {visible(one['text'])}", style=style, no_wrap=True)


def headline(state: dict[str, Any]) -> Text:
    """Return the summary line of the controller."""
    iteration = state["iteration"]
    if iteration is None:
        return Text("between two iterations", style="yellow")
    ready = ("ready", "green") if iteration["is_ready"] else ("not ready", "yellow")
    stage = state["stages"][-1]["name"] if state["stages"] else "none"
    line = Text(f"iteration {iteration['number']}  stage {stage}  ")
    line.append(*ready)
    line.append("  leader" if state["is_leader"] else "  follower")
    line.append(f"  quarantined {state['quarantined']}", style="yellow" if state["quarantined"] else "")
    warnings = state.get("objects", {}).get("warnings", 0)
    line.append(f"  warnings {warnings}", style="yellow" if warnings else "")
    line.append(f"  fragments {state['fragments_rendered']} rendered, {state['fragments_reused']} reused")
    return line


def problem_lines(state: dict[str, Any], most: int | None = None) -> list[Text]:
    """Return a line for each problem of inputs and objects, at most *most*, and one with the number of others."""
    lines = [
        Text(visible(f"{source}: {text}").replace("\n", " "), style="red")
        for source, found in state.get("problems", {}).items()
        for text in found
    ]
    # A controller of an older version lists no objects.
    objects = state.get("objects", {"listed": (), "more": 0})
    lines += map(problem_text, objects["listed"])
    shown = lines[:most]
    if more := len(lines) - len(shown) + objects["more"]:
        shown.append(Text(f"… and {more} more", style="dim"))
    return shown


def problem_text(one: dict[str, Any]) -> Text:
    """Return a quarantined object, or a warning about an object, as one line."""
    serving = f" (serving: {one['serving']})" if one["serving"] else ""
    text = f"{one['object']}: {one['reason']}: {one['problem']}{serving}"
    return Text(visible(text).replace("\n", " "), style="red" if serving else "yellow")


def live_view(known: dict[str, Any], events: Iterable[dict[str, Any]], now: dict[str, float], height: int) -> Group:
    """Return the live view in at most *height* lines."""
    state = known["state"]
    parts: list[RenderableType] = [headline(state), Text()]
    instances, cycles = state["instances"], state["cycles"]
    parts += [instance_table(instances[:5]), Text(), cycle_table(cycles[-5:]), Text()]
    used = 6 + min(5, len(instances)) + min(5, len(cycles))
    if problems := problem_lines(state, 3):
        for line in problems:
            line.no_wrap, line.overflow = True, "ellipsis"
        parts += [Text("PROBLEMS"), *problems, Text()]
        used += len(problems) + 2
    channels = [one for one in known.get("channels", ()) if one["kind"] == "channel"]
    if height - used > len(channels) + 6:
        parts += [channel_table(channels), Text()]
        used += len(channels) + 2
    lines = [event_line(event, now["unix"], now["clock"]) for event in events][-max(1, height - used - 1) :]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*parts, *lines)
