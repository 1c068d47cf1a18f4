"""Each Gateway gets an address of the pool and keeps it, and no two Gateways share a requested one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.gateway.listeners.addresses import BEYOND, Placement, place_gateways
from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered
from tests.gateway.objects import gateway, gateway_class
from tests.gateway.serving import render
from tests.support.components.succession import Succession

POOL = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


def placed(
    *names: str, states: dict[str, str] | None = None, most: int = 9, **asked: list[dict[str, str]]
) -> dict[str, Placement]:
    """Return where Gateways *names*, the oldest first, are, given what their status says and what they ask for."""
    gateways = [
        aged(number, gateway(name, **({"addresses": asked[name]} if name in asked else {})))
        for number, name in enumerate(names)
    ]
    had: dict[tuple[str, str], Any] = {
        ("web", name): {"addresses": [{"value": address} for address in addresses.split()]}
        for name, addresses in (states or {}).items()
    }
    return {name: found for (_, name), found in place_gateways(gateways, POOL, had, most).items()}


def aged(number: int, one: Resource) -> Resource:
    return {**one, "metadata": {**one["metadata"], "creationTimestamp": f"2026-01-01T00:00:{number:02}Z"}}


def values(*addresses: str) -> list[dict[str, str]]:
    return [{"type": "IPAddress", "value": address} for address in addresses]


@given(st.permutations(["a", "b", "c", "d"]), st.integers(0, 4))
def test_an_address_stays_while_other_gateways_come_and_go(names: list[str], count: int) -> None:
    before = placed(*names[:count])
    states = {name: found.addresses[0] for name, found in before.items() if found.addresses}

    after = placed(*names[1:], states={name: address for name, address in states.items() if name in names[1:]})

    kept = {name: after[name].addresses for name in states if name in after}
    assert kept == {name: (states[name],) for name in kept}
    given_out = [address for found in after.values() for address in found.addresses]
    assert len(set(given_out)) == len(given_out) == min(len(after), len(POOL))


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")], ids=["the holder is older", "the holder is younger"])
def test_no_gateway_takes_an_address_from_its_holder_by_asking_for_it(names: tuple[str, ...]) -> None:
    found = placed(*names, states={"a": "10.0.0.2", "b": "10.0.0.1"}, b=values("10.0.0.2"))

    assert found["a"] == Placement(addresses=("10.0.0.2",))
    assert found["b"].addresses == ()
    assert found["b"].unusable == "10.0.0.2 is not an address of the pool, or another Gateway has it"


def test_a_holder_that_asks_for_its_address_keeps_it_and_one_that_asks_for_others_frees_it() -> None:
    states = {"a": "10.0.0.1", "b": "10.0.0.2 10.0.0.3"}

    kept = placed("a", "b", states=states, a=values("10.0.0.3"), b=values("10.0.0.3", "10.0.0.1"))
    assert (kept["a"].addresses, kept["b"].addresses) == ((), ("10.0.0.3", "10.0.0.1"))

    found = placed("a", "b", "c", states=states, b=[{"type": "Hostname", "value": "10.0.0.2"}], c=values("10.0.0.2"))
    assert (found["b"].unsupported, found["c"].addresses) == ("Hostname", ("10.0.0.2",))


def test_of_two_gateways_whose_statuses_have_one_address_the_older_one_keeps_it() -> None:
    found = placed("a", "b", states={"a": "10.0.0.2", "b": "10.0.0.2"}, b=values("10.0.0.2"))

    assert (found["a"].addresses, found["b"].addresses) == (("10.0.0.2",), ())


def test_a_gateway_that_was_of_another_class_takes_no_address_that_another_one_has_got_since() -> None:
    def written(one: Resource, generation: int) -> Resource:
        status = {
            "addresses": [{"type": "IPAddress", "value": "10.0.0.1"}],
            "conditions": [{"type": "Programmed", "status": "True", "observedGeneration": 1}],
        }
        return {**one, "metadata": {**one["metadata"], "generation": generation}, "status": status}

    # Each of the two changes of the class is another generation.
    back = written(aged(1, gateway("back")), 3)
    holder = written(aged(2, gateway("holder")), 1)

    for gateways in ([back, holder], [holder, back]):
        text = render(*gateways, gatewayAddresses=POOL).text
        (frontend,) = (part for part in text.split("\nfrontend ") if "bind 10.0.0.1:80" in part)
        assert frontend.startswith("gateway-port::web_holder_80")
        # The other one gets a free address.
        assert "bind 10.0.0.2:80" in text


@pytest.mark.parametrize("asked", [values("10.0.0.2"), values("10.0.0.1", "10.0.0.2")])
def test_a_rejected_gateway_that_requests_other_addresses_keeps_none_by_its_last_good_version(asked: Any) -> None:
    def of(namespace: str, version: int, address: str, asked: Any = (), **annotations: str) -> Resource:
        one = aged(len(namespace), gateway("gw", **({"addresses": asked} if asked else {})))
        own = {"namespace": namespace, "resourceVersion": str(version), "annotations": annotations, "uid": namespace}
        status = {"addresses": [{"type": "IPAddress", "value": address}]} if address else {}
        return {**one, "metadata": {**one["metadata"], **own}, "status": status}

    def frontend_at(rendered: Rendered, address: str) -> list[str]:
        sections = rendered.text.split("\nfrontend ")[1:]
        return [section.split()[0] for section in sections if f"    bind {address}:80" in section]

    broken = {"haptic-trio/connections-per-client": "none"}
    controller = Succession(("base", "ssl", "gateway"), gatewayAddresses=POOL[:2])
    controller.render(gateway_class(), of("evil", 1, ""))
    controller.render(of("evil", 2, "10.0.0.1"))
    # Its last good version is served where the present one is to be.
    for same in ((), values("10.0.0.1")):
        rendered = controller.render(of("evil", 3, "10.0.0.1", same, **broken))
        assert frontend_at(rendered, "10.0.0.1") == ["gateway-port::evil_gw_80"]

    controller.render(of("evil", 4, "10.0.0.2", asked, **broken), of("victim", 5, ""))
    rendered = controller.render(of("victim", 6, "10.0.0.1"))

    assert frontend_at(rendered, "10.0.0.2") == []
    assert [str(one.subject) for one in rendered.rejections] == ["Gateway evil/gw"]
    assert frontend_at(rendered, "10.0.0.1") == ["gateway-port::victim_gw_80"]


def test_a_free_address_goes_to_the_oldest_gateway_that_asks_for_it() -> None:
    found = placed("a", "b", "c", b=values("10.0.0.1"), c=values("10.0.0.1"))

    assert [found[name].addresses for name in "abc"] == [("10.0.0.2",), ("10.0.0.1",), ()]


@given(
    st.lists(
        st.tuples(st.sampled_from(["", *POOL]), st.lists(st.sampled_from(POOL), max_size=2)), min_size=1, max_size=5
    ),
    st.lists(st.sampled_from(POOL), max_size=3),
    st.integers(0, 5),
)
def test_a_new_gateway_of_any_age_changes_no_placement(
    gateways: list[tuple[str, list[str]]], asked: list[str], position: int
) -> None:
    asking: dict[str, Any] = {
        f"g{number}": values(*addresses) for number, (_, addresses) in enumerate(gateways) if addresses
    }
    had = {f"g{number}": address for number, (address, _) in enumerate(gateways) if address}
    names = [f"g{number}" for number in range(len(gateways))]
    before = placed(*names, states=had, **asking)
    states = {name: " ".join(found.addresses) for name, found in before.items()}

    after = placed(*names[:position], "new", *names[position:], states=states, new=values(*asked), **asking)

    assert all(set(after[name].addresses) >= set(before[name].addresses) for name in names)


def test_a_namespace_gets_a_limited_number_of_addresses_and_leaves_the_others() -> None:
    greedy = placed("a", most=2, a=values(*POOL))["a"]
    assert greedy.addresses == ("10.0.0.1", "10.0.0.2")
    assert greedy.unusable == f"10.0.0.3: {BEYOND}"

    found = placed("a", "b", "c", most=2)
    assert [found[name].addresses for name in "abc"] == [("10.0.0.1",), ("10.0.0.2",), ()]
    assert found["c"].unusable == BEYOND

    other = aged(9, gateway("d"))
    other["metadata"]["namespace"] = "other"
    all_of_them = [*(aged(number, gateway(name)) for number, name in enumerate("abc")), other]
    assert place_gateways(all_of_them, POOL, {}, 2)["other", "d"].addresses == ("10.0.0.3",)


def test_an_address_beyond_the_limit_is_kept_and_counts() -> None:
    found = placed("a", "b", "c", most=1, states={"b": "10.0.0.1", "c": "10.0.0.2"})

    assert [found[name].addresses for name in "abc"] == [(), ("10.0.0.1",), ("10.0.0.2",)]


def test_gateways_that_were_of_another_class_come_back_with_no_more_addresses_than_their_namespace_may_have() -> None:
    def with_address(number: int, generation: int) -> Resource:
        one = aged(number, gateway(f"g{number}"))
        status = {
            "addresses": [{"type": "IPAddress", "value": f"10.0.0.{number}"}],
            "conditions": [{"type": "Programmed", "status": "True", "observedGeneration": 1}],
        }
        return {**one, "metadata": {**one["metadata"], "generation": generation}, "status": status}

    def addresses(*gateways: Resource) -> list[str]:
        text = render(*gateways, gatewayAddresses=POOL, gatewayAddressesPerNamespace=1).text
        return [line.split()[1] for line in text.split("\n") if line.strip().startswith("bind 10.")]

    # The younger one has got an address while the older one was of another class.
    assert addresses(with_address(1, 3), with_address(2, 1)) == ["10.0.0.2:80"]
    # The limit was lowered: addresses that Gateways have had all the time, and have by their present status, stay.
    assert addresses(with_address(1, 2), with_address(2, 1)) == ["10.0.0.1:80", "10.0.0.2:80"]


def test_gateways_without_an_address_are_not_served_and_their_owners_are_warned() -> None:
    gateways = [gateway("a"), gateway("b"), gateway("c", addresses=[{"type": "Hostname", "value": "c.test"}])]

    rendered = render(*gateways, gatewayAddresses=POOL, gatewayAddressesPerNamespace=1)

    assert "bind 10.0.0.1:80" in rendered.text
    assert rendered.text.count("\nfrontend gateway-port::") == 1
    assert {str(one.subject): one.message for one in rendered.warnings if one.reason == "AddressNotAssigned"} == {
        "Gateway web/b": BEYOND,
        "Gateway web/c": "spec.addresses: the type Hostname is not supported; use IPAddress",
    }


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
