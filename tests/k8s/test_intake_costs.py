"""The CPU time that the changes of a namespace have taken, and what waits for it."""

from collections.abc import Iterable

import pytest

from haptic_trio.k8s.intake import ENTRIES, FIRST_SHARE, LEAST_COST, Intake, weight_of
from haptic_trio.k8s.resource import Resource, ResourceRef

TARGET = 0.1
ROUTE = ResourceRef("HTTPRoute", "big", "route")
VICTIM = ResourceRef("Ingress", "victim", "web")


def begun() -> Intake:
    """Return an intake after the first cycle, which takes in everything."""
    intake = Intake(TARGET)
    intake.begin()
    intake.begin()
    return intake


def cycle(intake: Intake, *refs: ResourceRef, others: float = 0.0, **spent: float) -> None:
    """Let a cycle for changes of *refs* run: costly fragments take *spent*, by namespace, and the rest *others*."""
    for ref in refs:
        assert intake.admits(ref)
    assert intake.begin(is_for_others=True) == ()
    finish(intake, others, **spent)


def finish(intake: Intake, others: float = 0.0, **spent: float) -> None:
    intake.charge(spent)
    intake.note(sum(spent.values()) + others)


def taken(intake: Intake, refs: Iterable[ResourceRef]) -> list[ResourceRef]:
    return [ref for ref in refs if intake.admits(ref)]


def test_a_change_of_another_namespace_goes_before_the_next_one_of_a_costly_namespace() -> None:
    intake = begun()
    cycle(intake, ROUTE, big=5.0)

    # While it was rendered, these changed.
    assert not intake.admits(ROUTE)
    assert intake.admits(VICTIM)

    assert intake.begin(is_for_others=True) == ()
    finish(intake, 0.01)
    assert intake.begin() == (ROUTE,)


def test_no_object_of_a_costly_namespace_goes_first() -> None:
    intake = begun()
    cycle(intake, ROUTE, big=5.0)

    # A change of a Service may cause the same cost: the route depends on it.
    assert not intake.admits(ResourceRef("Service", "big", "web"))


def test_changes_of_others_that_wait_go_before_those_of_a_costly_namespace_until_its_time_is_over() -> None:
    intake = begun()
    cycle(intake, ROUTE, big=1.25)
    assert not intake.admits(ROUTE)
    many = [ResourceRef("Ingress", "victim", f"i{number}") for number in range(20 * FIRST_SHARE)]
    taken(intake, many)

    cycles: list[tuple[ResourceRef, ...]] = []
    while ROUTE not in (found := intake.begin()):
        cycles.append(found)
        finish(intake, 0.25)

    assert [{ref.namespace for ref in one} for one in cycles] == [{"victim"}] * 5


def test_of_costly_namespaces_the_one_that_owes_least_goes_first() -> None:
    intake = begun()
    cycle(intake, ROUTE, big=5.0)
    cycle(intake, VICTIM, victim=0.5)
    assert taken(intake, [ROUTE, VICTIM]) == []

    assert intake.begin() == (VICTIM,)
    assert intake.begin() == (ROUTE,)


def test_what_a_namespace_owes_ends_when_others_have_had_as_much_time() -> None:
    intake = begun()
    cycle(intake, ROUTE, big=5.0)
    service = ResourceRef("Service", "big", "web")

    cycle(intake, VICTIM, others=4.9)
    assert not intake.admits(service)
    intake.forget(service)
    cycle(intake, VICTIM, others=0.2)

    assert intake.admits(service)


def test_costly_fragments_of_another_namespace_are_charged_to_the_only_one_with_a_change() -> None:
    intake = begun()
    grant = ResourceRef("ReferenceGrant", "accomplice", "grant")
    cycle(intake, grant, big=5.0)

    assert not intake.admits(grant)
    assert intake.admits(ROUTE)


def test_of_several_namespaces_with_changes_none_is_charged_for_the_fragments_of_another() -> None:
    intake = begun()
    grant = ResourceRef("ReferenceGrant", "accomplice", "grant")
    cycle(intake, grant, VICTIM, big=5.0)

    assert taken(intake, [grant, VICTIM, ROUTE]) == [grant, VICTIM, ROUTE]


def test_fragments_of_objects_without_a_namespace_are_charged_to_those_who_cause_them() -> None:
    intake = begun()
    cycle(intake, ROUTE, **{"": 5.0})

    assert not intake.admits(ROUTE)


def test_a_namespace_owes_its_costly_fragments_if_no_object_has_changed() -> None:
    intake = begun()
    # Fetched content has changed, for example.
    cycle(intake, big=5.0)

    assert taken(intake, [ROUTE, VICTIM]) == [VICTIM]


def test_no_namespace_owes_what_a_change_of_a_cluster_wide_object_may_have_caused() -> None:
    intake = begun()
    cycle(intake, ResourceRef("GatewayClass", "", "haptic"), VICTIM, big=5.0)
    assert taken(intake, [ROUTE, VICTIM]) == [ROUTE, VICTIM]
    intake.begin()
    cycle(intake, ResourceRef("GatewayClass", "", "haptic"), big=5.0)

    assert intake.admits(ROUTE)


def test_no_namespace_owes_what_a_cycle_for_all_changes_takes() -> None:
    intake = begun()
    intake.begin(is_for_all=True)
    finish(intake, big=5.0)

    assert intake.admits(ROUTE)


def test_known_costly_objects_have_a_cycle_each() -> None:
    intake = begun()
    routes = [ResourceRef("HTTPRoute", "big", f"r{number}") for number in range(10)]
    cycle(intake, *routes, big=50.0)
    cycle(intake, VICTIM, others=50.0)
    # What the queue of their kind owes, counted in objects, ends later.
    for _cycle in range(10 * 5 * round(1 / TARGET)):
        intake.begin(is_for_others=True)

    found = [tuple(taken(intake, routes))]
    while intake.is_waiting:
        found.append(intake.begin())

    assert found == [(route,) for route in routes]


def test_a_version_that_costs_little_hides_a_costly_object_in_part_only() -> None:
    intake = begun()
    routes = [ResourceRef("HTTPRoute", "big", f"r{number}") for number in range(2)]
    cycle(intake, *routes, big=2 * 8 * TARGET)
    for _change in range(3):
        cycle(intake, VICTIM, others=2 * 8 * TARGET)
        for _cycle in range(2 * 8):
            intake.begin(is_for_others=True)

        assert taken(intake, routes) == routes[:1]
        assert intake.begin() == tuple(routes[1:])


def test_an_object_that_costs_little_now_counts_less_and_less() -> None:
    intake = begun()
    routes = [ResourceRef("HTTPRoute", "big", f"r{number}") for number in range(2)]
    cycle(intake, *routes, big=2 * TARGET)
    cycle(intake, VICTIM, others=2 * TARGET)

    for _change in range(10):
        taken(intake, routes)
        while intake.is_waiting:
            intake.begin()
        intake.begin()
        intake.begin()

    assert taken(intake, routes) == routes


def test_a_change_that_arrives_while_the_former_one_is_rendered_waits_like_any_other() -> None:
    intake = begun()
    routes = [ResourceRef("HTTPRoute", "big", f"r{number}") for number in range(FIRST_SHARE + 1)]
    taken(intake, routes)
    assert intake.begin() == (routes[-1],)

    finish(intake, big=5.0)

    assert not intake.admits(routes[-1])


@pytest.mark.parametrize("intake", [Intake(), Intake(TARGET)], ids=["without a limit", "in the first cycle"])
def test_nothing_is_charged(intake: Intake) -> None:
    intake.begin()
    intake.charge({"big": 5.0})
    intake.note(5.0)
    intake.begin()

    assert intake.admits(ROUTE)


def test_what_is_owed_and_known_goes_over_to_another_iteration() -> None:
    former = begun()
    cycle(former, ROUTE, big=5.0)
    intake = Intake(TARGET)
    intake.take_over(former)
    intake.begin()

    assert not intake.admits(ROUTE)


def test_a_route_counts_by_its_host_names_and_matches() -> None:
    def route(hostnames: int, *matches: int) -> Resource:
        rules: list[Resource] = [{"matches": [{} for _ in range(count)]} for count in matches]
        return {"kind": "HTTPRoute", "spec": {"hostnames": ["h"] * hostnames, "rules": rules}}

    assert weight_of(route(16, 64, 64)) == 1 + 16 * 128 // ENTRIES
    assert weight_of(route(1, 8, 8)) == 1
    # Without host names a route has an entry for each match. Other kinds have rules without matches.
    assert weight_of({"spec": {"rules": [{"matches": [{}] * ENTRIES}]}}) == 2
    assert weight_of({"spec": {"rules": [{}], "hostnames": "h"}}, {"spec": []}, {}) == 1


def test_little_time_is_not_remembered() -> None:
    intake = begun()
    routes = [ResourceRef("HTTPRoute", "big", f"r{number}") for number in range(FIRST_SHARE)]
    cycle(intake, *routes, big=LEAST_COST * FIRST_SHARE / 2)
    cycle(intake, VICTIM, others=LEAST_COST * FIRST_SHARE)

    assert taken(intake, routes) == routes
