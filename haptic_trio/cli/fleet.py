"""`fleet`: lists, replaces and resizes HAProxy instances of a running controller."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import click
import httpx
import msgspec
import trio
from rich.console import Console
from rich.table import Table

from haptic_trio.cli.inputs.choices import controller_dir_option, output_option
from haptic_trio.cli.serving.fleet import control_path
from haptic_trio.errors import HapticError
from haptic_trio.fleet.status import FleetStatus, GroupStatus

F = TypeVar("F", bound=Callable[..., Any])
ANSWER_LIMIT = 10.0


class NoControllerError(HapticError):
    """No controller answers; trying again helps once one runs with this state directory."""


class RefusedError(HapticError):
    """The controller does not do what it was asked to; its words say whether trying again helps."""


def control_options(command: F) -> F:
    """Add `--state-dir` and `--output`."""
    return output_option(controller_dir_option(command))


@click.group()
def fleet() -> None:
    """Look at the HAProxy instances of the controller that runs on this machine, and replace or resize them.

    \b
      haptic-trio fleet list             which instances there are
      haptic-trio fleet show local-3     everything about one
      haptic-trio fleet rotate local-3   make another one, then let this one finish and leave
      haptic-trio fleet rotate --all     the same for all, one after the other
      haptic-trio fleet drain local-3    let it leave now; another one is made meanwhile
      haptic-trio fleet resize 5         five instances, until the configuration names another size

    Exit codes: 0 done, 2 it cannot be done, or no controller runs.
    """


@fleet.command("list")
@control_options
def list_instances(*, state_dir: Path, output_format: str) -> None:
    """List all instances."""
    answer = _ask(state_dir, "GET", "/fleet")
    if output_format == "json":
        _print_json(answer)
        return
    status = msgspec.convert(answer, FleetStatus)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    if status.owner != "controller":
        console.print(f"These belong to {status.owner}, which alone makes and removes them.")
    for group in status.groups:
        console.print(headline(group))
        if group.instances:
            console.print(_table(group))


def headline(group: GroupStatus) -> str:
    """Return a line about *group*."""
    asked = f" (asked for; the configuration says {group.configured_size})" if group.configured_size is not None else ""
    return f"{group.name}: {group.ready} ready of {group.size}{asked}"


def _table(group: GroupStatus) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("INSTANCE", "STATE", "HEALTH", "AGE", "NOTE"):
        table.add_column(title, no_wrap=True)
    for one in group.instances:
        notes = [] if one.is_current else ["made from another configuration"]
        if one.leaves_for:
            notes.append(f"leaves: {one.leaves_for}")
        if one.drain_left is not None:
            notes.append(f"at most {span(one.drain_left)} more")
        table.add_row(one.id, one.state, one.health, span(one.age), ", ".join(notes))
    return table


def span(seconds: float) -> str:
    """Return *seconds* as a person says it, in one or two units."""
    whole = int(seconds)
    for unit, size, smaller, rest in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            more = whole % size // rest
            return f"{whole // size}{unit}{more}{smaller}" if more else f"{whole // size}{unit}"
    return f"{whole}s"


@fleet.command()
@click.argument("instance")
@control_options
def show(*, instance: str, state_dir: Path, output_format: str) -> None:
    """Show everything about INSTANCE."""
    answer = _ask(state_dir, "GET", f"/fleet/instances/{quote(instance, safe='')}")
    if output_format == "json":
        _print_json(answer)
        return
    record = answer.pop("record")
    for key, value in {**record, "key": record["key"]["group"], **answer}.items():
        if value not in (None, "", 0):
            click.echo(f"{key.replace('_', ' '):18} {value}")


@fleet.command(short_help="Let an instance finish and leave.")
@click.argument("instance")
@control_options
def drain(*, instance: str, state_dir: Path, output_format: str) -> None:
    """Let INSTANCE take nothing new from now on, and end it when it has finished; another one takes its place.

    Until that one is ready there is one less: `rotate` makes it first.
    """
    _tell(output_format, _ask(state_dir, "POST", f"/fleet/instances/{quote(instance, safe='')}/drain"), "Leaving: {}.")


@fleet.command(short_help="Replace an instance, or all, one after the other.")
@click.argument("instance", required=False)
@click.option("--all", "everything", is_flag=True, help="All instances, one after the other.")
@control_options
def rotate(*, instance: str | None, everything: bool, state_dir: Path, output_format: str) -> None:
    """Have INSTANCE replaced: another one is made, and once it is ready this one finishes and leaves."""
    if (instance is None) != everything:
        raise click.UsageError("name one instance, or say --all")
    path = "/fleet/rotate" if instance is None else f"/fleet/instances/{quote(instance, safe='')}/rotate"
    _tell(output_format, _ask(state_dir, "POST", path), "To be replaced: {}.")


@fleet.command(short_help="Have another number of instances.")
@click.argument("size", type=click.IntRange(0, 64), required=False)
@click.option("--reset", is_flag=True, help="As many as the configuration says.")
@control_options
def resize(*, size: int | None, reset: bool, state_dir: Path, output_format: str) -> None:
    """Have SIZE instances, until the configuration names another number than it does now."""
    if (size is None) != reset:
        raise click.UsageError("name a size, or say --reset")
    answer = _ask(state_dir, "PUT", "/fleet/size", {"size": size})
    if output_format == "json":
        _print_json(answer)
    else:
        click.echo("The size is that of the configuration." if size is None else f"The size is {size}.")


def _tell(output_format: str, answer: Any, text: str) -> None:
    if output_format == "json":
        _print_json(answer)
    else:
        click.echo(text.format(", ".join(answer["asked"]) or "none"))


def _print_json(answer: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())


def _ask(state: Path, method: str, path: str, content: Any = None) -> Any:
    return trio.run(partial(ask_controller, state, method, path, content))


async def ask_controller(state: Path, method: str, path: str, content: Any = None) -> Any:
    """Return what the controller that has the directory *state* answers.

    Raises NoControllerError and RefusedError.
    """
    # Whatever is asked makes directories for sockets; only a controller shall make that of its state.
    if not await trio.Path(state).is_dir():
        raise NoControllerError(f"no controller has run with {state}: name its directory with --state-dir")
    socket = await trio.to_thread.run_sync(control_path, state)
    transport = httpx.AsyncHTTPTransport(uds=str(socket))
    body = None if content is None else msgspec.json.encode(content)
    try:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://controller", timeout=ANSWER_LIMIT, trust_env=False
        ) as client:
            answer = await client.request(method, path, content=body)
    except httpx.TimeoutException as exc:
        raise NoControllerError(f"the controller at {state} does not answer") from exc
    except httpx.TransportError as exc:
        raise NoControllerError(
            f"no controller runs with {state}: start `haptic-trio serve`, or name its directory with --state-dir"
        ) from exc
    found = msgspec.json.decode(answer.content) if answer.content[:1] in b"{[" else {"error": answer.text}
    if answer.status_code != 200:
        raise RefusedError(found.get("error") or f"refused with {answer.status_code}")
    return found
