"""The client at a constant rate, against a server that fails on purpose."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tools.bench.rig.load import Background, Counts, run_background

pytestmark = pytest.mark.process

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
BAD = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def serving(*answers: bytes) -> Iterator[int]:
    """Give one connection after another the next answer, the last one ever after; empty closes it at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            number = 0
            while True:
                try:
                    connection, _address = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(answers[min(number, len(answers) - 1)])
                number += 1

        thread = threading.Thread(target=run)
        thread.start()
        yield listener.getsockname()[1]
        # Wakes the thread that waits in accept.
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def wait_sent(background: Background, least: int) -> Counts:
    deadline = time.monotonic() + 20
    while (counts := background.counts()).sent < least:
        assert time.monotonic() < deadline
    return counts


def test_what_is_not_answered_with_200_is_an_error() -> None:
    with serving(GOOD, BAD, b"", GOOD, BAD, GOOD) as port, run_background(port, ["a.example"], 200.0) as background:
        assert wait_sent(background, 20).errors == 3


def test_a_refused_connection_is_an_error() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with run_background(closed.getsockname()[1], ["a.example"], 200.0) as background:
            counts = wait_sent(background, 5)

    assert counts.errors == counts.sent


def test_the_rate_is_kept_while_answers_are_slow() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=512) as mute:
        began = time.monotonic()
        with run_background(mute.getsockname()[1], ["a.example"], 100.0) as background:
            background.counts()
            accepted = []
            for _number in range(30):
                connection, _address = mute.accept()
                accepted.append(connection)
            # Thirty are open although none was answered, and they have not come all at once.
            assert time.monotonic() - began > 0.25
            assert background.counts() == Counts()
        for connection in accepted:
            connection.close()
