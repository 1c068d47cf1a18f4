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
    """Traces are asked for and the extra `otel` is not installed; trying again helps once it is."""


def _check_endpoint(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    try:
        parts = urlsplit(value)
        fits = not value or (parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.username is None)
    except ValueError:
        fits = False
    if not fits:
        raise click.BadParameter(
            "must be a URL such as http://collector:4318, without credentials: these go into OTEL_EXPORTER_OTLP_HEADERS"
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
    """Whether there are traces, by *endpoint* or by OpenTelemetry's own variables."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if endpoint:
        return True
    if environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return False
    return any(environment.get(name) for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))


@asynccontextmanager
async def tracing(endpoint: str, identity: str) -> AsyncIterator[Observe | None]:
    """Yield who is to be shown each fact for traces, if there are to be any.

    Raises TracingUnavailableError; where only OpenTelemetry's variables ask
    for traces, which are set for whole namespaces, it is a warning.
    """
    exporting = await _load(endpoint) if wants_traces(endpoint, os.environ) else None
    if exporting is None:
        yield None
        return
    async with exporting(endpoint, version=__version__, identity=identity) as observe:
        get_logger("tracing").info("traces are sent", to=endpoint or "as OTEL_EXPORTER_OTLP_… say")
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
        get_logger("tracing").warning("no traces are sent", reason=message)
        return None
