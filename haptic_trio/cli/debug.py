"""`debug`: shows in a terminal what a running controller does."""

import os
import stat
import sys
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import msgspec
import trio
from rich.console import Console, RenderableType
from rich.text import Text

from haptic_trio.cli.browser import open_page, page_url
from haptic_trio.cli.console_client import ConsoleClient, find_console, open_console
from haptic_trio.cli.inputs.choices import controller_dir_option, output_option
from haptic_trio.cli.output.debug import (
    channel_table,
    config_lines,
    diff_lines,
    event_line,
    live_view,
    problem_lines,
    store_table,
    task_tree,
)
from haptic_trio.cli.output.explain import print_answer
from haptic_trio.cli.output.findings import make_console, visible
from haptic_trio.explain.answers import Answer
from haptic_trio.explain.site import MAIN

F = TypeVar("F", bound=Callable[..., Any])
Talk = Callable[[ConsoleClient], Awaitable[None]]

STDOUT = 1
_LIVE = ("state", "channels", "events")


def viewer_options(command: F) -> F:
    """Add the options that select the console, and `--output`; those of the group apply to its subcommands, too."""

    @wraps(command)
    def with_console(**values: Any) -> None:
        command(**values | _group_options(click.get_current_context()))

    decorated: Any = with_console
    for decorate in (
        click.option(
            "--token-file",
            type=click.Path(dir_okay=False, path_type=Path),
            envvar="HAPTIC_CONSOLE_TOKEN_FILE",
            help="File with the console's token.",
        ),
        click.option("--url", metavar="URL", envvar="HAPTIC_CONSOLE_URL", help="Admin port of the controller."),
        controller_dir_option,
        output_option,
    ):
        decorated = decorate(decorated)
    return cast("F", decorated)


def _group_options(context: click.Context) -> dict[str, Any]:
    """Return the options that were given to the group and not to the subcommand."""
    parent = context.parent
    if parent is None or parent.command is not debug:
        return {}
    given = click.core.ParameterSource.COMMANDLINE
    return {
        name: value
        for name, value in parent.params.items()
        if parent.get_parameter_source(name) is given and context.get_parameter_source(name) is not given
    }


@click.group(invoke_without_command=True)
@click.option(
    "--open",
    "opens_page",
    is_flag=True,
    help="Open the page of the console in the browser; without a browser, print its address with the token.",
)
@viewer_options
@click.pass_context
def debug(context: click.Context, /, **where: Any) -> None:
    """Inspect a running controller; without a subcommand, in a terminal UI.

    \b
      haptic-trio debug                    routes, instances, problems, configuration, activity and
                                           internals, live; one snapshot into a file or pipe
      haptic-trio debug --open             the page of the console, in the browser
      haptic-trio debug problems           quarantined objects and warnings, with their reasons
      haptic-trio debug tasks              all tasks and what each waits for
      haptic-trio debug channels           how full each channel is
      haptic-trio debug stores             number of watched objects
      haptic-trio debug config             the newest haproxy.cfg with the object of each line
      haptic-trio debug diff               what the newest change of it was
      haptic-trio debug events --follow    the events as they happen
      haptic-trio debug explain TARGET     `haptic-trio explain` for the running configuration

    Keys of the terminal UI: 1 to 6 select a tab, / searches, Enter shows
    details, m asks what a request would match, ? lists all keys, q quits.

    The console is read-only. Text that derives from a Secret is shown as a
    hash. Exit codes: 0 done, 2 no console answers.
    """
    if where["opens_page"]:
        if context.invoked_subcommand is not None:
            raise click.UsageError("--open and a subcommand exclude each other")
        _open_page(where)
    elif context.invoked_subcommand is None:
        if where["output_format"] == "json":
            _talk(where, _print_live)
        elif _is_interactive():
            _run_terminal(where)
        else:
            _talk(where, _print_snapshot)


@debug.command()
@viewer_options
def problems(**where: Any) -> None:
    """Show quarantined objects and warnings, with their reasons."""

    async def show(client: ConsoleClient) -> None:
        state = await client.ask("state")
        if where["output_format"] == "json":
            _print_json({name: state.get(name) for name in ("problems", "objects")})
            return
        for line in problem_lines(state) or [Text("no problems")]:
            _terminal().print(line, soft_wrap=True)

    _talk(where, show)


@debug.command()
@viewer_options
def tasks(**where: Any) -> None:
    """Show all tasks and what each waits for."""

    def show(value: Any, client: ConsoleClient) -> RenderableType:
        return task_tree(value["root"], client.welcome["now"]["clock"])

    _print_answer(where, "tasks", show)


@debug.command()
@viewer_options
def channels(**where: Any) -> None:
    """Show how full each channel is, and how many tasks wait for it."""
    _print_answer(where, "channels", lambda value, _client: channel_table(value))


@debug.command()
@viewer_options
def stores(**where: Any) -> None:
    """Show number of watched objects."""
    _print_answer(where, "stores", lambda value, _client: store_table(value))


@debug.command(short_help="Show the newest haproxy.cfg with the object of each line.")
@click.argument("path", required=False)
@click.option(
    "--search", default="", help="Only lines that contain this text, ignoring case; without PATH, of all files."
)
@click.option("--offset", type=click.IntRange(0), default=0, help="Number of lines to skip.")
@click.option("--limit", type=click.IntRange(1, 500), default=200, show_default=True, help="Maximum number of lines.")
@viewer_options
def config(*, path: str | None, search: str, offset: int, limit: int, **where: Any) -> None:
    """Show the newest haproxy.cfg, or the file PATH, with the object that produced each line."""

    async def show(client: ConsoleClient) -> None:
        if search and path is None:
            _print_explanation(await client.ask("search", search=search), where)
            return
        page = await client.ask("config", path=path or MAIN, search=search, offset=offset, limit=limit)
        if where["output_format"] == "json":
            _print_json(page)
            return
        terminal = _terminal()
        for line in config_lines(page):
            terminal.print(line, soft_wrap=True)
        rest = page["total"] - offset - len(page["lines"])
        if rest > 0:
            click.echo(f"{rest} more lines: --offset {offset + len(page['lines'])}", err=True)

    _talk(where, show)


@debug.command(short_help="Show what changed in haproxy.cfg.")
@click.argument("number", required=False, type=click.IntRange(1))
@viewer_options
def diff(*, number: int | None, **where: Any) -> None:
    """Show what the newest generation changed in haproxy.cfg, or the generation NUMBER, one of the last 20."""

    async def show(client: ConsoleClient) -> None:
        page = await client.ask("diff", number=number or 0)
        if where["output_format"] == "json":
            _print_json(page)
            return
        for line in diff_lines(page):
            _terminal().print(line, soft_wrap=True)

    _talk(where, show)


@debug.command()
@click.option("--follow", is_flag=True, help="Continue until Ctrl-C.")
@viewer_options
def events(*, follow: bool, **where: Any) -> None:
    """Show the latest events; as JSON, one per line."""

    async def show(client: ConsoleClient) -> None:
        terminal, now = _terminal(), client.welcome["now"]
        seen = 0

        def show_events(found: list[dict[str, Any]]) -> None:
            nonlocal seen
            for event in found:
                seen = event["number"]
                if where["output_format"] == "json":
                    click.echo(msgspec.json.encode(event))
                else:
                    terminal.print(event_line(event, now["unix"], now["clock"]), soft_wrap=True)

        show_events(await client.ask("events"))
        if follow:
            await client.follow(["events"], interval=0.5, since=seen)
            while True:
                message = await client.receive()
                if message["kind"] == "events":
                    show_events(message["value"])

    _talk(where, show)


@debug.command(short_help="Find the object and template of a line, section or host.")
@click.argument("target", nargs=-1, required=True)
@viewer_options
def explain(*, target: tuple[str, ...], **where: Any) -> None:
    """Show which object and template produced TARGET; see `haptic-trio explain --help`."""

    async def show(client: ConsoleClient) -> None:
        _print_explanation(await client.ask("explain", target=" ".join(target)), where)

    _talk(where, show)


def _print_explanation(answer: Any, where: dict[str, Any]) -> None:
    if where["output_format"] == "json":
        _print_json(answer)
        return
    try:
        known: Answer = msgspec.convert(answer, Answer)
    except msgspec.ValidationError:
        # The controller has another version.
        _print_fields(answer)
    else:
        print_answer(make_console(sys.stdout), known)


def _print_fields(value: Any, indent: int = 0) -> None:
    blanks = "  " * indent
    for key, inner in value.items():
        if isinstance(inner, dict):
            click.echo(f"{blanks}{key.replace('_', ' ')}:")
            _print_fields(inner, indent + 1)
        elif isinstance(inner, list):
            for one in inner:
                click.echo(f"{blanks}{key.replace('_', ' ')}:")
                _print_fields(one if isinstance(one, dict) else {"": one}, indent + 1)
        elif inner not in ("", None):
            click.echo(f"{blanks}{key.replace('_', ' ')}: {visible(str(inner))}")


def _print_answer(where: dict[str, Any], topic: str, show: Callable[[Any, ConsoleClient], RenderableType]) -> None:
    async def talk(client: ConsoleClient) -> None:
        value = await client.ask(topic)
        if where["output_format"] == "json":
            _print_json(value)
        else:
            _terminal().print(show(value, client))

    _talk(where, talk)


async def _print_live(client: ConsoleClient) -> None:
    await client.follow(_LIVE)
    while True:
        click.echo(msgspec.json.encode(await client.receive()))


async def _print_snapshot(client: ConsoleClient) -> None:
    terminal = Console(highlight=False)
    known = {topic: await client.ask(topic) for topic in ("state", "channels")}
    terminal.print(live_view(known, await client.ask("events"), client.welcome["now"], terminal.height))


def _open_page(where: dict[str, Any]) -> None:
    address, token = find_console(where["state_dir"], where["url"], where["token_file"])
    url = page_url(address, token)

    async def is_answered(_client: ConsoleClient) -> None:
        """The connection has shown that the console takes the token."""

    _talk(where, is_answered)
    folder = where["token_file"].parent if where["token_file"] else where["state_dir"]
    is_open = open_page(url, folder)
    if where["output_format"] == "json":
        _print_json({"url": url, "opened": is_open})
    else:
        click.echo(f"The browser shows {url.partition('#')[0]}" if is_open else url)


def _is_interactive() -> bool:
    """Whether a person looks at a terminal that can be redrawn."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _run_terminal(where: dict[str, Any]) -> None:
    from haptic_trio.cli.terminal.app import run_terminal  # noqa: PLC0415  the subcommands need no urwid

    find = partial(find_console, where["state_dir"], where["url"], where["token_file"])
    try:
        trio.run(run_terminal, find)
    except* KeyboardInterrupt:
        # Ctrl-C quits, as `q` does.
        pass


def _talk(where: dict[str, Any], talk: Talk) -> None:
    address, token = find_console(where["state_dir"], where["url"], where["token_file"])

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_fail_when_unread)
            async with open_console(address, token) as client:
                await talk(client)
            nursery.cancel_scope.cancel(reason="the subcommand is done")

    try:
        trio.run(run)
    except* KeyboardInterrupt:
        click.echo()
    except* (BrokenPipeError, SystemExit):
        # The reader, such as `head`, closed the pipe; rich raises SystemExit then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _fail_when_unread() -> None:
    """Raise `BrokenPipeError` when the reader of standard output closes the pipe: the next write may be far away."""
    try:
        is_pipe = stat.S_ISFIFO(os.fstat(STDOUT).st_mode)
    except OSError:
        is_pipe = False
    if not is_pipe:
        await trio.sleep_forever()
    # The write end of a pipe becomes readable only when the read end is closed.
    await trio.lowlevel.wait_readable(STDOUT)
    raise BrokenPipeError


def _terminal() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else 160)


def _print_json(value: object) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))
