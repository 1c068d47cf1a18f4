"""Hostile servers that decide about requests: what they can keep HAProxy busy with, on a real HAProxy."""

import contextlib
import os
import socket
import string
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from tests.libraries.conftest import Cluster
from tests.libraries.requests.test_external_auth import LIBRARIES, URL, ask_for, checked, deciding, servers
from tests.support.traffic.proxy import processor_seconds
from tests.support.traffic.raw import exchange
from tests.support.traffic.servers import serving


@contextmanager
def endless(body: bytes) -> Iterator[tuple[int, list[socket.socket]]]:
    """Run a server whose answers have no end; yields its port, and the connections that it has accepted.

    *body* is sent again and again behind the header of an answer that lets everybody in.
    """
    ending = Event()
    accepted: list[socket.socket] = []
    threads: list[Thread] = []

    def answer(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-User: joe\r\nTransfer-Encoding: chunked\r\n\r\n")
            while body:
                connection.sendall(body)
        ending.wait()
        connection.close()

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                accepted.append(connection)
                threads.append(Thread(target=answer, args=[connection]))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        accepting = Thread(target=serve)
        accepting.start()
        try:
            yield listener.getsockname()[1], accepted
        finally:
            ending.set()
            # Wakes the threads that wait for a connection, or for room in one.
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for connection in accepted:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


ENDLESS = b"40000\r\n" + b"x" * 0x40000 + b"\r\n"
MOST_SECONDS = 0.3
MOST = 8
"""How many questions of a namespace are open at once, in each thread."""


@pytest.mark.haproxy
def test_what_follows_the_header_of_an_answer_is_not_kept(cluster: Cluster) -> None:
    threads = len(os.sched_getaffinity(0))
    with serving("web") as running, endless(ENDLESS) as (port, accepted), deciding() as decider:
        cluster.serve(
            checked("endless", {"auth-url": URL, "auth-response-headers": "X-User"}),
            checked("other", {"auth-url": "http://other.default.svc:4180/"}),
            *servers(running["web"], port),
            *servers(running["web"], decider, name="other"),
            libraries=LIBRARIES,
            externalAuthsPerNamespace=MOST,
        )

        # The header decides: neither memory nor time is spent on the rest.
        answers = [ask_for(cluster, "endless", 200) for _ in range(2 * MOST * threads)]
        assert {answer.status for answer in answers} == {200, 503}
        assert "x-user: joe" in answers[0].body
        # Each thread has its own limit, and the kernel decides which thread gets a connection.
        assert MOST <= len(accepted) <= MOST * threads


@pytest.mark.haproxy
def test_questions_of_a_namespace_leave_some_for_others(cluster: Cluster) -> None:
    threads = len(os.sched_getaffinity(0))
    attack = checked("attack", {"auth-url": "http://mute.attacker.svc:4180/"})
    attack["metadata"]["namespace"] = "attacker"
    with serving("web") as running, endless(b"") as (port, accepted), deciding() as decider:
        cluster.serve(
            checked("victim", {"auth-url": URL}),
            *servers(running["web"], decider),
            attack,
            *(
                {**one, "metadata": {**one["metadata"], "namespace": "attacker"}}
                for one in servers(running["web"], port, name="mute")
            ),
            libraries=LIBRARIES,
            externalAuthsPerNamespace=MOST,
        )

        answers = [ask_for(cluster, "attack", 200).status for _ in range(2 * MOST * threads)]
        # Each thread has its own limit, and the kernel decides which thread gets a connection.
        assert MOST <= answers.count(200) <= MOST * threads
        assert set(answers) == {200, 503}
        # Whichever thread these come to.
        assert {ask_for(cluster, "victim", 200).status for _ in range(16)} == {200}
        # What has ended leaves room.
        for connection in accepted:
            connection.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + 30
        while ask_for(cluster, "attack", 200).status != 200:
            assert time.monotonic() < deadline


@pytest.mark.haproxy
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nX-A: " + b"x" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: b\rX-User: root\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: b\0c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: b\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: b\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 102 + b"\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20 + b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 999 OK\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 200",
        b"200 OK\r\n\r\n",
        b"",
    ],
)
def test_an_answer_that_is_not_http_admits_no_request(cluster: Cluster, answer: bytes) -> None:
    with serving("web") as running, sending(answer) as port:
        cluster.serve(
            checked("odd", {"auth-url": URL, "auth-response-headers": "X-User"}),
            *servers(running["web"], port),
            libraries=LIBRARIES,
        )

        assert ask_for(cluster, "odd", 200).status == 503


@pytest.mark.haproxy
def test_interim_answers_and_bare_line_ends_are_understood(cluster: Cluster) -> None:
    text = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200\nx-USER:  joe \nX-Empty:\n\n"
    with serving("web") as running, sending(text) as port:
        cluster.serve(
            checked("odd", {"auth-url": URL, "auth-response-headers": "X-User,X-Empty"}),
            *servers(running["web"], port),
            libraries=LIBRARIES,
        )

        assert "x-user: joe" in ask_for(cluster, "odd", 200).body.split("\n")


@pytest.mark.haproxy
@pytest.mark.parametrize(
    # HAProxy 3.0 reads no header that is larger than its buffer.
    "value",
    [b"a" + b" " * 15_000 + b"b", b"\t" * 15_000, b"a\t" * 7_500],
    ids=["gap", "empty", "gaps"],
)
def test_blanks_in_an_answer_take_little_processor_time(cluster: Cluster, value: bytes) -> None:
    text = b"HTTP/1.1 401 No\r\nX-A: " + value + b"\r\n\r\n"
    with serving("web") as running, sending(text) as port:
        rendered = cluster.render(
            checked("odd", {"auth-url": URL}), *servers(running["web"], port), libraries=LIBRARIES
        )
        text_of_one_thread = rendered.text.replace("global\n", "global\n    nbthread 1\n", 1)
        with cluster.running(text_of_one_thread, rendered) as process:
            before = processor_seconds(process)
            status = ask_for(cluster, "odd", 200).status

            # Quadratic time would be about a second, and more with a larger buffer: the watchdog would end the process.
            assert processor_seconds(process) - before < MOST_SECONDS
            assert status == 401


@pytest.mark.haproxy
def test_long_interim_answers_take_little_processor_time(cluster: Cluster) -> None:
    line = b"X-A: " + b"a" * 400 + b"\r\n"
    interim = b"HTTP/1.1 103 Early Hints\r\n" + line * 70 + b"\r\n"
    with serving("web") as running, sending(interim * 7 + b"HTTP/1.1 200 OK\r\n\r\n") as port:
        rendered = cluster.render(
            checked("odd", {"auth-url": URL}), *servers(running["web"], port), libraries=LIBRARIES
        )
        text_of_one_thread = rendered.text.replace("global\n", "global\n    nbthread 1\n", 1)
        with cluster.running(text_of_one_thread, rendered) as process:
            before = processor_seconds(process)
            status = ask_for(cluster, "odd", 200).status

            # All of them would take 0.3 s.
            assert processor_seconds(process) - before < MOST_SECONDS / 3
            assert status == 503


@pytest.mark.haproxy
def test_a_path_of_special_characters_is_encoded_in_little_processor_time(cluster: Cluster) -> None:
    with serving("web") as running, deciding() as decider:
        rendered = cluster.render(
            checked("odd", {"auth-url": URL}), *servers(running["web"], decider), libraries=LIBRARIES
        )
        text_of_one_thread = rendered.text.replace("global\n", "global\n    nbthread 1\n", 1)
        with cluster.running(text_of_one_thread, rendered) as process:
            costs = []
            for _ in range(5):
                before = processor_seconds(process)
                exchange(cluster.http_port, f"GET /?{'!' * 14_000} HTTP/1.1", "Host: odd.example.com")
                costs.append(processor_seconds(process) - before)

            # A call for each character takes 14 ms.
            assert min(costs) < MOST_SECONDS / 30


@pytest.mark.haproxy
@pytest.mark.parametrize("length", [0, 15_500])
def test_a_header_of_nearly_the_greatest_size_is_read(cluster: Cluster, length: int) -> None:
    text = b"HTTP/1.1 401 No\r\nX-A: " + b"a" * length + b"\r\n\r\n"
    with serving("web") as running, sending(text) as port:
        cluster.serve(checked("odd", {"auth-url": URL}), *servers(running["web"], port), libraries=LIBRARIES)

        assert ask_for(cluster, "odd", 200).status == 401


@pytest.mark.haproxy
def test_very_many_headers_of_an_answer_and_names_take_little_processor_time(cluster: Cluster) -> None:
    names = ",".join(f"{first}{second:02}*" for first in string.ascii_lowercase for second in range(100))
    lines = b"".join(b"z%x:\r\n" % number for number in range(4_000))
    with serving("web") as running, sending(b"HTTP/1.1 200 OK\r\n" + lines + b"\r\n") as port:
        rendered = cluster.render(
            checked("odd", {"auth-url": URL, "auth-response-headers": names}),
            *servers(running["web"], port),
            libraries=LIBRARIES,
        )
        text_of_one_thread = rendered.text.replace("global\n", "global\n    nbthread 1\n", 1)
        with cluster.running(text_of_one_thread, rendered) as process:
            before = processor_seconds(process)
            status = ask_for(cluster, "odd", 200).status

            # Each header compared with each name would take more than a second.
            assert processor_seconds(process) - before < MOST_SECONDS
            assert status == 503


@pytest.mark.haproxy
@pytest.mark.parametrize("length", [b"1.5", b"-1", b"0x10", b"9" * 40, b"nan", b"", b"1e3"])
def test_an_odd_length_costs_no_place(cluster: Cluster, length: bytes) -> None:
    text = b"HTTP/1.1 200 OK\r\nContent-Length: " + length + b"\r\n\r\nbody"
    with serving("web") as running, sending(text) as port:
        cluster.serve(
            checked("odd", {"auth-url": URL}),
            *servers(running["web"], port),
            libraries=LIBRARIES,
            externalAuthsPerNamespace=MOST,
        )

        statuses = {ask_for(cluster, "odd", 200).status for _ in range(2 * MOST * len(os.sched_getaffinity(0)))}
        assert statuses == {200}


@contextmanager
def sending(answer: bytes) -> Iterator[int]:
    """Run a server that answers each connection with the same bytes and closes it; yields its port."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(65_536)
                    connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
