"""Live figures come from all instances that answer in time, under the names of the controller."""

from collections.abc import Sequence

import trio
from trio.testing import MockClock

from haptic_trio.console.live import MOST_INSTANCES, READ_LIMIT, Live
from haptic_trio.dataplane.endpoint import EndpointUnreachableError
from haptic_trio.dataplane.figures import BackendFigures, InstanceFigures, ProcessFigures, ServerFigures


class Source:
    """Stands for an instance that calls itself `local`."""

    def __init__(self, name: str, *, answers: bool = True, seconds: float = 0.0) -> None:
        self.name = name
        self._answers = answers
        self._seconds = seconds
        self.reads = 0

    async def read_figures(self, backends: Sequence[str]) -> InstanceFigures:
        """Return the figures of *backends*, if there are any."""
        self.reads += 1
        await trio.sleep(self._seconds)
        if not self._answers:
            raise EndpointUnreachableError(self.name, "no answer")
        server = ServerFigures(instance="local", name="s1", status="UP", is_up=True, sessions=0, rate=0)
        return InstanceFigures(
            process=ProcessFigures(instance="local", version="3.2", uptime=1, connections=0, rate=0),
            backends=tuple(
                BackendFigures(
                    name=name, up=1, sessions=0, queued=0, rate=2, errors=0, answers_5xx=0, answers=0, servers=(server,)
                )
                for name in backends
            ),
        )


async def test_an_instance_without_an_answer_is_left_out(autojump_clock: MockClock) -> None:
    sources = [Source("edge-1"), Source("edge-2", answers=False), Source("edge-3", seconds=1000), Source("edge-4")]

    view = await Live(lambda: sources).read(["web"])

    assert trio.current_time() == READ_LIMIT
    assert [one.instance for one in view.processes] == ["edge-1", "edge-4"]
    (web,) = view.backends
    assert (web.name, web.rate, [one.instance for one in web.servers]) == ("web", 4, ["edge-1", "edge-4"])


async def test_number_of_read_instances_is_bounded() -> None:
    sources = [Source(f"edge-{number}") for number in range(MOST_INSTANCES + 5)]

    view = await Live(lambda: sources).read([])

    assert len(view.processes) == sum(one.reads for one in sources) == MOST_INSTANCES
