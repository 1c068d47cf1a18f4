"""The client that waits for an effect."""

import time

import pytest

from tools.bench.figures.report import percentile
from tools.bench.rig.traffic import Answer, NoEffectError, read_answer, wait_for


def test_it_returns_how_long_after_the_write_the_first_right_answer_came() -> None:
    since = time.monotonic()

    def question() -> Answer:
        return Answer(status=200 if time.monotonic() - since > 0.03 else 404)

    seconds = wait_for(question, lambda answer: answer.status == 200, since=since, check=lambda: None)

    assert 0.03 <= seconds <= time.monotonic() - since


def test_it_gives_up_and_lets_others_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.bench.rig.traffic.EFFECT_LIMIT", 0.0)
    with pytest.raises(NoEffectError, match="503"):
        wait_for(lambda: Answer(status=503), lambda _answer: False, since=time.monotonic() - 1, check=lambda: None)

    monkeypatch.undo()

    def check() -> None:
        raise RuntimeError("the controller has ended")

    with pytest.raises(RuntimeError, match="has ended"):
        wait_for(Answer, lambda _answer: False, since=time.monotonic(), check=check)


def test_an_answer_is_read_from_its_head() -> None:
    data = b"HTTP/1.1 200 OK\r\nX-Backend: b3\r\nx-greeting: v1\r\n\r\nX-Backend: body"

    assert read_answer(data) == Answer(status=200, backend="b3", greeting="v1")
    assert read_answer(b"") == Answer()
    assert read_answer(b"rubbish\r\n\r\n") == Answer()


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(number) for number in range(100, 0, -1)]

    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([7.0], 0.99)) == (50.0, 99.0, 7.0)
