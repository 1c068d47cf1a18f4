"""The desired status is compared with the observed one, and fields of other writers stay untouched."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.status.sources import application_of, is_fulfilled, merge_conditions
from tests.support.kubernetes import ingress

NOW, BEFORE = "2026-02-02T00:00:00Z", "2026-01-01T00:00:00Z"


def condition(kind: str, status: str = "True", **more: Any) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": "Because", "message": "", **more}


@pytest.mark.parametrize(
    ("present", "wanted", "fulfilled"),
    [
        (None, {}, True),
        (None, {"loadBalancer": {}}, True),
        (None, {"loadBalancer": {"ingress": []}}, True),
        ({"loadBalancer": {}}, {"loadBalancer": {"ingress": []}}, True),
        (None, {"loadBalancer": {"ingress": [{"ip": "a"}]}}, False),
        ({"loadBalancer": {"ingress": [{"ip": "a"}]}}, {"loadBalancer": {"ingress": [{"ip": "a"}]}}, True),
        ({"loadBalancer": {"ingress": [{"ip": "a"}]}}, {"loadBalancer": {"ingress": []}}, False),
        ({"loadBalancer": {"ingress": [{"ip": "b"}]}}, {"loadBalancer": {"ingress": [{"ip": "a"}]}}, False),
        ({"other": 1, "ours": 2}, {"ours": 2}, True),
        ({"ours": 1}, {"ours": True}, True),
        ({"conditions": [condition("A"), condition("B")]}, {"conditions": [condition("B")]}, True),
        ({"conditions": [condition("A", "False")]}, {"conditions": [condition("A")]}, False),
        ({"conditions": [condition("A")]}, {"conditions": [condition("B")]}, False),
        ({"conditions": None}, {"conditions": [condition("B")]}, False),
        ({"conditions": [condition("B"), condition("PartiallyInvalid")]}, {"conditions": [condition("B")]}, False),
        ({"conditions": [condition("PartiallyInvalid")]}, {"conditions": [condition("PartiallyInvalid")]}, True),
    ],
)
def test_status_is_fulfilled_when_all_that_is_wanted_is_there(present: Any, wanted: Any, fulfilled: bool) -> None:
    assert is_fulfilled(present, wanted) is fulfilled


_JSON = st.recursive(
    st.integers(0, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("abcd"), _JSON), st.dictionaries(st.sampled_from("wxyz"), _JSON))
def test_status_fulfils_itself_whatever_others_have_added(wanted: Any, others: Any) -> None:
    assert is_fulfilled(wanted, wanted)
    assert is_fulfilled(others | wanted, wanted)


def test_transition_time_is_that_of_the_last_change_of_the_status() -> None:
    present = [condition("A", lastTransitionTime=BEFORE), condition("B", "False", lastTransitionTime=BEFORE)]

    merged = merge_conditions(present, [condition("A", message="new"), condition("B"), condition("C")], NOW)

    assert [each["lastTransitionTime"] for each in merged] == [BEFORE, NOW, NOW]
    assert merged[0]["message"] == "new"


def test_application_names_the_object_and_nothing_of_its_spec() -> None:
    resource = ingress("web")
    resource["metadata"]["uid"] = "u"

    application = application_of(resource, {"loadBalancer": {}}, exact=True)

    assert application == {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "web", "namespace": "default", "uid": "u", "resourceVersion": "1"},
        "status": {"loadBalancer": {}},
    }
    assert "status" not in application_of(resource, None, exact=False)
