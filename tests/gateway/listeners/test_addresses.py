"""Each Gateway gets an address of the pool and keeps it, and no two Gateways share a requested one."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.gateway.listeners.addresses import Placement, place_gateways
from tests.gateway.objects import gateway

POOL = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


def placed(*names: str, states: dict[str, str] | None = None, **asked: list[dict[str, str]]) -> dict[str, Placement]:
    """Return where Gateways *names* are, given what their status says and what they ask for."""
    gateways = [gateway(name, **({"addresses": asked[name]} if name in asked else {})) for name in names]
    had: dict[tuple[str, str], Any] = {
        ("web", name): {"addresses": [{"value": address}]} for name, address in (states or {}).items()
    }
    return {name: found for (_, name), found in place_gateways(gateways, POOL, had).items()}


@given(st.permutations(["a", "b", "c", "d"]), st.integers(0, 4))
def test_an_address_stays_while_other_gateways_come_and_go(names: list[str], count: int) -> None:
    before = placed(*names[:count])
    states = {name: found.addresses[0] for name, found in before.items() if found.addresses}

    after = placed(*names[1:], states={name: address for name, address in states.items() if name in names[1:]})

    kept = {name: after[name].addresses for name in states if name in after}
    assert kept == {name: (states[name],) for name in kept}
    given_out = [address for found in after.values() for address in found.addresses]
    assert len(set(given_out)) == len(given_out) == min(len(after), len(POOL))


def test_an_address_that_is_asked_for_goes_before_one_that_another_has_had() -> None:
    found = placed("a", "b", states={"a": "10.0.0.2"}, b=[{"type": "IPAddress", "value": "10.0.0.2"}])

    assert found["b"].addresses == ("10.0.0.2",)
    assert found["a"].addresses == ("10.0.0.1",)


def test_an_unavailable_address_has_a_reason() -> None:
    found = placed(
        *("a", "b", "c"),
        a=[{"type": "Hostname", "value": "a.example.com"}],
        b=[{"value": "192.0.2.1"}, {"value": "10.0.0.3"}],
        c=[{"type": "IPAddress"}],
    )

    assert found["a"].unsupported == "Hostname"
    assert found["b"].addresses == ("10.0.0.3",)
    assert "192.0.2.1" in found["b"].unusable
    assert found["c"] == Placement(addresses=("10.0.0.1",))


def test_two_gateways_that_ask_for_one_address_do_not_share_it() -> None:
    same = [{"value": "10.0.0.1"}]

    found = placed("a", "b", a=same, b=same)

    assert (found["a"].addresses, found["b"].addresses) == (("10.0.0.1",), ())
    assert found["b"].unusable
