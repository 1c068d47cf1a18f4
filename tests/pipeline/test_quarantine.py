from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import Resource, ResourceRef
from haptic_trio.pipeline.quarantine import Quarantine

REF = ResourceRef("Ingress", "default", "web")
PROBLEM = Problem(message="broken")


def web(version: str) -> Resource:
    return {"kind": "Ingress", "metadata": {"namespace": "default", "name": "web", "resourceVersion": version}}


def test_object_that_was_never_good_is_left_out() -> None:
    quarantine = Quarantine()

    held = quarantine.hold("ingresses", REF, web("1"), PROBLEM)

    assert held is not None
    assert quarantine.replacements("ingresses") == {REF: None}
    assert quarantine.replacements("services") == {}


def test_last_good_version_stands_in_for_a_broken_one() -> None:
    quarantine = Quarantine()
    quarantine.keep_good({"ingresses": (web("1"),)})

    quarantine.hold("ingresses", REF, web("2"), PROBLEM)

    assert quarantine.replacements("ingresses") == {REF: web("1")}


def test_object_whose_stand_in_is_refused_too_is_left_out() -> None:
    quarantine = Quarantine()
    quarantine.keep_good({"ingresses": (web("1"),)})

    quarantine.hold("ingresses", REF, web("2"), PROBLEM)
    held = quarantine.hold("ingresses", REF, web("2"), PROBLEM)

    assert held is not None
    assert quarantine.replacements("ingresses") == {REF: None}


def test_nothing_more_can_be_done_about_an_object_that_is_left_out() -> None:
    quarantine = Quarantine()
    quarantine.hold("ingresses", REF, web("1"), PROBLEM)

    assert quarantine.hold("ingresses", REF, web("1"), PROBLEM) is None
    assert quarantine.hold("services", REF, None, PROBLEM) is None


def test_good_version_that_is_refused_now_is_no_stand_in_for_itself() -> None:
    quarantine = Quarantine()
    quarantine.keep_good({"ingresses": (web("1"),)})

    quarantine.hold("ingresses", REF, web("1"), PROBLEM)

    assert quarantine.replacements("ingresses") == {REF: None}


def test_object_is_held_until_its_version_changes() -> None:
    quarantine = Quarantine()
    quarantine.hold("ingresses", REF, web("2"), PROBLEM)

    assert quarantine.release_changed(lambda _store, _ref: web("2")) == ()
    released = quarantine.release_changed(lambda _store, _ref: web("3"))

    assert [held.ref for held in released] == [REF]
    assert quarantine.held == ()


def test_deleted_object_is_released() -> None:
    quarantine = Quarantine()
    quarantine.hold("ingresses", REF, web("2"), PROBLEM)

    assert len(quarantine.release_changed(lambda _store, _ref: None)) == 1
