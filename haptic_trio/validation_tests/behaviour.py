"""Judgement of responses and of requests that arrived at servers."""

from collections.abc import Iterator, Mapping, Sequence

from haptic_trio.config.assertions import Behaviour, Expect, Received
from haptic_trio.validation_tests.live.client import Reply
from haptic_trio.validation_tests.live.echo import Arrival
from haptic_trio.validation_tests.live.instance import Instance, InstanceError
from haptic_trio.validation_tests.results import difference
from haptic_trio.validation_tests.static import Fault

_LONGEST = 200


async def observe(assertion: Behaviour, instance: Instance) -> Fault | None:
    """Return why *assertion* fails for *instance*, or None."""
    seen: set[str] = set()
    for number in range(1, assertion.request.times + 1):
        try:
            reply, arrivals = await instance.ask(assertion.request, assertion.answer)
        except InstanceError as exc:
            return Fault(str(exc))
        seen |= {arrival.server.endpoint for arrival in arrivals[-1:]}
        found = list(judge(assertion.expect, reply, arrivals))
        if found:
            which = f"request {number}: " if assertion.request.times > 1 else ""
            return Fault(f"{which}{'; '.join(found)}")
    expected = set(assertion.expect.endpoints)
    if expected and seen != expected:
        wanted, answering = (", ".join(sorted(names)) or "none" for names in (expected, seen))
        return Fault(difference("the answering servers", wanted, answering))
    return None


def judge(expect: Expect, reply: Reply, arrivals: Sequence[Arrival]) -> Iterator[str]:
    """Yield the differences of *reply* and *arrivals* from what is expected."""
    if reply.status != expect.status:
        found = f"{reply.status or 'none: the connection was closed'}{_said(reply)}"
        yield difference("the status", expect.status or "none: a closed connection", found)
    yield from _judge_headers(expect.headers, expect.absent_headers, reply.headers)
    if expect.body and expect.body not in reply.body:
        yield difference("the body", f"text with {_short(expect.body)!r}", repr(_short(reply.body)))
    if expect.certificate and expect.certificate not in reply.certificate:
        names = ", ".join(sorted(reply.certificate))
        yield difference("the certificate", f"one for {expect.certificate}", f"one for {names}" if names else "none")
    # After retries, the last request is the one that was answered.
    last = arrivals[-1] if arrivals else None
    if expect.by_haproxy and last is not None:
        found = f"one of {last.server.endpoint} in backend {last.server.backend}"
        yield difference("the response", "one of HAProxy itself", found)
    yield from _judge_server(expect, last)
    yield from _judge_arrival(expect.received, last)


def _said(reply: Reply) -> str:
    where = reply.headers.get("location", [""])[0]
    if where:
        return f", to {where}"
    body = _short(reply.body.strip())
    return f" ({body})" if body and reply.status >= 400 else ""


def _judge_server(expect: Expect, last: Arrival | None) -> Iterator[str]:
    wanted = (("backend", expect.backend), ("server", expect.server), ("endpoint", expect.endpoint))
    if not any(value for _, value in wanted):
        return
    if last is None:
        for field, value in wanted:
            if value:
                yield difference(f"the {field}", value, "none: no server was reached")
        return
    found = {"backend": last.server.backend, "server": last.server.name, "endpoint": last.server.endpoint}
    for field, value in wanted:
        if value and found[field] != value:
            yield difference(f"the {field}", value, found[field])


def _judge_arrival(received: Received, last: Arrival | None) -> Iterator[str]:
    if received == Received():
        return
    if last is None:
        yield difference("the request at the server", "one", "none: nothing arrived at a server")
        return
    for field, value in (("method", received.method), ("path", received.path)):
        found: str = getattr(last, field)
        if value and found != value:
            yield difference(f"at the server, the {field}", repr(value), repr(_short(found)))
    for fault in _judge_headers(received.headers, received.absent_headers, last.headers):
        yield f"at the server, {fault}"


def _judge_headers(
    expected: Mapping[str, str], absent: Sequence[str], headers: Mapping[str, list[str]]
) -> Iterator[str]:
    for name, value in expected.items():
        found = headers.get(name.lower())
        if found is None:
            yield difference(f"the header {name}", repr(value), "none")
        elif value not in found:
            yield difference(f"the header {name}", repr(value), repr(_short(", ".join(found))))
    for name in absent:
        if name.lower() in headers:
            yield difference(f"the header {name}", "none", repr(_short(", ".join(headers[name.lower()]))))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
