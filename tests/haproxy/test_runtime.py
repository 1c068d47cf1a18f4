"""A process that took a plan must be in the state of one that was started on the result."""

import socket
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import FileKind, Generation, make_file, make_generation
from haptic_trio.haproxy.plan.operations import Plan
from haptic_trio.haproxy.plan.plan import make_plan
from haptic_trio.haproxy.runtime.replies import parse_map, parse_servers_state
from tests.haproxy.carrying_out import carry_out

Ask = Callable[[str], str]
Start = Callable[..., Ask]

TEXT = """\
defaults
  mode http
  timeout connect 1s
  timeout client 1s
  timeout server 1s
frontend f
  bind unix@web
  use_backend %[path,map(maps/a.map)] if {{ path,map_reg(maps/b.map) -m found }}
  use_backend %[path,map(maps/a.map)]
backend plain
  server s1 {s1}
  server s2 {s2}
  server s3 {s3}
backend hashed
  balance uri
  hash-type consistent
  server s1 {s1}
listen both
  bind unix@both
  balance leastconn
  server s1 {s3}
"""

STATES = [
    {"s1": "10.0.0.1:80", "s2": "10.0.0.2:80 weight 5", "s3": "10.0.0.3:80 disabled weight 0"},
    {"s1": "10.0.0.9:81 weight 77", "s2": "[::1]:80", "s3": "10.0.0.3:80 weight 256"},
    {"s1": "10.0.0.9:81 disabled", "s2": "[2001:db8::2]:443 weight 1 disabled", "s3": "10.1.0.3:8080 enabled"},
]
MAPS = [
    ("a 1\nb 2\n", "^/a 1\n^/ 2\n"),
    ("b 3\nc x y;z\n", "^/ 2\n^/a 1\n"),
    ("".join(f"key{number} value {number}\n" for number in range(500)), "^/x 1\n"),
]


def _generation(number: int) -> Generation:
    text = TEXT.format(**STATES[number])
    names = ("maps/a.map", "maps/b.map")
    files = [make_file(FileKind.MAP, name, content) for name, content in zip(names, MAPS[number], strict=True)]
    return make_generation(parse_config(text), files)


def _start(start_haproxy: Start, generation: Generation) -> Ask:
    return start_haproxy(generation.text, {file.path: file.content for file in generation.files.values()})


def _apply(ask: Ask, plan: Plan) -> None:
    assert not plan.reloads
    assert carry_out(ask, plan.operations) == ()


def _state_of(ask: Ask) -> object:
    servers = [
        (one.backend, one.server, one.address, one.port, one.weight, one.state)
        for one in parse_servers_state(ask("show servers state"))
    ]
    return servers, sorted(parse_map(ask("show map maps/a.map"))), parse_map(ask("show map maps/b.map"))


@pytest.mark.haproxy
@pytest.mark.parametrize("path", [(0, 1), (1, 0), (0, 2), (2, 1), (1, 2, 0), (0, 1, 2)])
def test_a_patched_process_equals_a_freshly_started_one(start_haproxy: Start, path: tuple[int, ...]) -> None:
    generations = [_generation(number) for number in path]
    patched = _start(start_haproxy, generations[0])
    for running, desired in pairwise(generations):
        _apply(patched, make_plan(running, desired))
    assert _state_of(patched) == _state_of(_start(start_haproxy, generations[-1]))


@pytest.mark.haproxy
def test_health_checks_follow_a_server_to_its_new_address(start_haproxy: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as alive, socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        before, after = (
            f"backend b\n  mode tcp\n  server s 127.0.0.1:{one.getsockname()[1]} check inter 50ms rise 1 fall 1\n"
            for one in (dead, alive)
        )
        ask = start_haproxy(before)
        _wait_for_state(ask, 0)
        generations = [make_generation(parse_config(text), ()) for text in (before, after)]
        _apply(ask, make_plan(*generations))
        _wait_for_state(ask, 2)


def _wait_for_state(ask: Ask, operational_state: int) -> None:
    deadline = time.monotonic() + 10
    while parse_servers_state(ask("show servers state b"))[0].operational_state != operational_state:
        assert time.monotonic() < deadline
