"""HTTPS server of the webhook, on a port of its own."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NoReturn, Protocol

import msgspec
import trio
from starlette.types import ASGIApp

from haptic_trio.asgi.server import serve_asgi
from haptic_trio.asgi.wire import Limits
from haptic_trio.dataplane.agent.tls import OpenFiles, RenewedContext, TlsFiles, TlsFilesError
from haptic_trio.errors import Problem, leaves_of
from haptic_trio.logs import get_logger
from haptic_trio.webhook.admission import Admission
from haptic_trio.webhook.app import PATH, Doorkeeper, make_app
from haptic_trio.webhook.metrics import WebhookMetrics

HANDSHAKE_LIMIT: Final = 5.0
"""Seconds that a TLS handshake may take."""
IDLE_LIMIT: Final = 120.0
"""Seconds until an idle connection is closed; the API server closes its connections after 90."""
RETRY_INTERVAL: Final = 10.0
"""Seconds between two attempts to open the port or the certificate files."""


class WebhookOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Address, certificate and authorized clients of the webhook."""

    listen: str
    certificate: Path
    key: Path
    authorities: Path | None = None
    """CA certificates of clients; None: clients need no certificate."""
    allowed: frozenset[str] = frozenset()
    """Allowed names in client certificates; empty: all."""


class Report(Protocol):
    """Reports problems."""

    def __call__(self, source: str, problems: tuple[Problem, ...]) -> None:
        """Report *problems* of *source*."""
        ...


async def run_webhook(
    options: WebhookOptions,
    admission: Admission,
    metrics: WebhookMetrics,
    *,
    report: Report,
    announce: Callable[[tuple[str, ...]], None] = lambda _addresses: None,
) -> NoReturn:
    """Serve until cancelled.

    A failure to start (a missing certificate, a port in use) is reported once
    and retried: it must not stop the controller. *announce* gets the addresses
    each time they are bound.
    """
    reported = ""
    while True:
        try:
            async with trio.open_nursery() as nursery:
                addresses = await nursery.start(partial(serve_webhook, options, admission, metrics))
                reported = ""
                get_logger("webhook").info("webhook is served", addresses=addresses)
                announce(tuple(addresses))
        except* (OSError, TlsFilesError) as group:
            message = str(next(leaves_of(group)))
            if message != reported:
                hint = f"objects are accepted without review until then; retried every {RETRY_INTERVAL:g} s"
                report("webhook", (Problem(message=message, source=options.listen, hint=hint),))
            reported = message
        await trio.sleep(RETRY_INTERVAL)


async def serve_webhook(
    options: WebhookOptions,
    admission: Admission,
    metrics: WebhookMetrics,
    *,
    task_status: trio.TaskStatus[tuple[str, ...]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; started() gives the addresses, such as `https://127.0.0.1:9443/validate`.

    Certificate, key and authorities are read again when they change. Raises
    TlsFilesError, and OSError if the address is in use.
    """
    context = await trio.to_thread.run_sync(partial(RenewedContext, _files_of(options), server=True))
    doorkeeper = Doorkeeper(context.newest_trust, options.allowed) if options.authorities else None
    limits = Limits(handshake=HANDSHAKE_LIMIT, idle=IDLE_LIMIT)
    app: ASGIApp = make_app(admission, metrics, doorkeeper)
    async with trio.open_nursery() as nursery:
        binds = await nursery.start(partial(serve_asgi, app, options.listen, limits=limits, context=context))
        task_status.started(tuple(f"{bind}{PATH}" for bind in binds))


def _files_of(options: WebhookOptions) -> TlsFiles | OpenFiles:
    if options.authorities is None:
        return OpenFiles(certificate=options.certificate, key=options.key)
    return TlsFiles(certificate=options.certificate, key=options.key, authorities=options.authorities)
