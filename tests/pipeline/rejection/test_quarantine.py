import msgspec
import pytest

from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.templating.incremental.outputs import FragmentOutput
from haptic_trio.templating.values.subjects import FragmentKey, Rejection, Subject

PROBLEM = Problem(message="broken")
REF = ResourceRef("Ingress", "default", "web")


def key(name: str = "web", fragment: str = "route") -> FragmentKey:
    return FragmentKey(fragment, "Ingress", "default", name)


def output(text: str, version: str = "1") -> FragmentOutput:
    return FragmentOutput(text, (), version)


def rejection(name: str = "web", version: str = "1", *, has_fallback: bool = False) -> Rejection:
    return Rejection("route", Subject("Ingress", "default", name, version), PROBLEM, 0, has_fallback)


@pytest.fixture
def after_one_cycle() -> Quarantine:
    """A quarantine that has seen one valid configuration with two good objects."""
    quarantine = Quarantine()
    quarantine.take(1, {key("web"): output("w"), key("shop"): output("s")}, is_new=True)
    quarantine.accept(1, [])
    return quarantine


def accept(quarantine: Quarantine, serial: int, *given: FragmentOutput | None, rejected: bool = False) -> None:
    """Let a render give the fragment `key()` something, or the same as before, and let it be accepted."""
    quarantine.take(serial, {key(): one for one in given}, is_new=False)
    quarantine.accept(serial, [rejection(has_fallback=True)] if rejected else [])


def test_what_was_part_of_a_valid_configuration_is_recalled(after_one_cycle: Quarantine) -> None:
    assert after_one_cycle.recall().valid[key("web")] == output("w")


def test_only_what_was_accepted_is_recalled(after_one_cycle: Quarantine) -> None:
    after_one_cycle.take(2, {key("web"): output("w2"), key("new"): output("n")}, is_new=False)
    after_one_cycle.take(3, {key("web"): output("w3"), key("shop"): None}, is_new=False)

    after_one_cycle.accept(2, [])
    assert after_one_cycle.recall().valid == {
        key("web"): output("w2"), key("shop"): output("s"), key("new"): output("n"),
    }  # fmt: skip
    after_one_cycle.accept(3, [])
    assert after_one_cycle.recall().valid == {key("web"): output("w3"), key("new"): output("n")}


def test_render_that_restarted_forgets_all_before_it(after_one_cycle: Quarantine) -> None:
    after_one_cycle.take(2, {key("web"): output("w2")}, is_new=False)
    after_one_cycle.take(3, {key("new"): output("n")}, is_new=True)

    after_one_cycle.accept(3, [])

    assert after_one_cycle.recall().valid == {key("new"): output("n")}


def test_renders_that_are_never_accepted_are_remembered_as_one(after_one_cycle: Quarantine) -> None:
    for serial in range(2, 1_000):
        after_one_cycle.take(serial, {key("web"): output(str(serial)), key("shop"): None}, is_new=False)

    after_one_cycle.accept(999, [])

    assert after_one_cycle.recall().valid == {key("web"): output("999")}


def test_output_that_haproxy_rejects_is_blocked_by_its_digest() -> None:
    quarantine = Quarantine()
    produced = {key(): output("bad")}

    assert quarantine.reject({key(): PROBLEM}, produced)

    assert quarantine.recall().blocked[key()] == {output("bad").digest(): PROBLEM}
    # The same again would lead nowhere.
    assert not quarantine.reject({key(): PROBLEM}, produced)


def test_suspect_that_gave_nothing_leads_nowhere() -> None:
    assert not Quarantine().reject({key(): PROBLEM}, {})


def test_block_is_lifted_when_the_fragment_gives_something_else(after_one_cycle: Quarantine) -> None:
    after_one_cycle.reject({key(): PROBLEM}, {key(): output("bad")})

    accept(after_one_cycle, 2, rejected=True)
    assert key() in after_one_cycle.recall().blocked
    accept(after_one_cycle, 3, output("corrected"))

    assert key() not in after_one_cycle.recall().blocked


def test_problem_of_a_quarantined_object_names_its_fields_which_are_searched_once() -> None:
    quarantine = Quarantine()
    looked: list[str] = []

    def find(ref: ResourceRef, problem: Problem) -> Problem:
        looked.append(f"{ref.name}: {problem.message}")
        return msgspec.structs.replace(problem, path="spec.rules[0].host, spec.rules[3].host", message="it is long")

    bad = Rejection("route", Subject("Ingress", "default", "web", "1"), Problem(message="hostname: the value is long"))
    for number in range(3):
        # Others come and go.
        fresh, _ = quarantine.update((bad, *map(rejection, map(str, range(number)))), find)
        if number == 0:
            [held] = fresh
            assert (held.problem.path, held.problem.message) == (
                "spec.rules[0].host, spec.rules[3].host",
                "it is long",
            )
        assert held in quarantine.objects
    assert looked.count("web: hostname: the value is long") == 1


def test_object_is_quarantined_and_released_once() -> None:
    quarantine = Quarantine()

    (held,), _ = quarantine.update((rejection(),))
    assert (held.ref, held.version, held.problem, held.has_fallback) == (REF, "1", PROBLEM, False)
    assert quarantine.update((rejection(),)) == ([], [])
    fresh, released = quarantine.update(())

    assert (fresh, [held.ref for held in released]) == ([], [REF])


def test_object_with_several_failing_fragments_is_quarantined_once() -> None:
    quarantine = Quarantine()
    second = Rejection("certificate", Subject("Ingress", "default", "web", "1"), Problem(message="no key"), 0, True)

    (held,), _ = quarantine.update((rejection(), second))

    assert (held.problem, held.has_fallback) == (PROBLEM, True)


def test_fragment_that_a_new_configuration_breaks_for_all_objects_is_the_templates_fault(
    after_one_cycle: Quarantine,
) -> None:
    after_one_cycle = after_one_cycle.successor()

    rejections = [rejection("web"), rejection("shop")]
    faults = after_one_cycle.find_template_faults({key("web"): output("w")}, rejections)

    assert faults == (PROBLEM,)


def test_fragment_that_still_works_for_one_object_is_not_at_fault(after_one_cycle: Quarantine) -> None:
    after_one_cycle = after_one_cycle.successor()

    assert after_one_cycle.find_template_faults({key("shop"): output("s2")}, [rejection("web")]) == ()


def test_objects_that_changed_with_the_configuration_may_be_at_fault_themselves(after_one_cycle: Quarantine) -> None:
    after_one_cycle = after_one_cycle.successor()

    assert after_one_cycle.find_template_faults({}, [rejection("web", version="2")]) == ()


def test_within_an_iteration_the_objects_are_at_fault(after_one_cycle: Quarantine) -> None:
    assert after_one_cycle.find_template_faults({}, [rejection("web"), rejection("shop")]) == ()


def test_object_that_was_quarantined_before_does_not_blame_the_new_templates(after_one_cycle: Quarantine) -> None:
    after_one_cycle.update((rejection("web", has_fallback=True),))
    after_one_cycle = after_one_cycle.successor()

    assert after_one_cycle.find_template_faults({key("web"): output("w")}, [rejection("web")]) == ()


def test_what_the_former_configuration_served_is_not_dropped_for_the_sake_of_a_new_one(
    after_one_cycle: Quarantine,
) -> None:
    after_one_cycle = after_one_cycle.successor()
    fallback = after_one_cycle.recall().valid[key()]

    assert not after_one_cycle.reject({key(): PROBLEM}, {key(): fallback})
    # Once the new configuration has made something valid, the object is on its own.
    accept(after_one_cycle, 2, fallback)
    assert after_one_cycle.reject({key(): PROBLEM}, {key(): fallback})


def test_a_revision_of_a_former_output_does_not_replace_it(after_one_cycle: Quarantine) -> None:
    former = after_one_cycle.recall().valid[key()]
    accept(after_one_cycle, 2, msgspec.structs.replace(former, text="less", original=former))

    assert after_one_cycle.recall().valid[key()] is former


def test_objects_that_a_changed_setting_permitted_have_no_good_output_in_the_new_configuration() -> None:
    quarantine = Quarantine()
    permitted = msgspec.structs.replace(output("w"), permits=(("hosts", ["a"]),))
    quarantine.take(1, {key(): permitted, key(fragment="backend"): output("b"), key("shop"): output("s")}, is_new=True)
    quarantine.accept(1, [])

    for settings in ({"hosts": ["a", "b"]}, {}):
        changed = quarantine.successor(settings)
        assert changed.recall().valid == {key("shop"): output("s")}
        # What the setting no longer permits is no fault of the templates.
        assert changed.find_template_faults({}, [rejection()]) == ()
    assert len(quarantine.successor({"hosts": ["a"], "other": 1}).recall().valid) == 3


def test_fragment_that_comes_with_the_new_configuration_is_at_fault_if_it_fails_for_good_objects(
    after_one_cycle: Quarantine,
) -> None:
    after_one_cycle = after_one_cycle.successor()
    new = Rejection("another", Subject("Ingress", "default", "web", "1"), PROBLEM)

    assert after_one_cycle.find_template_faults({key("web"): output("w")}, [new]) == (PROBLEM,)


def test_what_has_passed_phase_1_is_recalled_before_it_is_accepted(after_one_cycle: Quarantine) -> None:
    after_one_cycle.take(2, {key("new"): output("n")}, is_new=False)
    assert after_one_cycle.recall().prepared(key("new")) is None

    after_one_cycle.prepare(2)
    after_one_cycle.take(3, {key("new"): output("unseen")}, is_new=False)

    assert after_one_cycle.recall().prepared(key("new")) == output("n")
    assert after_one_cycle.recall().prepared(key("web")) == output("w")
    after_one_cycle.accept(2, [])
    assert after_one_cycle.recall().valid[key("new")] == output("n")
    assert after_one_cycle.recall().newer == {}


def test_what_is_part_of_a_configuration_that_haproxy_rejects_is_not_recalled(after_one_cycle: Quarantine) -> None:
    after_one_cycle.take(2, {key("web"): output("w2")}, is_new=False)
    after_one_cycle.prepare(2)

    after_one_cycle.distrust(2)

    assert after_one_cycle.recall().prepared(key("web")) == output("w")


def test_what_closes_a_rejected_object_is_never_recalled(after_one_cycle: Quarantine) -> None:
    closing = FragmentOutput("closed", (), "2", is_closing=True)
    after_one_cycle.take(2, {key("web"): closing}, is_new=False)
    after_one_cycle.prepare(2)
    assert after_one_cycle.recall().prepared(key("web")) == output("w")

    after_one_cycle.accept(2, [])

    assert after_one_cycle.recall().prepared(key("web")) is None
