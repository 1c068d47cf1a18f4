"""Rejected objects whose good versions output nothing at present: nothing is served of them, and they say so."""

from typing import Any

import pytest

from haptic_trio.templating.incremental.outputs import FragmentOutput
from haptic_trio.templating.incremental.settling.blank_fallbacks import BlankFallbacks
from haptic_trio.templating.values.subjects import FragmentKey
from tests.templating.incremental.settling.test_renewals import FAILS, SHOWS, lines_after, machine_of, made, render

# Nothing for an object whose reference is gone, or has the number 0.
NEEDS = "{% each s in resources.services as 'needs' if resources.others.pick('spec.n', s.spec.ref) | select | list %}"
NEEDED = SHOWS.replace("{% each s in resources.services as 'shows' %}", NEEDS)
KEY = FragmentKey("needs", "Service", "x", "a", 0, "")


def test_an_object_whose_good_version_gives_nothing_has_no_fallback_until_that_gives_something() -> None:
    machine = machine_of(NEEDED, FAILS)
    assert render(machine, made("Service", 3, 2)) == [("a", True)]

    for version in (2, 4):
        assert render(machine, made("ConfigMap", 0, version)) == [("a", False)]
        machine.accept()
        assert render(machine) == [("a", False)]
        assert render(machine, made("ConfigMap", 6, version + 1)) == [("a", True)]
        assert lines_after(machine) == ["1 sees 6"]


def test_a_good_version_that_gave_nothing_last_gives_nothing_if_it_cannot_be_rendered_again() -> None:
    fails = FAILS.replace(
        "{% for o", "{% if not resources.others.get(s.spec.ref) %}{{ fail('gone') }}{% endif %}{% for o"
    )
    machine = machine_of(NEEDED, fails)
    assert render(machine, made("Service", 3, 2)) == [("a", True)]
    assert render(machine, made("ConfigMap", 0, 2)) == [("a", False)]
    machine.accept()

    machine.delete(0, "ConfigMap")
    assert render(machine) == [("a", False)]
    machine.accept()
    assert lines_after(machine) == []
    assert lines_after(machine, made("ConfigMap", 6, 3)) == ["1 sees 6"]


@pytest.mark.parametrize("is_trial", [False, True])
def test_a_trial_has_the_decisions_and_changes_none(is_trial: bool) -> None:
    blanks, found = BlankFallbacks(), ("x", "a", "Service")
    blanks.note(KEY)
    assert blanks.settle(lambda _: [FragmentOutput(" \n", (), "1")]) == {found}

    one: Any = blanks.for_trial() if is_trial else blanks
    one.note(KEY)
    assert one.settle(lambda _: [FragmentOutput("", (), "1"), FragmentOutput("text", (), "1")]) == {found}

    assert (found in blanks) is is_trial
    assert not blanks.is_undecided


def test_an_object_without_fallback_has_no_blank_one() -> None:
    blanks = BlankFallbacks()
    blanks.note(KEY)
    assert blanks.is_undecided

    assert blanks.settle(lambda _: ()) == set()
    assert ("x", "a", "Service") not in blanks
