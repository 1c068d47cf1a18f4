"""Live figures are read from the replies of HAProxy, and summed over instances."""

from typing import Any

from haptic_trio.dataplane.figures import MOST_BACKENDS, ask_figures, parse_figures, sum_backends

INFO = "Name: HAProxy\nVersion: 2.8.25\nUptime_sec: 71\nCurrConns: 3\nSessRate: 2\nPid: 5"
HEAD = (
    "# pxname,svname,qcur,scur,rate,status,act,bck,econ,eresp,hrsp_1xx,hrsp_2xx,hrsp_4xx,hrsp_5xx,hrsp_other,"
    "rtime,ttime,"
)
SERVERS = "web,s1,0,1,4,UP 1/2,1,0,0,0,,,,,,,,\nweb,s2,0,0,0,DOWN,1,0,0,0,,,,,,,,"
WEB = f"{HEAD}\n{SERVERS}\nweb,BACKEND,2,1,4,UP,1,0,3,1,0,7,1,2,0,12,30,"
"""Shortened to some of the columns."""


class Socket:
    """Stands for a runtime socket."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    async def ask(self, request: str) -> str:
        """Return the replies."""
        self.requests.append(request)
        return f"{INFO}\n\n" + f"{WEB}\n\n" * request.count(" web ")


def test_figures_are_those_of_haproxy() -> None:
    process = parse_figures("local-1", INFO).process
    (backend,) = parse_figures("local-1", f"{INFO}\n\n{WEB}\n\nCan't find proxy.\n").backends

    assert (process.version, process.uptime, process.connections, process.rate) == ("2.8.25", 71, 3, 2)
    assert (backend.name, backend.up, backend.sessions, backend.queued, backend.rate) == ("web", 1, 1, 2, 4)
    assert (backend.errors, backend.answers_5xx, backend.answers) == (4, 2, 10)
    assert (backend.response_ms, backend.total_ms) == (12, 30)
    assert [(one.name, one.status, one.is_up) for one in backend.servers] == [
        ("s1", "UP 1/2", True),
        ("s2", "DOWN", False),
    ]


def test_figures_of_instances_are_summed_and_the_fewest_servers_and_the_slowest_answers_count() -> None:
    other = f"{INFO}\n\n{HEAD}\nweb,BACKEND,0,9,6,DOWN,0,0,0,0,0,1,0,0,0,5,90,"

    (backend,) = sum_backends([parse_figures("local-1", f"{INFO}\n\n{WEB}"), parse_figures("local-2", other)])

    assert (backend.up, backend.sessions, backend.rate, backend.answers) == (0, 10, 10, 11)
    assert (backend.response_ms, backend.total_ms) == (12, 90)


async def test_names_from_viewers_add_no_commands_and_requests_stay_short() -> None:
    socket = Socket()
    odd: Any = ["a;shutdown sessions server web/s1", "a b", "", "x\nhelp", "é", "web"]

    figures = await ask_figures(socket.ask, "local-1", odd)
    assert socket.requests == ["show info;show stat web 6 -1\n"]
    assert [one.name for one in figures.backends] == ["web"]

    socket.requests.clear()
    await ask_figures(socket.ask, "local-1", [f"{number:0>190}" for number in range(300)])
    assert sum(request.count("show stat") for request in socket.requests) == MOST_BACKENDS
    assert max(map(len, socket.requests)) < 9_000
    assert sum(request.count(" 6 -1") for request in socket.requests) == 5


async def test_size_of_figures_is_bounded_for_a_backend_with_very_many_servers() -> None:
    servers = "\n".join(f"web,s{number},0,1,4,UP,1,0,0,0,,,,,,,," for number in range(5000))

    async def ask(_request: str) -> str:
        return f"{INFO}\n\n{HEAD}\n{servers}\nweb,BACKEND,0,0,0,UP,5000,0,0,0,0,0,0,0,0,1,1,\n"

    (backend,) = (await ask_figures(ask, "local-1", ["web"])).backends

    assert (backend.up, len(backend.servers)) == (5000, 100)
