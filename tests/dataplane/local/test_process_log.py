"""Reasons why an HAProxy does not start, and the log about them."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from haptic_trio.dataplane.local.process_log import EXCERPT, ProcessLog, StartFailures, describe_load
from haptic_trio.logs import get_logger

NOTICES = "[NOTICE]   (7) : haproxy version is 2.8.25\n"
BINDING = (
    "[ALERT]    (7) : Binding [/s/haproxy.cfg:34] for frontend http: cannot bind socket (Address already in use) for"
    " [127.0.0.1:8080]\n[ALERT]    (7) : [/bin/haproxy.main()] Some protocols failed to start their listeners!\n"
)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (NOTICES + BINDING, "cannot bind 127.0.0.1:8080: Address already in use"),
        (f"{NOTICES}[ALERT]    (7) : config : no such map\n[ALERT]    (7) : Fatal\n", "no such map; Fatal"),
        (f"{NOTICES}[ALERT]    (7) : config : parsing [a.cfg:3] : no such file\n", "a.cfg:3: no such file"),
        ("haproxy has exited", "haproxy has exited"),
        (NOTICES, "haproxy gave no reason"),
    ],
)
def test_reason_is_in_one_line(output: str, reason: str) -> None:
    assert describe_load(output) == reason


def test_reason_quotes_no_value_of_the_configuration() -> None:
    output = (
        "[ALERT]    (7) : config : parsing [a.cfg:3] : 'http-request set-header' : unexpected 'S3CRET'\n  | S3CRET\n"
    )

    assert describe_load(output) == "a.cfg:3: 'http-request set-header' : unexpected '…'"


def test_a_line_that_is_cut_is_not_read(tmp_path: Path) -> None:
    log = ProcessLog(tmp_path / "haproxy.log")
    log.path.write_text(f"[ALERT]    (7) : unexpected '{'S3CRET ' * EXCERPT}'\n[NOTICE]   (7) : the end\n")

    assert log.read_since(0) == "[NOTICE]   (7) : the end"


def test_each_cause_is_an_error_once_until_a_start_succeeds() -> None:
    failures = StartFailures(get_logger("supervisor"))
    with capture_logs() as logs:
        for error in ("cannot bind", "cannot bind", "haproxy has exited"):
            failures.take(error)
        failures.end()
        failures.take("haproxy has exited")

    assert [line["log_level"] for line in logs] == ["error", "debug", "error", "error"]
