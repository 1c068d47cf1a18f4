"""Addresses that HAProxy could not listen on are left out, and tried again later and later."""

from functools import partial
from itertools import pairwise
from typing import Any

import structlog
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from haptic_trio.channels import Change
from haptic_trio.dataplane.endpoint import PortsUnavailableError, UnboundAddress
from haptic_trio.deployment.taken_ports import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MOST_ADDRESSES,
    TakenPorts,
    listening_settings,
    run_taken_ports,
)
from haptic_trio.gateway.listeners.port_rules import TAKEN_PORTS
from haptic_trio.k8s.store import Store
from haptic_trio.messages import ResourceChanged


def address(port: int, host: str = "0.0.0.0") -> UnboundAddress:
    return UnboundAddress(host, port, "Address already in use")


def ports(taken: TakenPorts) -> list[str]:
    return [entry["spec"]["port"] for entry in taken.objects()]


def test_an_address_is_left_out_for_a_pause_that_doubles() -> None:
    taken, now, pauses = TakenPorts(), 0.0, []
    for _ in range(10):
        assert taken.note([address(80)], now) == [address(80)]
        assert ports(taken) == ["80"]
        due = taken.due()
        assert due is not None
        pauses.append(due - now)
        taken.retry(due - 0.01)
        assert ports(taken) == ["80"]
        now = due
        taken.retry(now)
        assert ports(taken) == []

    assert pauses[:4] == [FIRST_PAUSE * factor for factor in (1, 2, 4, 8)]
    assert pauses[-1] == LONGEST_PAUSE


def test_what_several_endpoints_report_counts_once() -> None:
    taken = TakenPorts()
    taken.note([address(80)], 0)

    assert taken.note([address(80)], 1) == []
    assert taken.due() == FIRST_PAUSE


def test_an_address_that_has_not_failed_again_is_forgotten() -> None:
    taken = TakenPorts()
    taken.note([address(80)], 0)
    taken.retry(FIRST_PAUSE)
    due = taken.due()
    assert due is not None
    taken.retry(due)

    assert taken.due() is None
    taken.note([address(80)], due)
    assert taken.due() == due + FIRST_PAUSE


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 20)), max_size=60))
def test_retries_of_many_addresses_come_together(notes: list[tuple[int, float]]) -> None:
    taken, now = TakenPorts(), 0.0
    retries: list[float] = []
    for port, pause in notes:
        end = now + pause
        while (due := taken.due()) is not None and due <= end:
            now = max(now, due)
            before = ports(taken)
            taken.retry(now)
            if ports(taken) != before:
                retries.append(now)
                # The processes that hold the ports still do.
                taken.note(map(address, map(int, before)), now)
        now = end
        taken.note([address(port)], now)
    assert all(later - earlier >= FIRST_PAUSE for earlier, later in pairwise(retries))


def test_how_much_is_remembered_is_bounded() -> None:
    taken = TakenPorts()
    taken.note([address(port, f"10.0.0.{host}") for host in range(1, 4) for port in range(1, 10_000)], 0)

    assert len(taken.objects()) == MOST_ADDRESSES


async def test_the_store_follows_and_its_changes_are_announced(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    changes_in, changes_out = trio.open_memory_channel[Change](5)
    store, taken = Store(TAKEN_PORTS, ("spec.port",)), TakenPorts()
    taken.note([address(90)], trio.current_time())
    await nursery.start(partial(run_taken_ports, changes_in, store, taken=taken))
    # An iteration begins with what the one before has found out.
    assert found(store) == ["90"]

    taken.report(PortsUnavailableError("local-1", (address(80), address(81))))
    change = await changes_out.receive()
    assert isinstance(change, ResourceChanged)
    assert (change.stores, len(change.refs)) == ((TAKEN_PORTS,), 2)
    assert found(store) == ["80", "81", "90"]
    assert [entry["spec"]["host"] for entry in store.get("80")] == ["0.0.0.0"]

    await changes_out.receive()
    assert found(store) == []
    assert trio.current_time() <= 2 * FIRST_PAUSE


def found(store: Store) -> list[Any]:
    return [entry["spec"]["port"] for entry in store.list()]


async def test_port_of_a_setting_is_one_error_that_names_the_setting() -> None:
    taken = TakenPorts()
    taken.settings = listening_settings({"httpPort": 80, "httpsPort": 8443, "metricsPort": 0, "sslRedirectPort": 443})
    denied = UnboundAddress("0.0.0.0", 80, "Permission denied")
    absent = UnboundAddress("192.0.2.1", 80, "Cannot assign requested address")
    errors = (address(8443, "127.0.0.1"), denied, address(9000), absent)

    with structlog.testing.capture_logs() as lines:
        taken.report(PortsUnavailableError("local-1", errors))
        taken.report(PortsUnavailableError("local-1", errors))

    assert [(line["log_level"], line["address"], line.get("setting")) for line in lines] == [
        ("error", "127.0.0.1:8443", "templating.extraContext.httpsPort"),
        ("error", "0.0.0.0:80", "templating.extraContext.httpPort"),
        ("warning", "0.0.0.0:9000", None),
        ("error", "192.0.2.1:80", "templating.extraContext.httpPort"),
    ]
    assert "change the setting" in lines[0]["fix"]
    assert "CAP_NET_BIND_SERVICE" in lines[1]["fix"]
    assert "set templating.extraContext.bindAddress to an address of this machine" in lines[3]["fix"]
