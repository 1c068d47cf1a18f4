"""Debug console of `serve`: options, token and data sources."""

import ipaddress
import secrets
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import click
import msgspec
import trio
from starlette.routing import BaseRoute

from haptic_trio.cli.serving.fleet import fleet_of
from haptic_trio.commentator import LOG_LINES
from haptic_trio.console.api import make_api
from haptic_trio.console.hosts import Hosts, own_names
from haptic_trio.console.recorder import Recorder
from haptic_trio.console.site import PAGE, make_routes
from haptic_trio.console.stream import Viewers
from haptic_trio.console.watched import IterationSnapshot, Watched
from haptic_trio.dataplane.figures import ReadsFigures
from haptic_trio.errors import HapticError, text_of
from haptic_trio.logs import get_logger
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.rejection.summary import Summaries
from haptic_trio.stages.process import Process
from haptic_trio.stages.status_writers import make_redactor
from haptic_trio.state_files.reader import StateFileError, read_state_file
from haptic_trio.state_files.writer import replace_file

TOKEN_NAME = "console.token"  # noqa: S105  a file's name
ADDRESS_NAME = "console.address"
SHORTEST_TOKEN = 16

Observe: TypeAlias = Callable[[msgspec.Struct], None]

_console_option = click.option(
    "--console",
    type=click.Choice(["auto", "on", "off"]),
    default="auto",
    show_default=True,
    envvar="HAPTIC_CONSOLE",
    help="Serve the debug console at /console of --listen. auto: only if that is a loopback address.",
)

_host_option = click.option(
    "--console-host",
    "console_hosts",
    multiple=True,
    metavar="NAME",
    envvar="HAPTIC_CONSOLE_HOST",
    help="Additional host name in requests to the debug console; may be repeated. localhost, IP addresses, the host of"
    " --listen and the name of this machine are always allowed; other names are rejected (DNS rebinding).",
)

_token_option = click.option(
    "--console-token-file",
    "console_token_file",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="HAPTIC_CONSOLE_TOKEN_FILE",
    help="File with the token of the debug console, such as a mounted Secret, instead of console.token in the state"
    " directory. It is read at the start.",
)


def console_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the console to *command*."""
    for option in (_token_option, _host_option, _console_option):
        command = option(command)
    return command


class TokenError(HapticError):
    """The token of the console is missing or too short; retry after replacing the file."""


class NoConsole:
    """Null object for `--console off`."""

    routes: Sequence[BaseRoute] = ()
    page = ""
    """Address of the page, once announced; empty without a console."""
    token = ""

    def observing(self, more: Observe | None) -> Observe | None:
        """Return *more*."""
        return more

    async def run(self, _addresses: list[str]) -> None:
        """Do nothing, and return."""


class Console(NoConsole):
    """The console of one process: an observer of events, and routes for the admin port."""

    def __init__(self, process: Process, state_dir: Path, token_file: Path, token: str, hosts: Hosts) -> None:
        self._process = process
        self._state_dir = state_dir
        self._token_file = token_file
        self.token = token
        redactor = make_redactor(process)
        self.recorder = Recorder(LOG_LINES.get, redactor.clean_all)
        watched = self._watched = Watched(
            self.recorder,
            process.events,
            iteration=self._iteration,
            leadership=lambda: self._process.leadership.value,
            fleet=self._fleet,
            objects=summaries_of(process).latest,
            sources=self._sources,
        )
        self.viewers = Viewers(watched, token)
        self.routes = [*make_routes(self.viewers, hosts), *make_api(watched, token, hosts)]

    def observing(self, more: Observe | None) -> Observe | None:
        """Return an observer that passes each event to the console and to *more*."""
        if more is None:
            return self._watched.observe

        def observe(event: msgspec.Struct) -> None:
            self._watched.observe(event)
            more(event)

        return observe

    def announce(self, addresses: list[str]) -> None:
        """Publish the address in the log, and in the state directory for `haptic-trio debug`."""
        log = get_logger("console")
        path = self._state_dir / ADDRESS_NAME
        try:
            replace_file(path, f"{addresses[0]}\n".encode())
        except OSError as exc:
            # With a full or read-only disk, the controller adopts HAProxy as usual.
            log.warning("cannot write the address of the console", path=str(path), error=text_of(exc))
        self.page = f"{addresses[0]}{PAGE}"
        log.info("console is served", page=self.page, token_file=self._token_file)

    async def run(self, addresses: list[str]) -> None:
        """Announce the first of *addresses*, and record the differences of generations until cancelled."""
        self.announce(addresses)
        await self._watched.history.run()

    def _iteration(self) -> IterationSnapshot | None:
        state = self._process.running.value
        if state is None:
            return None
        return IterationSnapshot(
            number=state.number,
            opened=state.opened,
            stage=state.stage,
            is_ready=state.is_ready,
            loaded=state.loaded,
            heartbeats=state.heartbeats,
            channels=state.channels,
            stores=state.components.stores if state.components is not None else None,
            pipeline=state.components.pipeline if state.components is not None else None,
        )

    def _sources(self) -> list[ReadsFigures]:
        return [one for one in self._process.endpoints.value or () if isinstance(one, ReadsFigures)]

    def _fleet(self) -> Any:
        fleet = fleet_of(self._process)
        return msgspec.to_builtins(fleet.describe()) if fleet is not None else None


def summaries_of(process: Process) -> Summaries:
    """Return the summaries of problems of objects in *process*, without content of Secrets."""

    def quarantine() -> Quarantine | None:
        state = process.running.value
        return state.components.quarantine if state is not None and state.components is not None else None

    return Summaries(quarantine, make_redactor(process).clean, process.places)


def wants_console(choice: str, listen: str) -> bool:
    """Whether `--console` and `--listen` enable the console."""
    if choice != "auto":
        return choice == "on"
    host = listen.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(state_dir: Path) -> str:
    """Return the token in the state directory; creates it with mode 0600 if missing. Raises `TokenError`."""
    path = state_dir / TOKEN_NAME
    try:
        content = read_state_file(path)
    except FileNotFoundError:
        content = b""
    except StateFileError as exc:
        get_logger("console").warning("replaced the token of the console", error=text_of(exc))
        content = b""
    except OSError as exc:
        raise _unreadable(path, text_of(exc)) from exc
    # Earlier versions left an empty file behind when the disk was full.
    if content:
        return _token_in(content, path, "delete the file to create a new token")
    try:
        token = secrets.token_urlsafe(24)
        replace_file(path, f"{token}\n".encode())
    except OSError as exc:
        raise TokenError(f"{path}: the token of the console cannot be written: {text_of(exc)}") from exc
    return token


def read_given_token(path: Path) -> str:
    """Return the token in *path*, which must exist; raises `TokenError`."""
    try:
        # A mounted Secret is a link.
        content = path.read_bytes()
    except OSError as exc:
        raise _unreadable(path, text_of(exc)) from exc
    return _token_in(content, path, "provide a longer token")


def _unreadable(path: Path, reason: str) -> TokenError:
    place = f"{path}: "
    return TokenError(f"{place}the token of the console cannot be read: {reason.removeprefix(place)}")


def _token_in(content: bytes, path: Path, hint: str) -> str:
    try:
        token = content.decode().strip()
    except UnicodeDecodeError:
        raise _unreadable(path, f"it is not UTF-8; {hint}") from None
    if len(token) < SHORTEST_TOKEN:
        raise TokenError(f"{path}: the token has less than {SHORTEST_TOKEN} characters; {hint}")
    return token


async def make_console(
    choice: str,
    listen: str,
    state_dir: Path,
    process: Process,
    *,
    names: Collection[str] = (),
    token_file: Path | None = None,
) -> NoConsole:
    """Return the console of *process*, or `NoConsole` if `--console` and `--listen` disable it; raises `TokenError`.

    *names* are additional host names in requests. *token_file* replaces that of the state directory.
    """
    if not wants_console(choice, listen):
        return NoConsole()
    if token_file is None:
        token = await trio.to_thread.run_sync(read_token, state_dir)
    else:
        token = await trio.to_thread.run_sync(read_given_token, token_file)
    return Console(process, state_dir, token_file or state_dir / TOKEN_NAME, token, Hosts(own_names(listen, names)))
