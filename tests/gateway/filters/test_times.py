"""`timeouts` and `retry` of a rule: how long a client waits at most, and how often a backend is asked."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.gateway.objects import GatewayObjectError
from haptic_trio.gateway.routes.backends import ENDLESS, limit_of, retry_of
from tests.gateway.objects import gateway, made, route, rule
from tests.gateway.serving import endpoints, served
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import QuietHandler, answering, ask

QUIET = 1.0
"""Seconds for which the backend says nothing, where it is asked to be slow."""


class _Handler(QuietHandler):
    asked: Counter[str]
    released: threading.Event

    def answer(self) -> None:
        self.asked[self.path] += 1
        if self.path.startswith("/slow"):
            self.released.wait(QUIET)
        self.send_response(500 if self.path.startswith("/failing") else 200)
        self.send_header("content-length", "0")
        self.end_headers()


@contextmanager
def backend() -> Iterator[tuple[int, Counter[str]]]:
    """Run a server that is slow or failing where its path says so; yields its port, and how often each path came."""
    asked: Counter[str] = Counter()
    released = threading.Event()
    handler = type("Handler", (_Handler,), {"asked": asked, "released": released})
    try:
        with answering(handler) as port:
            yield port, asked
    finally:
        released.set()


CASES: dict[str, tuple[dict[str, Any], int, int]] = {
    "/slow/request": ({"timeouts": {"request": "300ms"}}, 504, 1),
    "/slow/backend": ({"timeouts": {"request": "20s", "backendRequest": "300ms"}}, 504, 1),
    "/slow/retried": ({"timeouts": {"request": "450ms"}, "retry": {"attempts": 2, "codes": []}}, 504, 3),
    "/slow/both": ({"timeouts": {"request": "500ms", "backendRequest": "200ms"}, "retry": {"attempts": 5}}, 504, 2),
    "/slow/endless": ({"timeouts": {"request": "0s"}}, 200, 1),
    "/slow/none": ({}, 504, 1),
    "/failing/retried": ({"timeouts": {"request": "20s"}, "retry": {"attempts": 2, "codes": [500]}}, 500, 3),
}


@pytest.mark.haproxy
def test_all_attempts_together_do_not_exceed_the_timeout_of_the_rule(tmp_path: Path) -> None:
    port = free_port()
    rules = [rule(path, **fields) for path, (fields, _, _) in CASES.items()]
    service = made("Service", "app", version="v1", spec={"ports": [{"port": 80}]})
    listener = {"name": "http", "port": port, "protocol": "HTTP"}
    reported: dict[str, tuple[int, int]] = {}
    with backend() as (server, asked):
        objects = gateway("gw", listener), service, endpoints("app", ("", server)), route("r", *rules)
        with served(tmp_path, port, *objects, timeoutServer="700ms"):
            for path in CASES:
                begun = time.monotonic()
                status = ask(port, "a.test", path).status
                reported[path] = status, asked[path]
                if status == 504:
                    assert time.monotonic() - begun < QUIET

    assert reported == {path: (status, times) for path, (_, status, times) in CASES.items()}


DURATIONS = st.integers(0, 99_999)


@given(DURATIONS, DURATIONS, st.integers(0, 20))
def test_all_attempts_together_take_no_longer_than_the_request_may(request: int, per_try: int, attempts: int) -> None:
    per_try = min(per_try, request) if request else per_try
    times = {"request": f"{request}ms", "backendRequest": f"{per_try}ms"}

    found = {"timeouts": times, "retry": {"attempts": attempts, "codes": []}}
    limit, retry = limit_of(found), retry_of(found)

    assert limit is not None
    assert retry.attempts <= attempts
    if per_try:
        assert limit <= per_try
    if request > attempts:
        assert limit * (retry.attempts + 1) <= request
    if not request and not per_try:
        assert limit == ENDLESS


def test_a_time_that_haproxy_cannot_count_is_the_longest_that_it_can() -> None:
    assert limit_of({"timeouts": {"request": "99999h"}}) == ENDLESS
    assert limit_of({"timeouts": {}}) is None


@pytest.mark.parametrize("attempts", [False, True, "1", 1.5, -1])
def test_attempts_that_are_no_number_reject_the_route_and_not_the_service(attempts: object) -> None:
    with pytest.raises(GatewayObjectError, match="attempts must be"):
        retry_of({"retry": {"attempts": attempts}})
