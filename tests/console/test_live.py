"""Live figures are read from the replies of HAProxy, and summed over instances."""

from types import SimpleNamespace
from typing import Any, cast

import trio
from trio.testing import MockClock

from haptic_trio.console.live import MOST_BACKENDS, READ_LIMIT, Live, read_figures
from haptic_trio.dataplane.endpoint import EndpointUnreachableError
from haptic_trio.dataplane.local.instance import LocalAgent

INFO = "Name: HAProxy\nVersion: 2.8.25\nUptime_sec: 71\nCurrConns: 3\nSessRate: 2\nPid: 5"
HEAD = "# pxname,svname,qcur,scur,rate,status,act,bck,econ,eresp,hrsp_1xx,hrsp_2xx,hrsp_4xx,hrsp_5xx,hrsp_other,"
SERVERS = "web,s1,0,1,4,UP 1/2,1,0,0,0,,,,,,\nweb,s2,0,0,0,DOWN,1,0,0,0,,,,,,"
WEB = f"{HEAD}\n{SERVERS}\nweb,BACKEND,2,1,4,UP,1,0,3,1,0,7,1,2,0,"
"""Shortened to some of the columns."""


class Client:
    """Stands for a runtime socket."""

    def __init__(self, *, answers: bool = True, seconds: float = 0.0) -> None:
        self.requests: list[str] = []
        self.answers = answers
        self.seconds = seconds

    async def ask(self, request: str) -> str:
        """Return the replies, if there are any."""
        await trio.sleep(self.seconds)
        self.requests.append(request)
        if not self.answers:
            raise EndpointUnreachableError("gone", "no answer")
        return f"{INFO}\n\n" + f"{WEB}\n\n" * request.count(" web ")


def agent(name: str, client: Client) -> LocalAgent:
    return cast("LocalAgent", SimpleNamespace(name=name, runtime=client))


def test_figures_are_those_of_haproxy() -> None:
    (process,) = read_figures({"local-1": INFO}).processes
    (backend,) = read_figures({"local-1": f"{INFO}\n\n{WEB}\n\nCan't find proxy.\n"}).backends

    assert (process.version, process.uptime, process.connections, process.rate) == ("2.8.25", 71, 3, 2)
    assert (backend.name, backend.up, backend.sessions, backend.queued, backend.rate) == ("web", 1, 1, 2, 4)
    assert (backend.errors, backend.answers_5xx, backend.answers) == (4, 2, 10)
    assert [(one.name, one.status, one.is_up) for one in backend.servers] == [
        ("s1", "UP 1/2", True),
        ("s2", "DOWN", False),
    ]


def test_figures_of_instances_are_summed_and_the_fewest_servers_count() -> None:
    other = f"{INFO}\n\n{HEAD}\nweb,BACKEND,0,9,6,DOWN,0,0,0,0,0,1,0,0,0,"

    (backend,) = read_figures({"local-1": f"{INFO}\n\n{WEB}", "local-2": other}).backends

    assert (backend.up, backend.sessions, backend.rate, backend.answers) == (0, 10, 10, 11)


async def test_an_instance_without_an_answer_is_left_out(autojump_clock: MockClock) -> None:
    others = [agent("local-2", Client(answers=False)), agent("local-3", Client(seconds=1000))]

    view = await Live(lambda: [agent("local-1", Client()), *others]).read(["web"])

    assert trio.current_time() == READ_LIMIT
    assert [one.instance for one in view.processes] == ["local-1"]
    assert [one.name for one in view.backends] == ["web"]


async def test_names_from_viewers_add_no_commands_and_requests_stay_short() -> None:
    client = Client()
    odd: Any = ["a;shutdown sessions server web/s1", "a b", "", "x\nhelp", "é", "web"]

    await Live(lambda: [agent("local-1", client)]).read(odd)
    assert client.requests == ["show info;show stat web 6 -1\n"]

    client.requests.clear()
    await Live(lambda: [agent("local-1", client)]).read([f"{number:0>190}" for number in range(300)])
    assert sum(request.count("show stat") for request in client.requests) == MOST_BACKENDS
    assert max(map(len, client.requests)) < 9_000
    assert sum(request.count(" 6 -1") for request in client.requests) == 5
