"""Call of an ASGI application, after which the client gets an end in any case."""

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Receive, Scope, Send


async def call_application(
    app: ASGIApp, scope: Scope, receive: Receive, send: Send, *, end: Callable[[], Awaitable[None]]
) -> None:
    """Call *app*, then *end*, which completes what *app* has left incomplete; raise what *app* raises."""
    error: Exception | None = None
    try:
        await app(scope, receive, send)
    except Exception as exc:  # noqa: BLE001  raised below: a cancellation of `end` in this handler would replace it
        error = exc
    await end()
    if error is not None:
        raise error
