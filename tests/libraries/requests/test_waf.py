"""An agent that judges requests: what it sees, what follows from its verdict, and from the lack of one."""

import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest
import trio

from tests.libraries.conftest import Cluster
from tests.libraries.requests import spop
from tests.libraries.requests.spop import ACK, FIN, Frame, acking, frame, judging, set_variables
from tests.support.processes.ports import free_port
from tests.support.traffic.proxy import running

pytestmark = pytest.mark.haproxy

HERE = "127.0.0.1"
HOST = "a.example.com"
PASSED = 404
"""Nothing is routed here: what has passed gets that."""
PATIENCE = 30.0
KEPT = 32
"""Connections to the agent that each thread of HAProxy keeps."""


def serve(cluster: Cluster, agent_port: int, **settings: Any) -> None:
    cluster.serve(wafAddress=HERE, wafPort=agent_port, **{"wafTimeout": "15s", **settings})


async def fetch(port: int, target: str = "/", *, headers: dict[str, str] | None = None, body: bytes = b"") -> bytes:
    """Return the whole answer."""
    lines = [f"{'POST' if body else 'GET'} {target} HTTP/1.1", f"Host: {HOST}", "Connection: close"]
    lines += [f"Content-Length: {len(body)}"] if body else []
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    with trio.fail_after(PATIENCE):
        async with await trio.open_tcp_stream(HERE, port) as stream:
            await stream.send_all("\r\n".join([*lines, "", ""]).encode() + body)
            return b"".join([part async for part in stream])


async def ask(port: int, target: str = "/", **more: Any) -> int:
    """Return the status."""
    return int((await fetch(port, target, **more)).split(b" ", 2)[1])


VERDICTS: dict[str, tuple[dict[str, Any], int]] = {
    "no-objection": ({}, PASSED),
    "empty": ({"action": ""}, PASSED),
    "allow": ({"action": "allow"}, PASSED),
    "other-fields": ({"id": "x", "anomaly": 7, "bool": b"\x11", "null": b"\0", "ip": b"\x06\x7f\0\0\1"}, PASSED),
    "status-alone": ({"status": 403}, PASSED),
    "deny": ({"action": "deny"}, 403),
    "drop": ({"action": "drop", "status": 0, "data": ""}, 403),
    "deny-with-status": ({"action": "deny", "status": 429, "ruleid": 100}, 429),
    "deny-with-success": ({"action": "deny", "status": 200}, 403),
    "of-tomorrow": ({"action": "tarpit"}, 403),
    "a-number": ({"action": 1}, 403),
    "redirect": ({"action": "redirect", "data": "https://b.example.com/?a=%25"}, 302),
    "redirect-for-good": ({"action": "redirect", "data": "/sorry", "status": 308}, 308),
    "redirect-nowhere": ({"action": "redirect"}, 403),
    "redirect-with-headers": ({"action": "redirect", "data": "/\r\nSet-Cookie: a=b"}, 403),
    "long": ({"data": "x" * 8_000, "action": "deny"}, 403),
    "unset": ({"action": b"\x08\x04deny\2\2\2\x06action"}, PASSED),
}


async def test_what_an_agent_answers_is_done(cluster: Cluster) -> None:
    async def answer(stream: trio.SocketStream, asked: Frame) -> None:
        await acking(**VERDICTS[asked.arguments["path"].decode()[1:]][0])(stream, asked)

    async with judging(answer) as agent:
        serve(cluster, agent.port)
        found = {name: await ask(cluster.http_port, f"/{name}") for name in VERDICTS}
        redirected = await fetch(cluster.http_port, "/redirect")

    assert found == {name: status for name, (_, status) in VERDICTS.items()}
    assert b"location: https://b.example.com/?a=%25\r\n" in redirected
    assert agent.connections < len(VERDICTS)


def _threads() -> int:
    return len(os.sched_getaffinity(0))


async def test_an_agent_is_shown_the_request_and_who_sent_it(cluster: Cluster) -> None:
    async with judging() as agent:
        serve(cluster, agent.port, wafApplication="shop", trustedProxies=[HERE])
        await ask(cluster.http_port, "/x?y=z", headers={"X-Forwarded-For": "203.0.113.5"})

    (asked,) = [frame.arguments for frame in agent.asked]
    assert (asked["app"], asked["method"], asked["path"], asked["query"]) == (b"shop", b"GET", b"/x", b"y=z")
    assert (asked["src-ip"], asked["version"]) == ("203.0.113.5", b"1.1")
    assert b"host: a.example.com\r\n" in asked["headers"].lower()
    assert next(iter(asked)) == "app"


async def test_an_agent_sees_as_much_of_a_body_as_fits_what_it_takes(cluster: Cluster) -> None:
    body = b"x" * 40_000
    async with judging() as agent:
        serve(cluster, agent.port, wafBody=True)
        await ask(cluster.http_port, body=body)

    (asked,) = agent.asked
    assert 10_000 < len(asked.arguments["body"]) <= asked.size <= spop.MOST
    assert body.startswith(asked.arguments["body"])


async def test_an_agent_that_takes_small_frames_gets_small_ones(cluster: Cluster) -> None:
    async def greet(stream: trio.SocketStream, asked: Frame) -> None:
        await stream.send_all(spop.agent_hello(most=1000))

    async with judging(greet=greet) as agent:
        serve(cluster, agent.port, wafBody=True)
        assert await ask(cluster.http_port, body=b"x" * 5_000) == PASSED
        # What cannot be shown cannot be judged.
        assert await ask(cluster.http_port, headers={"X-Long": "x" * 2_000}) == 503

    (asked,) = agent.asked
    assert 500 < asked.size <= 1000


async def test_a_body_of_unknown_length_is_seen_over_http2(cluster: Cluster) -> None:
    async with judging() as agent:
        serve(cluster, agent.port, wafBody=True)
        with trio.fail_after(PATIENCE):
            async with await trio.open_tcp_stream(HERE, cluster.http_port) as stream:
                client = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
                client.initiate_connection()
                head = {":method": "POST", ":scheme": "http", ":authority": HOST, ":path": "/"}
                client.send_headers(1, list(head.items()))
                await stream.send_all(client.data_to_send())
                # The answer to this comes after HAProxy has read what is before it.
                client.ping(b"12345678")
                await stream.send_all(client.data_to_send())
                while not any(
                    isinstance(event, h2.events.PingAckReceived)
                    for event in client.receive_data(await stream.receive_some())
                ):
                    pass
                client.send_data(1, b"attack", end_stream=True)
                await stream.send_all(client.data_to_send())
                await agent.wait_until(lambda agent: bool(agent.asked))

    assert agent.asked[0].arguments["body"] == b"attack"


async def _broken_off(stream: trio.SocketStream, asked: Frame) -> None:
    await stream.send_all(frame(ACK, asked, set_variables(action="allow"))[:-3])
    await stream.aclose()


def _sending(make: Callable[[Frame], bytes]) -> Callable[[trio.SocketStream, Frame], Awaitable[None]]:
    async def answer(stream: trio.SocketStream, asked: Frame) -> None:
        await stream.send_all(make(asked))

    return answer


BAD_ANSWERS: dict[str, spop.Answer] = {
    "a frame of nothing": _sending(lambda _: struct.pack("!I", 0)),
    "a frame beyond all bounds": _sending(lambda _: b"\xff" * 100),
    "a frame that is larger than agreed": _sending(lambda _: struct.pack("!I", spop.MOST + 1) + b"\0" * 100),
    "half a frame": _broken_off,
    "a farewell": _sending(lambda asked: frame(spop.AGENT_DISCONNECT, asked, b"")),
    "a greeting": _sending(lambda _: spop.agent_hello()),
    "the first of several fragments": _sending(lambda asked: frame(ACK, asked, b"", flags=0)),
    "a frame given up": _sending(lambda asked: frame(ACK, asked, b"", flags=FIN | spop.ABORT)),
    "another frame's answer": _sending(lambda asked: frame(ACK, asked, b"", number=1)),
    "another stream's answer": _sending(lambda asked: frame(ACK, asked, b"", stream=1)),
    "an action that is none": _sending(lambda asked: frame(ACK, asked, b"\x09\3\2\1x\0")),
    "a value of no kind": _sending(lambda asked: frame(ACK, asked, set_variables(action=b"\x0f"))),
    "a text longer than its frame": _sending(lambda asked: frame(ACK, asked, set_variables(action=b"\x08\x7fdeny"))),
    "a name longer than its frame": _sending(lambda asked: frame(ACK, asked, b"\1\3\2" + b"\xff" * 9 + b"\1")),
    "an integer without end": _sending(lambda asked: frame(ACK, asked, b"\1\3\2\1x\4" + b"\xff" * 16_000)),
    "an action cut off": _sending(lambda asked: frame(ACK, asked, b"\1")),
}
BAD_GREETINGS: dict[str, spop.Answer] = {
    "of another version": _sending(lambda _: spop.agent_hello(version="1.0")),
    "with frames too small for anything": _sending(lambda _: spop.agent_hello(most=10)),
    "of nothing": _sending(lambda asked: frame(spop.AGENT_HELLO, asked, b"")),
    "with a farewell": _sending(lambda asked: frame(spop.AGENT_DISCONNECT, asked, b"")),
}


async def test_a_bad_answer_is_not_a_verdict_and_spoils_no_other(cluster: Cluster) -> None:
    found, after = {}, set()
    async with judging() as agent:
        serve(cluster, agent.port)
        for name, answer in BAD_ANSWERS.items():
            agent.answer = answer
            found[name] = await ask(cluster.http_port)
            agent.answer = acking()
            after.add(await ask(cluster.http_port))
        for name, greet in BAD_GREETINGS.items():
            # No connection that is greeted already is left after this.
            agent.greet, agent.answer = greet, BAD_ANSWERS["half a frame"]
            found[name] = await ask(cluster.http_port)
            agent.answer, agent.greet = acking(), spop.greet
            after.add(await ask(cluster.http_port))

    assert set(found.values()) == {503}, found
    assert after == {PASSED}


async def _never(stream: trio.SocketStream, asked: Frame) -> None:
    async for _ in stream:
        pass
    await stream.aclose()


async def _by_the_byte(stream: trio.SocketStream, asked: Frame) -> None:
    for byte in frame(ACK, asked, set_variables(action="allow", data="x" * 10_000)):
        await stream.send_all(bytes([byte]))
        await trio.sleep(0.02)  # real time: this agent is slow


@pytest.mark.parametrize(("fails_open", "status"), [(False, 503), (True, PASSED)], ids=["closed", "open"])
async def test_an_agent_without_a_timely_answer_delays_no_other_request(
    cluster: Cluster, fails_open: bool, status: int
) -> None:
    found = {}
    async with judging() as agent:
        serve(cluster, agent.port, wafTimeout="200ms", wafFailOpen=fails_open)
        agent.answer = _never
        found["silent"] = await ask(cluster.http_port)
        agent.answer = _by_the_byte
        found["drip"] = await ask(cluster.http_port)
        agent.greet = _never
        found["no greeting"] = await ask(cluster.http_port)
    found["gone"] = await ask(cluster.http_port)

    assert found == dict.fromkeys(found, status)


async def test_an_agent_too_busy_to_take_connections_delays_no_other_endpoint(cluster: Cluster) -> None:
    # Its queue is full after one connection, so others are not even refused.
    with socket.create_server((HERE, 0), backlog=0) as deaf, socket.create_connection(deaf.getsockname()):
        serve(cluster, deaf.getsockname()[1], wafTimeout="200ms")
        assert await ask(cluster.http_port) == 503


async def test_an_agent_that_restarts_is_noticed_at_once(cluster: Cluster) -> None:
    async with judging() as first:
        serve(cluster, first.port)
        before = [await ask(cluster.http_port) for _ in range(3)]
    async with judging(port=first.port) as second:
        after = [await ask(cluster.http_port) for _ in range(3)]
        # Closed by the agent while it waits for the next request.
        second.answer = BAD_ANSWERS["half a frame"]
        await ask(cluster.http_port)
        second.answer = acking()
        after.append(await ask(cluster.http_port))

    assert (before, after) == ([PASSED] * 3, [PASSED] * 4)


async def test_many_requests_at_once_each_get_their_own_verdict(cluster: Cluster) -> None:
    held: list[tuple[trio.SocketStream, Frame]] = []
    found: dict[int, int] = {}

    async def answer(stream: trio.SocketStream, asked: Frame) -> None:
        held.append((stream, asked))
        if len(held) == 50:
            batch = list(reversed(held))
            held.clear()
            for other, one in batch:
                rejected = int(one.arguments["query"].partition(b"=")[2]) % 3 == 0
                await acking(**({"action": "deny"} if rejected else {}))(other, one)

    async def one(number: int) -> None:
        found[number] = await ask(cluster.http_port, f"/?n={number}")

    async with judging(answer) as agent:
        serve(cluster, agent.port)
        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(one, number)
        with trio.fail_after(PATIENCE):
            await agent.wait_until(lambda agent: agent.open <= KEPT * _threads())

    assert found == {number: 403 if number % 3 == 0 else PASSED for number in range(200)}
    assert len(agent.asked) == 200


async def test_a_client_that_goes_away_leaves_no_connection_to_the_agent(cluster: Cluster) -> None:
    async with judging(_never) as agent:
        serve(cluster, agent.port, wafTimeout="300ms")
        async with await trio.open_tcp_stream(HERE, cluster.http_port) as client:
            await client.send_all(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            with trio.fail_after(PATIENCE):
                await agent.wait_until(lambda agent: bool(agent.asked))
        with trio.fail_after(PATIENCE):
            await agent.wait_until(lambda agent: not agent.open)


async def test_the_agent_of_these_tests_suits_the_filter_of_haproxy_itself(tmp_path: Path) -> None:
    port = free_port()
    async with judging(acking(action="deny", status=403)) as agent:
        spoe = (
            "[waf]\nspoe-agent waf\n    messages check\n    option var-prefix waf\n    timeout hello 15s\n"
            "    timeout idle 15s\n    timeout processing 15s\n    use-backend agent\n"
            "spoe-message check\n    args path=path body=req.body\n    event on-frontend-http-request\n"
        )
        (tmp_path / "spoe.cfg").write_text(spoe)
        text = (
            "defaults\n    mode http\n    timeout client 15s\n    timeout connect 15s\n    timeout server 15s\n"
            f"frontend f\n    bind {HERE}:{port}\n    filter spoe engine waf config {tmp_path}/spoe.cfg\n"
            "    http-request deny deny_status 410 if { var(txn.waf.action) -m str deny }\n"
            f"backend agent\n    mode tcp\n    server one {HERE}:{agent.port}\n"
        )
        with running(tmp_path, text, {}, port=port):
            assert await ask(port, "/some") == 410

    assert agent.asked[-1].arguments["path"] == b"/some"
