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
    """No controller answers; retry once one runs with this state directory."""


class RejectedRequestError(HapticError):
    """The controller rejected the request; the message gives the reason."""


def control_options(command: F) -> F:
    """Add `--state-dir` and `--output`."""
    return output_option(controller_dir_option(command))


@click.group()
def fleet() -> None:
    """List, replace and resize the HAProxy instances of the controller that runs on this machine.

    \b
      haptic-trio fleet list             list all instances
      haptic-trio fleet show local-3     show everything about one instance
      haptic-trio fleet rotate local-3   start a replacement, then drain this instance
      haptic-trio fleet rotate --all     replace all instances, one after the other
      haptic-trio fleet drain local-3    drain it now; a replacement starts meanwhile
      haptic-trio fleet resize 5         run five instances until the configured size changes

    Exit codes: 0 done, 2 not possible, or no controller runs.
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
        console.print(f"These instances are managed by {status.owner}; haptic-trio does not create or delete them.")
    for group in status.groups:
        console.print(headline(group))
        if group.instances:
            console.print(_table(group))


def headline(group: GroupStatus) -> str:
    """Return the summary line of *group*."""
    asked = f" (requested; configured: {group.configured_size})" if group.configured_size is not None else ""
    return f"{group.name}: {group.ready} ready of {group.size}{asked}"


def _table(group: GroupStatus) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("INSTANCE", "STATE", "HEALTH", "AGE", "NOTE"):
        table.add_column(title, no_wrap=True)
    for one in group.instances:
        notes = [] if one.is_current else ["outdated revision"]
        if one.leaves_for:
            notes.append(f"draining: {one.leaves_for}")
        if one.drain_left is not None:
            notes.append(f"at most {span(one.drain_left)} left")
        table.add_row(one.id, one.state, one.health, span(one.age), ", ".join(notes))
    return table


def span(seconds: float) -> str:
    """Return *seconds* as text with one or two units, such as `3h11m`."""
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


@fleet.command(short_help="Drain an instance.")
@click.argument("instance")
@control_options
def drain(*, instance: str, state_dir: Path, output_format: str) -> None:
    """Drain INSTANCE: it takes no new connections, and stops when its connections have ended. A replacement starts.

    Until the replacement is ready, the fleet has one instance less; `rotate` starts it first.
    """
    _report(
        output_format, _ask(state_dir, "POST", f"/fleet/instances/{quote(instance, safe='')}/drain"), "Draining: {}."
    )


@fleet.command(short_help="Replace an instance, or all, one after the other.")
@click.argument("instance", required=False)
@click.option("--all", "everything", is_flag=True, help="All instances, one after the other.")
@control_options
def rotate(*, instance: str | None, everything: bool, state_dir: Path, output_format: str) -> None:
    """Replace INSTANCE: start another instance, and drain this one once the other is ready."""
    if (instance is None) != everything:
        raise click.UsageError("give one instance, or --all")
    path = "/fleet/rotate" if instance is None else f"/fleet/instances/{quote(instance, safe='')}/rotate"
    _report(output_format, _ask(state_dir, "POST", path), "Replacing: {}.")


@fleet.command(short_help="Change the number of instances.")
@click.argument("size", type=click.IntRange(0, 64), required=False)
@click.option("--reset", is_flag=True, help="Return to the configured number.")
@control_options
def resize(*, size: int | None, reset: bool, state_dir: Path, output_format: str) -> None:
    """Run SIZE instances until the configured number changes."""
    if (size is None) != reset:
        raise click.UsageError("give a size, or --reset")
    answer = _ask(state_dir, "PUT", "/fleet/size", {"size": size})
    if output_format == "json":
        _print_json(answer)
    else:
        click.echo("The configured size applies." if size is None else f"The size is {size}.")


def _report(output_format: str, answer: Any, text: str) -> None:
    if output_format == "json":
        _print_json(answer)
    else:
        click.echo(text.format(", ".join(answer["asked"]) or "none"))


def _print_json(answer: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())


def _ask(state: Path, method: str, path: str, content: Any = None) -> Any:
    return trio.run(partial(ask_controller, state, method, path, content))


async def ask_controller(state: Path, method: str, path: str, content: Any = None) -> Any:
    """Return the answer of the controller with the state directory *state*.

    Raises NoControllerError and RejectedRequestError.
    """
    # `control_path` creates the directory for the socket; only the controller may create its state directory.
    if not await trio.Path(state).is_dir():
        raise NoControllerError(f"{state}: no controller has run with this state directory; give its --state-dir")
    socket = await trio.to_thread.run_sync(control_path, state)
    transport = httpx.AsyncHTTPTransport(uds=str(socket))
    body = None if content is None else msgspec.json.encode(content)
    try:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://controller", timeout=ANSWER_LIMIT, trust_env=False
        ) as client:
            answer = await client.request(method, path, content=body)
    except httpx.TimeoutException as exc:
        raise NoControllerError(f"{state}: the controller does not answer") from exc
    except httpx.TransportError as exc:
        raise NoControllerError(
            f"{state}: no controller runs with this state directory; start `haptic-trio serve`, or give its --state-dir"
        ) from exc
    found = msgspec.json.decode(answer.content) if answer.content[:1] in b"{[" else {"error": answer.text}
    if answer.status_code != 200:
        raise RejectedRequestError(
            found.get("error") or f"the controller rejected the request with status {answer.status_code}"
        )
    return found
