"""The controller's rights: all that it needs, and nothing else."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import trio

from haptic_trio.config.load import load_config
from haptic_trio.k8s.resource import Resource
from tests.chart.support.operations import EVENTS, LEASES, Operation, denied, is_allowed, needed_operations
from tests.chart.support.rendering import NAMESPACE, RELEASE, VALUE_SETS, Helm, find
from tests.cluster.workloads.client import Cluster, until

pytestmark = pytest.mark.cluster
LIMIT = 90.0
NAME = f"{RELEASE}-haptic-trio"
KINDS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
RULES = (
    "ClusterRole /secrets",
    "ClusterRole /services",
    "ClusterRole discovery.k8s.io/endpointslices",
    "ClusterRole events.k8s.io/events",
    "ClusterRole networking.k8s.io/ingressclasses",
    "ClusterRole networking.k8s.io/ingresses",
    "ClusterRole networking.k8s.io/ingresses/status",
    "Role /configmaps by name",
    "Role /pods",
    "Role coordination.k8s.io/leases",
    "Role coordination.k8s.io/leases by name",
)


def name_of(role: Resource, rule: dict[str, Any]) -> str:
    (group,), (resource,) = rule["apiGroups"], rule["resources"]
    return f"{role['kind']} {group}/{resource}{' by name' if 'resourceNames' in rule else ''}"


def each_rule(objects: list[Resource]) -> Iterator[tuple[str, Resource, int]]:
    """Return name, role, and place in it of each rule."""
    for role in objects:
        if role["kind"] in {"ClusterRole", "Role"}:
            for place, rule in enumerate(role["rules"]):
                yield name_of(role, rule), role, place


class Rights:
    """A release of which an API server has the account and its roles only."""

    def __init__(self, cluster: Cluster, objects: list[Resource], namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.objects = [each for each in objects if each["kind"] in KINDS]
        account = find(objects, "ServiceAccount", "-controller")
        self.account = {**account, "metadata": {**account["metadata"], "namespace": namespace}}
        config = load_config(find(objects, "ConfigMap"), None).config
        self.needed = needed_operations(config, NAME, namespace)

    async def grant(self) -> None:
        """Apply everything; return when nothing that is needed is denied."""
        for name in {each["metadata"].get("namespace", self.namespace) for each in self.objects} - {self.namespace}:
            await self.cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}])
        await self.cluster.apply(self.objects, self.namespace)

        async def all_granted() -> bool:
            return not await denied(self.cluster, self.account, self.needed)

        await until(all_granted)

    async def missing_after(self, role: Resource) -> list[Operation]:
        """Apply *role* as it is here; return what that denies."""
        await self.cluster.apply([role], self.namespace)
        await until(lambda: denied(self.cluster, self.account, self.needed))
        # The server may have learnt of it halfway through the questions.
        return await denied(self.cluster, self.account, self.needed)


@pytest.mark.parametrize("values", ["default", "one-team", "gateway", "fleet", "two-namespaces"])
async def test_the_role_allows_all_that_the_controller_asks_for(
    cluster: Cluster, helm: Helm, namespace: str, values: str
) -> None:
    rights = Rights(cluster, helm.render(values, namespace=namespace), namespace)
    with trio.move_on_after(LIMIT) as scope:
        await rights.grant()

    assert not scope.cancelled_caught, await denied(cluster, rights.account, rights.needed)


def granted_operations(objects: list[Resource], namespace: str) -> set[Operation]:
    """Return what the roles of the chart allow, with an empty namespace for what they allow everywhere."""
    return {
        Operation(verb, f"{rule['apiGroups'][0]}/{rule['resources'][0]}", place, name)
        for role in objects
        if role["kind"] in {"ClusterRole", "Role"}
        for place in ["" if role["kind"] == "ClusterRole" else role["metadata"].get("namespace", namespace)]
        for rule in role["rules"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def is_covered(operation: Operation, others: set[Operation]) -> bool:
    """Return whether one of *others* allows *operation*: everywhere, or under any name."""
    verb, resource, place, name = operation.verb, operation.resource, operation.namespace, operation.name
    return any(Operation(verb, resource, p, n) in others for p in {place, ""} for n in {name, ""})


@pytest.mark.parametrize("values", VALUE_SETS)
def test_the_role_is_what_is_needed_and_each_of_its_verbs_is(helm: Helm, values: str) -> None:
    objects = helm.render(values)
    needed = set(needed_operations(load_config(find(objects, "ConfigMap"), None).config, NAME, NAMESPACE))
    granted = granted_operations(objects, NAMESPACE)

    assert [each for each in needed if not is_covered(each, granted)] == []
    assert [each for each in granted if each not in needed] == []


def test_every_rule_has_a_check(helm: Helm) -> None:
    assert sorted(name for name, _, _ in each_rule(helm.render())) == list(RULES)


@pytest.mark.parametrize("rule", RULES)
async def test_without_a_rule_or_one_of_its_verbs_something_is_denied(
    cluster: Cluster, helm: Helm, namespace: str, rule: str
) -> None:
    objects = helm.render(namespace=namespace)
    rights = Rights(cluster, objects, namespace)
    ((_, role, place),) = [found for found in each_rule(objects) if found[0] == rule]
    with trio.fail_after(LIMIT):
        await rights.grant()
        verbs = role["rules"][place]["verbs"]
        less = deepcopy(role)
        del less["rules"][place]
        missing = await rights.missing_after(less)
        assert {(each.verb, each.resource) for each in missing} == {(verb, rule.split()[1]) for verb in verbs}
        for verb in verbs if len(verbs) > 1 else ():
            await rights.grant()
            less = deepcopy(role)
            less["rules"][place]["verbs"].remove(verb)
            missing = await rights.missing_after(less)
            assert {(each.verb, each.resource) for each in missing} == {(verb, rule.split()[1])}


async def test_the_role_allows_nothing_beside_that(cluster: Cluster, helm: Helm, namespace: str) -> None:
    rights = Rights(cluster, helm.render(namespace=namespace), namespace)
    rejected = [
        *[Operation(verb, "/secrets", namespace) for verb in ("get", "create", "update", "patch", "delete")],
        *[Operation(verb, "/configmaps", namespace) for verb in ("list", "watch", "create")],
        *[Operation(verb, "/configmaps", namespace, NAME) for verb in ("get", "update", "patch", "delete")],
        *[Operation(verb, "/pods", namespace) for verb in ("get", "create", "patch", "delete")],
        *[Operation(verb, "/pods/exec", namespace) for verb in ("get", "create")],
        Operation("list", "/pods", "default"),
        *[Operation(verb, LEASES, namespace, "another") for verb in ("get", "update", "delete")],
        *[Operation(verb, LEASES, "default", f"{NAME}-leader") for verb in ("get", "create", "update")],
        *[Operation(verb, "networking.k8s.io/ingresses", namespace) for verb in ("update", "patch", "delete")],
        Operation("update", "networking.k8s.io/ingresses/status", namespace),
        *[Operation(verb, EVENTS, namespace) for verb in ("list", "watch", "delete")],
        *[Operation("patch", f"rbac.authorization.k8s.io/{each}", namespace) for each in ("roles", "rolebindings")],
        Operation("create", "/serviceaccounts/token", namespace),
    ]
    with trio.fail_after(LIMIT):
        await rights.grant()
        assert await denied(cluster, rights.account, rejected) == rejected


async def test_a_controller_of_some_namespaces_sees_no_other_one(cluster: Cluster, helm: Helm, namespace: str) -> None:
    rights = Rights(cluster, helm.render("one-team", namespace=namespace), namespace)
    kinds = ("/secrets", "/services", "discovery.k8s.io/endpointslices", "networking.k8s.io/ingresses")
    with trio.fail_after(LIMIT):
        await rights.grant()
        for place in ("", "default", namespace):
            for kind in kinds:
                assert not await is_allowed(cluster, rights.account, Operation("list", kind, place)), (kind, place)
            if place != namespace:
                assert not await is_allowed(cluster, rights.account, Operation("create", EVENTS, place))
        assert not await is_allowed(cluster, rights.account, Operation("get", "/configmaps", "team-b", "pages"))
        assert not await is_allowed(cluster, rights.account, Operation("create", LEASES, namespace))
        assert await is_allowed(cluster, rights.account, Operation("get", "/configmaps", "team-a", "pages"))


async def test_a_controller_with_watch_namespaces_reads_what_is_in_them_alone(
    cluster: Cluster, helm: Helm, namespace: str
) -> None:
    rights = Rights(cluster, helm.render("two-namespaces", namespace=namespace), namespace)
    kinds = ("/secrets", "/services", "networking.k8s.io/ingresses", "gateway.networking.k8s.io/httproutes")
    with trio.fail_after(LIMIT):
        await rights.grant()
        for kind in kinds:
            for place in ("", "default", namespace):
                assert not await is_allowed(cluster, rights.account, Operation("list", kind, place)), (kind, place)
            for place in ("team-a", "team-b"):
                assert await is_allowed(cluster, rights.account, Operation("list", kind, place)), (kind, place)
        assert await is_allowed(cluster, rights.account, Operation("list", "/configmaps", "")), "has own namespaces"


async def test_haproxy_pods_have_no_rights(cluster: Cluster, helm: Helm, namespace: str) -> None:
    rights = Rights(cluster, helm.render(namespace=namespace), namespace)
    haproxy = find(rights.objects, "ServiceAccount", "-haproxy")
    account = {**haproxy, "metadata": {**haproxy["metadata"], "namespace": namespace}}
    with trio.fail_after(LIMIT):
        await rights.grant()
        assert await denied(cluster, account, rights.needed) == rights.needed
