"""The status of a BackendTLSPolicy names the Gateways that lead to its Service, or the reason for its rejection."""

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.status.gateway import PolicyStatus
from haptic_trio.validation_tests.live.certificates import issue
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, made, route, rule, service, stores_of
from tests.status.test_gateway import NOW, verdicts


def test_a_policy_names_the_gateways_before_its_service() -> None:
    def policy(name: str, created: str, reference: dict[str, str]) -> Resource:
        target = {"group": "", "kind": "Service", "name": "app"}
        validation = {"hostname": "app.test", "caCertificateRefs": [{"group": "", "name": "ca", **reference}]}
        found = made("BackendTLSPolicy", name, spec={"targetRefs": [target], "validation": validation})
        found["metadata"]["creationTimestamp"] = created
        return found

    authority = made("ConfigMap", "ca", version="v1", data={"ca.crt": issue(("ca.test",)).chain})
    old = policy("old", "2026-01-01T00:00:00Z", {"kind": "ConfigMap"})
    young = policy("young", "2026-01-02T00:00:00Z", {"kind": "ConfigMap"})
    wrong = policy("wrong", "2025-01-01T00:00:00Z", {"kind": "Secret"})

    def found(one: Resource, *others: Resource) -> dict[str, tuple[str, str]]:
        stores = stores_of(gateway_class(), gateway(), service(), route("r", rule()), authority, one, *others)
        wanted = PolicyStatus(stores, CONTROLLER, clock=lambda: NOW).wanted(one)
        assert wanted is not None
        (entry,) = wanted["ancestors"]
        assert entry["ancestorRef"]["name"] == "gw"
        return verdicts(entry["conditions"])

    assert found(old, young) == {"Accepted": ("True", "Accepted"), "ResolvedRefs": ("True", "ResolvedRefs")}
    assert found(young, old)["Accepted"] == ("False", "Conflicted")
    assert found(wrong) == {
        "Accepted": ("False", "NoValidCACertificate"),
        "ResolvedRefs": ("False", "InvalidKind"),
    }


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ({"name": "app"}, "Accepted"),
        ({"name": "app", "sectionName": "web"}, "Accepted"),
        ({"name": "app", "sectionName": "gone"}, "TargetNotFound"),
        ({"name": "gone"}, "TargetNotFound"),
    ],
)
def test_a_policy_for_what_is_not_there_says_so(target: dict[str, str], reason: str) -> None:
    validation = {"hostname": "app.test", "wellKnownCACertificates": "System"}
    found = {"group": "", "kind": "Service", **target}
    one = made("BackendTLSPolicy", "p", spec={"targetRefs": [found], "validation": validation})
    to_both = rule(backendRefs=[{"name": "app", "port": 80}, {"name": "gone", "port": 80}])
    stores = stores_of(
        gateway_class(),
        gateway(),
        made("Service", "app", version="v1", spec={"ports": [{"port": 80, "name": "web"}]}),
        route("r", to_both),
        one,
    )

    source = PolicyStatus(stores, CONTROLLER, clock=lambda: NOW)
    wanted = source.wanted(one)

    assert wanted is not None
    assert verdicts(wanted["ancestors"][0]["conditions"])["Accepted"][1] == reason
    assert "services" in source.inputs


def test_gateways_of_routes_that_may_not_name_the_service_are_no_ancestors() -> None:
    validation = {"hostname": "app.test", "wellKnownCACertificates": "System"}
    target = {"group": "", "kind": "Service", "name": "app"}
    one = made("BackendTLSPolicy", "p", spec={"targetRefs": [target], "validation": validation})
    foreign = rule(backendRefs=[{"name": "app", "namespace": "web", "port": 80}])
    strangers = [
        {**gateway(f"gw{number}"), "metadata": {"name": f"gw{number}", "namespace": "attacker"}} for number in range(20)
    ]
    routes = [
        route(f"r{number}", foreign, namespace="attacker", parents=[{"name": f"gw{number}"}]) for number in range(20)
    ]
    stores = stores_of(gateway_class(), gateway(), service(), route("r", rule()), one, *strangers, *routes)

    wanted = PolicyStatus(stores, CONTROLLER, clock=lambda: NOW).wanted(one)

    assert wanted is not None
    assert [entry["ancestorRef"]["namespace"] for entry in wanted["ancestors"]] == ["web"]
