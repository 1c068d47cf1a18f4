"""Ingresses of the managed classes get the addresses of the load balancer or external ones."""

from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.status.ingress import Addresses, IngressClaim, IngressStatus, addresses_of
from tests.support.kubernetes import ingress, ingress_class, service

CLAIM = IngressClaim(class_name="haptic", controller="us/controller", without_class=False)
CLASSES = [ingress_class("other", "them/controller"), ingress_class("more", "us/controller")]
OLD = "kubernetes.io/ingress.class"


@pytest.mark.parametrize(
    ("resource", "own"),
    [
        (ingress("a"), True),
        (ingress("a", ingress_class="more"), True),
        (ingress("a", ingress_class="other"), False),
        (ingress("a", ingress_class="unknown"), False),
        (ingress("a", ingress_class=None), False),
        (ingress("a", ingress_class=None, annotations={OLD: "haptic"}), True),
        (ingress("a", ingress_class="other", annotations={OLD: "haptic"}), False),
        ({"metadata": {"name": "a"}, "spec": None}, False),
    ],
)
def test_ingress_is_managed_by_the_name_of_its_class_or_its_controller(resource: Resource, own: bool) -> None:
    assert CLAIM.covers(resource, CLASSES) is own


@pytest.mark.parametrize(
    ("default", "own"),
    [
        (ingress_class("haptic", "x", default=True), True),
        (ingress_class("any", "us/controller", default=True), True),
        (ingress_class("any", "x", default=True), False),
        (ingress_class("haptic", "us/controller"), False),
    ],
)
def test_ingress_without_class_is_managed_while_the_class_is_the_default(default: Resource, own: bool) -> None:
    assert CLAIM.covers(ingress("a", ingress_class=None), [*CLASSES, default]) is own


def test_ingress_without_class_is_managed_if_configured() -> None:
    claim = IngressClaim(class_name="haptic", controller="us/controller", without_class=True)

    assert claim.covers(ingress("a", ingress_class=None), [])
    assert not claim.covers(ingress("a", ingress_class="other"), CLASSES)


@pytest.mark.parametrize(
    ("found", "entries"),
    [
        (None, ()),
        (service("a"), ()),
        (service("a", externalIPs=["192.0.2.1"]), ("192.0.2.1",)),
        (
            service("a", externalIPs=["192.0.2.1"])
            | {
                "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7", "ipMode": "VIP"}, {"hostname": "lb.test"}]}}
            },
            ("192.0.2.7", "lb.test"),
        ),
    ],
)
def test_addresses_are_those_of_the_load_balancer_else_external_ones(
    found: Resource | None, entries: tuple[str, ...]
) -> None:
    assert addresses_of(found).entries == entries


def status(*entries: str) -> IngressStatus:
    return IngressStatus(
        CLAIM, store="ingresses", class_store="classes", classes=lambda: CLASSES, addresses=lambda: Addresses(entries)
    )


def test_managed_ingresses_get_addresses_and_host_names_in_order() -> None:
    wanted: Any = status("192.0.2.7", "fd00::7", "lb.test").wanted(ingress("a"))

    assert wanted == {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}, {"ip": "fd00::7"}, {"hostname": "lb.test"}]}}
    assert status("192.0.2.7").wanted(ingress("a", ingress_class="other")) is None


def test_only_own_addresses_are_left_over() -> None:
    theirs = ingress("a", ingress_class="other") | {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}}

    assert status("192.0.2.7").is_left_over(theirs)
    assert not status("192.0.2.8").is_left_over(theirs)
    assert not status().is_left_over(ingress("a"))


def test_no_status_is_wanted_before_the_addresses_are_known() -> None:
    source = IngressStatus(CLAIM, store="a", class_store="b", classes=lambda: (), addresses=lambda: None)

    assert not source.is_ready
