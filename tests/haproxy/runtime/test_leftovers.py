"""Servers that are wanted again while the process still has them."""

import pytest

from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import make_generation
from haptic_trio.haproxy.plan.capabilities import capabilities_of
from haptic_trio.haproxy.plan.operations import (
    AddServer,
    DeleteBackend,
    DeleteServer,
    EnableChecks,
    Operation,
    Removal,
    SetServerAddress,
    SetServerState,
    SetServerWeight,
)
from haptic_trio.haproxy.runtime.leftovers import Leftover, note_leftovers, revive

TEXT = """\
defaults d
  mode http
  default-server maxconn 5
backend app from d
  server s1 10.0.0.1:80 weight 3 check
  server s2 example.org:80
"""
REMOVAL = DeleteServer("app", "s1")
OPTIONS = ("maxconn", "5", "weight", "3", "check")


def test_what_is_left_over_keeps_the_settings_that_it_had() -> None:
    former = make_generation(parse_config(TEXT), ())
    removals: list[Removal] = [REMOVAL, DeleteServer("app", "s2"), DeleteServer("app", "s3"), DeleteBackend("app")]

    noted = note_leftovers(removals, former, capabilities_of((2, 8)))

    assert [one.removal for one in noted] == removals
    assert [one.options for one in noted] == [OPTIONS, None, None, None]
    assert note_leftovers([REMOVAL], None, capabilities_of((2, 8))) == (Leftover(REMOVAL),)


READY, CHECKS = SetServerState("app", "s1", "ready"), EnableChecks("app", "s1")


@pytest.mark.parametrize(
    ("options", "weight"), [(OPTIONS, 3), (("check", "maxconn", "5", "weight", "9"), 9), (("maxconn", "5", "check"), 1)]
)
def test_a_server_with_the_settings_that_it_had_is_revived(options: tuple[str, ...], weight: int) -> None:
    other = Leftover(DeleteServer("app", "s9"), ())
    operations: list[Operation] = [AddServer("app", "s1", "[::1]:81", options), READY, CHECKS]

    done, left = revive(operations, [Leftover(REMOVAL, OPTIONS), other])

    assert done == (SetServerAddress("app", "s1", "::1", 81), SetServerWeight("app", "s1", weight), READY, CHECKS)
    assert left == (other,)


@pytest.mark.parametrize(
    ("had", "wanted"),
    [
        (None, ()),
        (("check",), ()),
        ((), ("check",)),
        (("maxconn", "5"), ("maxconn", "6")),
        (("backup",), ("backup",)),
    ],
)
def test_a_server_with_other_settings_is_left_for_the_process_to_reject(
    had: tuple[str, ...] | None, wanted: tuple[str, ...]
) -> None:
    operations, leftovers = (AddServer("app", "s1", "10.0.0.1:80", wanted), READY), (Leftover(REMOVAL, had),)
    assert revive(operations, leftovers) == (operations, leftovers)
