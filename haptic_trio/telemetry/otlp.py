"""Sender of traces over OTLP/HTTP. It needs the extra `otel`, so it is imported only if traces are on.

The SDK's own thread sends them, from a bounded buffer; what does not fit is
dropped. Whatever the receiver does, nothing here waits for it, but for a
limited time at the end.
"""

import base64
import logging
import os
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec
import trio
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, Status, StatusCode, Tracer, set_span_in_context

from haptic_trio.logs import get_logger
from haptic_trio.redaction.repeated import without_repeated
from haptic_trio.telemetry.traces import Attributes, Piece, Traces

FLUSH_LIMIT: Final = 3.0
"""Seconds to send buffered spans at the end."""
END_LIMIT: Final = 1.0
"""Further seconds for the sending thread to end."""
MOST_KNOWN: Final = 500
"""Maximum number of traces, including ended ones, to which spans can be added."""
WARNING_INTERVAL: Final = 60.0
"""Seconds between two log lines about failed exports."""

_TRACES_PATH: Final = "/v1/traces"
_HEADERS: Final = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_BETWEEN_WORDS: Final = re.compile(r"[\s,;=:\"']+")


class _Trace(msgspec.Struct):
    span: Span
    context: Context
    offset: int
    """Nanoseconds from clock time to Unix time, taken at the start, so that all spans of a trace are consistent."""


class OtelSink:
    """A `SpanSink` that passes spans to an OpenTelemetry tracer."""

    def __init__(self, tracer: Tracer, clock: Callable[[], float] = trio.current_time) -> None:
        self._tracer = tracer
        self._clock = clock
        self._traces: OrderedDict[str, _Trace] = OrderedDict()

    def begin(self, correlation: str, began: float, attributes: Attributes) -> None:
        """See `SpanSink.begin`."""
        offset = time.time_ns() - _nanoseconds(self._clock())
        # Never use the context of the caller as the parent.
        span = self._tracer.start_span(
            "reconciliation", context=Context(), attributes=attributes, start_time=_nanoseconds(began) + offset
        )
        self._traces[correlation] = _Trace(span, set_span_in_context(span, Context()), offset)
        if len(self._traces) > MOST_KNOWN:
            self._traces.popitem(last=False)

    def add(self, correlation: str, piece: Piece) -> None:
        """See `SpanSink.add`."""
        trace = self._traces.get(correlation)
        if trace is not None:
            self._add(trace, trace.context, piece, correlation)

    def end(self, correlation: str, ended: float, attributes: Attributes, failure: str = "") -> None:
        """See `SpanSink.end`."""
        trace = self._traces.get(correlation)
        if trace is not None:
            _finish(trace.span, trace, ended, attributes, failure)

    def _add(self, trace: _Trace, parent: Context, piece: Piece, correlation: str) -> None:
        span = self._tracer.start_span(piece.name, context=parent, start_time=_nanoseconds(piece.began) + trace.offset)
        for part in piece.parts:
            self._add(trace, set_span_in_context(span, parent), part, correlation)
        _finish(span, trace, piece.ended, {"haptic.correlation": correlation, **piece.attributes}, piece.failure)


def _finish(span: Span, trace: _Trace, ended: float, attributes: Attributes, failure: str) -> None:
    span.set_attributes(attributes)
    if failure:
        span.set_status(Status(StatusCode.ERROR, failure))
    span.end(_nanoseconds(ended) + trace.offset)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


@asynccontextmanager
async def exporting(
    endpoint: str, *, version: str, identity: str, flush_limit: float = FLUSH_LIMIT
) -> AsyncIterator[Callable[[msgspec.Struct], None]]:
    """Send traces for the duration of the block; yields an observer of events.

    *endpoint* is the base URL of the receiver; empty: as OpenTelemetry's
    variables say. At the end what is buffered is sent, for *flush_limit*
    seconds at most.
    """
    with _complaining(_credentials_in(os.environ)):
        exporter = _Exporter(endpoint.rstrip("/") + _TRACES_PATH if endpoint else None)
        provider = TracerProvider(resource=_describe(version, identity), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        traces = Traces(OtelSink(provider.get_tracer("haptic_trio", version)))
        try:
            yield lambda event: traces.take(event, trio.current_time())
        finally:
            traces.close(trio.current_time())
            with trio.move_on_after(flush_limit + END_LIMIT, shield=True):
                await _flush(provider, exporter, flush_limit)


async def _flush(provider: TracerProvider, exporter: SpanExporter, limit: float) -> None:
    with trio.move_on_after(limit) as flushing:
        # If the receiver hangs, the thread is abandoned, so that the process can exit.
        await trio.to_thread.run_sync(provider.force_flush, abandon_on_cancel=True)
    if flushing.cancelled_caught:
        get_logger("tracing").warning("traces lost: the receiver did not accept them in time")
    # Cancels a pending export.
    exporter.shutdown()
    await trio.to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)


def _describe(version: str, identity: str) -> Resource:
    """Return the resource attributes; OpenTelemetry's environment variables take precedence."""
    own = {"service.name": "haptic-trio", "service.version": version, "service.instance.id": identity}
    return Resource.create(own).merge(OTELResourceDetector().detect())


class _Exporter(OTLPSpanExporter):
    """Exporter whose `shutdown` may be called twice, by haptic-trio and by the SDK."""

    _is_ended = False

    def shutdown(self) -> None:
        """Cancel a pending export."""
        if not self._is_ended:
            self._is_ended = True
            super().shutdown()  # type: ignore[no-untyped-call]


def _credentials_in(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the texts of OpenTelemetry's variables that may be credentials."""
    words: set[str] = set()
    for text in filter(None, map(environment.get, _HEADERS)):
        words.update(*(_BETWEEN_WORDS.split(each) for each in (text, unquote(text))))
        words |= {entry.partition("=")[2].strip() for entry in text.split(",")}
    for text in filter(None, map(environment.get, _ENDPOINTS)):
        try:
            parts = urlsplit(text)
        except ValueError:
            words.add(text)
            continue
        user = parts.netloc.rpartition("@")[0]
        words |= {parts.query, user, user.partition(":")[2], base64.b64encode(unquote(user).encode()).decode()}
        words.update(value for _name, _separator, value in (each.partition("=") for each in parts.query.split("&")))
    return frozenset(words)


@contextmanager
def _complaining(hidden: frozenset[str]) -> Iterator[None]:
    """Forward warnings of the SDK without the texts *hidden* to the log for the duration of the block."""
    logger, warnings_ = logging.getLogger("opentelemetry"), _SdkWarnings(hidden)
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(warnings_)
    try:
        yield
    finally:
        logger.removeHandler(warnings_)
        logger.propagate = propagated


class _SdkWarnings(logging.Handler):
    """Log handler with a rate limit. Warnings quote malformed headers, the URL, and what the receiver answers."""

    _last = -WARNING_INTERVAL

    def __init__(self, hidden: frozenset[str]) -> None:
        super().__init__(logging.WARNING)
        self._hidden = hidden

    def emit(self, record: logging.LogRecord) -> None:
        """Log *record*, at most one every `WARNING_INTERVAL` seconds."""
        now = time.monotonic()
        if now - self._last >= WARNING_INTERVAL:
            self._last = now
            reason = without_repeated(record.getMessage(), self._hidden)
            get_logger("tracing").warning("traces cannot be sent", reason=reason)
