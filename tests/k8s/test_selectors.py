import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.selectors import SelectorError, parse_field_selector, parse_label_selector


def labelled(**labels: str) -> Resource:
    return {"metadata": {"name": "x", "labels": labels}}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("", True),
        ("  ", True),
        ("app=web", True),
        ("app==web", True),
        ("app = web , tier=front", True),
        ("app=web,tier=back", False),
        ("app!=web", False),
        ("missing!=web", True),
        ("app", True),
        ("missing", False),
        ("!app", False),
        ("! missing", True),
        ("app in (api, web)", True),
        ("app in(api)", False),
        ("app notin (api)", True),
        ("missing notin (api)", True),
        ("missing in (api)", False),
        ("empty=", True),
        ("empty in (,a)", True),
        ("app=", False),
        ("in in (x)", True),
        ("notin", False),
    ],
)
def test_label_selectors_select_as_kubernetes_does(selector: str, selected: bool) -> None:
    resource = labelled(app="web", tier="front", empty="")
    resource["metadata"]["labels"]["in"] = "x"

    assert parse_label_selector(selector).matches(resource) is selected


def test_prefixed_labels_can_be_selected() -> None:
    resource: Resource = {"metadata": {"labels": {"kubernetes.io/service-name": "web"}}}

    assert parse_label_selector("kubernetes.io/service-name in (web)").matches(resource)


@pytest.mark.parametrize("resource", [{}, {"metadata": None}, {"metadata": {}}, {"metadata": {"labels": None}}])
def test_an_object_without_labels_has_none(resource: Resource) -> None:
    assert parse_label_selector("!app").matches(resource)
    assert not parse_label_selector("app").matches(resource)


@pytest.mark.parametrize(
    ("selector", "column"),
    [
        ("app=web,", 9),
        (",app", 1),
        ("app in web", 8),
        ("app in (web", 12),
        ("app in (a b)", 11),
        ("app=web tier=x", 9),
        ("app>5", 4),
        ("-app=x", 1),
        ("app=a/b", 5),
        ("app=-b", 5),
        ("a//b", 1),
        ("app web", 5),
        ("!", 2),
        ("A/b", 1),
    ],
)
def test_a_label_selector_that_cannot_be_read_is_rejected_with_column_and_hint(selector: str, column: int) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_label_selector(selector)

    (problem,) = caught.value.problems
    assert problem.column == column
    assert problem.hint


@given(st.text(alphabet="ab,=!() in/.", max_size=20))
def test_any_text_is_either_a_label_selector_or_rejected(text: str) -> None:
    try:
        selector = parse_label_selector(text)
    except SelectorError:
        return
    assert selector.matches(labelled(a="b")) in {True, False}


POD: Resource = {
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"nodeName": "n1", "hostNetwork": True, "priority": 5},
    "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("", True),
        ("metadata.name=web", True),
        ("metadata.name==web,metadata.namespace=shop", True),
        ("metadata.name = web", True),
        ("metadata.namespace!=shop", False),
        ("spec.hostNetwork=true", True),
        ("spec.priority=5", True),
        ("spec.missing=", True),
        ("spec.missing!=", False),
        ("spec.nodeName!=", True),
        ("status.podIPs[*].ip=fd00::1", True),
        ("status.podIPs[*].ip!=fd00::1", False),
        (",metadata.name=web,", True),
    ],
)
def test_field_selectors_compare_any_plain_path(selector: str, selected: bool) -> None:
    assert parse_field_selector(selector).matches(POD) is selected


def test_values_of_a_field_selector_may_be_escaped() -> None:
    resource: Resource = {"spec": {"x": "a,b=c\\d"}}

    assert parse_field_selector(r"spec.x=a\,b\=c\\d").matches(resource)


@pytest.mark.parametrize(
    ("selector", "column"), [("metadata.name", 1), ("a=b,metadata..name=x", 5), ("a.=b", 3), ("x=1,y[?@.a]=b", 5)]
)
def test_a_field_selector_that_cannot_be_read_is_rejected_with_column_and_hint(selector: str, column: int) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_field_selector(selector)

    (problem,) = caught.value.problems
    assert problem.column == column
    assert problem.hint
