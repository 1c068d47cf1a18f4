"""A receiver of traces over OTLP/HTTP on the loopback interface."""

import gzip
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import trio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from haptic_trio.health import serve_app


class ReceivedSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span as it arrived."""

    name: str
    trace: bytes
    id: bytes
    parent: bytes
    began: int
    """Unix time in nanoseconds."""
    ended: int
    attributes: dict[str, Any]
    failed: bool
    status: str


class Receiver:
    """Keeps what is sent to it."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.resource: dict[str, Any] = {}
        self.raw = b""
        """All bodies, to look for what should not be there."""
        self.hangs = False
        self.rejects = False
        self.address = ""
        self._arrived = trio.Event()

    async def take(self, request: Request) -> Response:
        """Answer one request."""
        body = await request.body()
        if self.hangs:
            await trio.sleep_forever()
        if self.rejects:
            return Response(status_code=400)
        if request.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.raw += body
        message = ExportTraceServiceRequest.FromString(body)
        for resource in message.resource_spans:
            self.resource |= _values(resource.resource.attributes)
            for scope in resource.scope_spans:
                self.spans += [_span(one) for one in scope.spans]
        self._arrived.set()
        self._arrived = trio.Event()
        return Response(
            ExportTraceServiceResponse().SerializeToString(), headers={"content-type": "application/x-protobuf"}
        )

    def trace(self, correlation: str) -> list[ReceivedSpan]:
        """Return the spans of the trace whose root has this correlation."""
        roots = [one for one in self.spans if not one.parent and one.attributes["haptic.correlation"] == correlation]
        return [one for one in self.spans if roots and one.trace == roots[0].trace]

    async def wait_for(self, correlation: str, names: Iterable[str]) -> list[ReceivedSpan]:
        """Return a trace once it has spans of all these *names*."""
        while not set(names) <= {one.name for one in self.trace(correlation)}:
            await self._arrived.wait()
        return self.trace(correlation)


def _span(one: Any) -> ReceivedSpan:
    return ReceivedSpan(
        name=one.name,
        trace=one.trace_id,
        id=one.span_id,
        parent=one.parent_span_id,
        began=one.start_time_unix_nano,
        ended=one.end_time_unix_nano,
        attributes=_values(one.attributes),
        failed=one.status.code == 2,
        status=one.status.message,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """Run a receiver; its `address` is the base URL."""
    receiver = Receiver()
    app = Starlette(routes=[Route("/v1/traces", receiver.take, methods=["POST"])])
    async with trio.open_nursery() as nursery:
        (receiver.address,) = await nursery.start(partial(serve_app, app, "127.0.0.1:0"))
        yield receiver
        nursery.cancel_scope.cancel(reason="the test is over")
