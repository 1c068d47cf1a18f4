"""Client of the debug console's websocket."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import trio
from trio_websocket import ConnectionClosed, ConnectionRejected, HandshakeError, WebSocketConnection, wrap_client_stream

from haptic_trio.cli.serving.console import ADDRESS_NAME, TOKEN_NAME
from haptic_trio.console.protocol import PROTOCOL
from haptic_trio.console.site import STREAM
from haptic_trio.console.stream import NOT_ALLOWED
from haptic_trio.errors import INVALID_JSON, HapticError
from haptic_trio.state_files.reader import read_state_file

CONNECT_LIMIT = 10.0
CLOSE_LIMIT = 2.0
ANSWER_LIMIT = 30.0
MOST_RECEIVED = 64 << 20
FORBIDDEN = 403


class NoConsoleError(HapticError):
    """No console answers at the address; retry once a controller with a console runs."""


class ConsoleRejectedError(HapticError):
    """The console rejected the request; the message gives the reason."""


class ConsoleClient:
    """Connection to one console: requests, and a subscription to topics."""

    def __init__(self, socket: WebSocketConnection, welcome: dict[str, Any]) -> None:
        self.welcome = welcome
        self._socket = socket
        self._asked = 0

    async def ask(self, topic: str, **arguments: Any) -> Any:
        """Return the answer about *topic*.

        Raises `ConsoleRejectedError`, and `NoConsoleError` if the connection ends or no answer comes in time.
        """
        number = await self.request(topic, **arguments)
        with _mapped():
            with trio.fail_after(ANSWER_LIMIT):
                while True:
                    message = await self._receive()
                    if message.get("id") != number:
                        continue
                    if message["kind"] == "rejected":
                        raise ConsoleRejectedError(message["message"])
                    return message["value"]

    async def request(self, topic: str, **arguments: Any) -> int:
        """Request an answer about *topic*; `receive` returns it, with the returned number as its `id`."""
        self._asked += 1
        number = self._asked
        with _mapped():
            await self._send({"ask": topic, "id": number, **arguments})
        return number

    async def follow(self, topics: Sequence[str], *, interval: float = 1.0, since: int = 0, **arguments: Any) -> None:
        """Subscribe to *topics*, until the next call or the end of the connection.

        `receive` returns their messages, at most one of each topic per *interval* seconds.

        *since* is the number of the last event already received; *arguments* select a part of a topic.
        """
        with _mapped():
            await self._send({"follow": list(topics), "interval": interval, "since": since, **arguments})

    async def receive(self) -> Any:
        """Return the next message; raises `NoConsoleError` when the console ends."""
        with _mapped():
            return await self._receive()

    async def _send(self, message: object) -> None:
        await self._socket.send_message(msgspec.json.encode(message).decode())

    async def _receive(self) -> Any:
        return msgspec.json.decode(await self._socket.get_message())


class _mapped:  # noqa: N801  used as a keyword
    """Turns the end of the connection into a `NoConsoleError`."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, ConnectionClosed):
            reason = error.reason.reason if error.reason is not None else None
            hint = "; check the token" if reason == NOT_ALLOWED else ""
            raise NoConsoleError(f"the console closed the connection: {reason or 'it ended'}{hint}") from error
        if isinstance(error, trio.TooSlowError):
            raise NoConsoleError("the console does not answer in time") from error
        if isinstance(error, INVALID_JSON):
            raise NoConsoleError(f"the answer is not from a console: {error}") from error


@asynccontextmanager
async def open_console(
    url: str, token: str, *, headers: Sequence[tuple[bytes, bytes]] = ()
) -> AsyncIterator[ConsoleClient]:
    """Connect to the admin port at *url*, such as `http://127.0.0.1:9090`, for the duration of the block.

    Raises `NoConsoleError`.
    """
    # Our own stream: the connection leaves it open when the other side closes and the block ends at once.
    async with await _connect(url) as stream, trio.open_nursery() as nursery:
        try:
            with trio.fail_after(CONNECT_LIMIT):
                host = urlsplit(url).netloc
                socket = await wrap_client_stream(
                    nursery, stream, host, STREAM, extra_headers=list(headers), max_message_size=MOST_RECEIVED
                )
        except (HandshakeError, OSError, trio.TooSlowError) as exc:
            why = _reason_of(exc)
            raise NoConsoleError(f"no console answers at {url}: {why}") from exc
        with _mapped(), trio.fail_after(CONNECT_LIMIT):
            await socket.send_message(msgspec.json.encode({"hello": PROTOCOL, "token": token}).decode())
            welcome = msgspec.json.decode(await socket.get_message())
        yield ConsoleClient(socket, welcome)
        with trio.move_on_after(CLOSE_LIMIT):
            await socket.aclose()
        nursery.cancel_scope.cancel(reason="the client is done")


def _reason_of(error: Exception) -> str:
    if not isinstance(error, ConnectionRejected):
        return str(error) or "timeout"
    # A controller without a console answers 404.
    hint = "; the host name may be missing in `serve --console-host`" if error.status_code == FORBIDDEN else ""
    return f"status {error.status_code}{hint}"


async def _connect(url: str) -> trio.SocketStream | trio.SSLStream[trio.SocketStream]:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise NoConsoleError(f"{url!r} is not the URL of a console (expected such as http://127.0.0.1:9090)")
    try:
        with trio.fail_after(CONNECT_LIMIT):
            if parts.scheme == "https":
                return await trio.open_ssl_over_tcp_stream(parts.hostname, parts.port or 443)
            return await trio.open_tcp_stream(parts.hostname, parts.port or 80)
    except (OSError, ValueError, trio.TooSlowError) as exc:
        raise NoConsoleError(f"no console answers at {url}: {str(exc) or 'timeout'}") from exc


def find_console(state_dir: Path, url: str | None, token_file: Path | None) -> tuple[str, str]:
    """Return URL and token of the console, as given or from the state directory; raises `NoConsoleError`."""
    try:
        address = url or _read(state_dir / ADDRESS_NAME)
        # A file that the user names may be a link or a pipe.
        return address, token_file.read_text().strip() if token_file is not None else _read(state_dir / TOKEN_NAME)
    except UnicodeDecodeError as exc:
        raise NoConsoleError("no console found: its address or token is not UTF-8") from exc
    except OSError as exc:
        hint = "give the --state-dir of a running controller, or --url and --token-file"
        raise NoConsoleError(f"no console found: {exc.filename}: {exc.strerror}; {hint}") from exc


def _read(path: Path) -> str:
    return read_state_file(path).decode().strip()
