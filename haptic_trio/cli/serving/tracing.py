"""Tracing of `serve`: options and exporter."""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import click
import trio

from haptic_trio import __version__
from haptic_trio.cli.serving.probes import Observe
from haptic_trio.errors import HapticError
from haptic_trio.logs import get_logger


class TracingUnavailableError(HapticError):
    """`--otlp-endpoint` needs the extra `otel`, which is not installed."""


def _check_endpoint(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    try:
        parts = urlsplit(value)
        fits = not value or (parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.username is None)
    except ValueError:
        fits = False
    if not fits:
        raise click.BadParameter(
            "expected a URL such as http://collector:4318 without credentials; set those in OTEL_EXPORTER_OTLP_HEADERS"
        )
    return value


otlp_option: Callable[[Any], Any] = click.option(
    "--otlp-endpoint",
    default="",
    metavar="URL",
    callback=_check_endpoint,
    envvar="HAPTIC_OTLP_ENDPOINT",
    show_default="OTEL_EXPORTER_OTLP_ENDPOINT, else no traces",
    help="Send a trace of each reconciliation to this OTLP/HTTP receiver (needs the extra `otel`).",
)


def wants_traces(endpoint: str, environment: Mapping[str, str]) -> bool:
    """Whether *endpoint* or OpenTelemetry's environment variables enable traces."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if endpoint:
        return True
    if environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return False
    return any(environment.get(name) for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))


@asynccontextmanager
async def tracing(endpoint: str, identity: str) -> AsyncIterator[Observe | None]:
    """Yield an observer that makes traces of events, or None if traces are disabled.

    Raises TracingUnavailableError. If traces are requested by OpenTelemetry's
    variables alone, which may be set for a whole namespace, logs a warning.
    """
    exporting = await _load(endpoint) if wants_traces(endpoint, os.environ) else None
    if exporting is None:
        yield None
        return
    async with exporting(endpoint, version=__version__, identity=identity) as observe:
        get_logger("tracing").info("sending traces", to=endpoint or "OTEL_EXPORTER_OTLP_…")
        yield observe


async def _load(endpoint: str) -> Any:
    def find() -> Any:
        from haptic_trio.telemetry.otlp import exporting  # noqa: PLC0415  takes long, and needs the extra

        return exporting

    try:
        return await trio.to_thread.run_sync(find)
    except ImportError as exc:
        message = "traces need the extra `otel`: pip install '.[otel]' in a checkout"
        if endpoint:
            raise TracingUnavailableError(message) from exc
        get_logger("tracing").warning("not sending traces", reason=message)
        return None
