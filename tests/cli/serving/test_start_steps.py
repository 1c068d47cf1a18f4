"""A terminal shows each step of the start of `serve`, until a configuration is loaded or the log has a problem."""

import msgspec
import pytest

from haptic_trio import messages as m
from haptic_trio.cli.output.progress import Count, Steps
from haptic_trio.cli.serving.start_steps import StartSteps
from tests.support.messages import example_of


class NotedSteps(Steps):
    """Steps that a test reads."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    def begin(self, text: str, count: Count | None = None) -> None:
        self.begun.append(text)


def reached(name: str) -> m.StageReached:
    return msgspec.structs.replace(example_of(m.StageReached), name=name)


def test_each_step_of_the_start_is_shown_until_there_is_a_configuration() -> None:
    steps, ended = NotedSteps(), list[bool]()
    start = StartSteps(steps, lambda: ended.append(True))

    start.take(example_of(m.LeadershipChanged))
    for name in ("load_config", "components", "watch_resources", "watch_config", "reconcile"):
        start.take(reached(name))
    start.take(example_of(m.ReconcileStarted))
    assert ended == []
    for _ in range(2):
        start.take(example_of(m.ConfigPrepared))
    start.take(example_of(m.ReconcileStarted))

    assert steps.begun == [
        "loading the configuration", "compiling the templates", "reading objects", "starting", "rendering",
    ]  # fmt: skip
    assert ended == [True]


@pytest.mark.parametrize("kind", [m.ConfigInvalid, m.ReconcileFailed, m.IterationEnded])
def test_a_warning_in_the_log_ends_the_progress(kind: type[msgspec.Struct]) -> None:
    ended = list[bool]()

    StartSteps(Steps(), lambda: ended.append(True)).take(example_of(kind))

    assert ended == [True]
