"""The log about an HAProxy that does not start."""

import pytest
from structlog.testing import capture_logs

from haptic_trio.dataplane.local.process_log import StartFailures
from haptic_trio.logs import get_logger

NOTICES = "[NOTICE]   (7) : haproxy version is 2.8.25\n"
BINDING = (
    "[ALERT]    (7) : Binding [/s/haproxy.cfg:34] for frontend http: cannot bind socket (Address already in use) for"
    " [127.0.0.1:8080]\n[ALERT]    (7) : [/bin/haproxy.main()] Some protocols failed to start their listeners!\n"
)


BOUND = (
    "Binding [/s/haproxy.cfg:34] for frontend http: cannot bind socket (Address already in use) for [127.0.0.1:8080]"
)


@pytest.mark.parametrize(
    ("output", "error"),
    [
        (NOTICES + BINDING, BOUND),
        (f"{NOTICES}[ALERT]    (7) : config : no such map\n[ALERT]    (7) : Fatal\n", "config : no such map; Fatal"),
        ("haproxy has exited", "haproxy has exited"),
    ],
)
def test_cause_is_in_one_line(output: str, error: str) -> None:
    with capture_logs() as logs:
        StartFailures(get_logger("supervisor")).take(output)

    assert [(line["log_level"], line["error"]) for line in logs] == [("error", error)]


def test_each_cause_is_an_error_once_until_a_start_succeeds() -> None:
    failures = StartFailures(get_logger("supervisor"))
    with capture_logs() as logs:
        for pid in ("(7)", "(8)"):
            failures.take((NOTICES + BINDING).replace("(7)", pid))
        failures.take("haproxy has exited")
        failures.end()
        failures.take("haproxy has exited")

    assert [line["log_level"] for line in logs] == ["error", "debug", "error", "error"]
