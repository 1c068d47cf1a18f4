import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.config.checks.selectors import check_field_selector, check_label_selector


@pytest.mark.parametrize(
    "selector",
    [
        "",
        "app",
        "!legacy",
        "app=web",
        "app==web",
        "app!=web",
        "app=",
        "tier in (a, b)",
        "tier notin (a),app=web",
        "app.kubernetes.io/name=x , !b",
    ],
)
def test_label_selectors_of_kubernetes_pass(selector: str) -> None:
    assert check_label_selector(selector) == ""


@pytest.mark.parametrize(
    "selector", [",", "a,", "app=web=x", "app=we b", "tier in a", "tier in (a", "-a=b", "a=b c", "a=$"]
)
def test_other_label_selectors_are_rejected(selector: str) -> None:
    assert "not a valid label requirement" in check_label_selector(selector)


@pytest.mark.parametrize(
    "selector", ["", "metadata.name=x", "a.b!=c,d==e", "type=kubernetes.io/tls", "spec.x=", " metadata.name = x "]
)
def test_field_selectors_of_kubernetes_pass(selector: str) -> None:
    assert check_field_selector(selector) == ""


@pytest.mark.parametrize("selector", ["metadata.name", "=x", "a=b=c", "a=b,", "a>b", "a in (b)"])
def test_other_field_selectors_are_rejected(selector: str) -> None:
    assert "not a valid field requirement" in check_field_selector(selector)


@given(st.text(alphabet="ab=!,() in/.-", max_size=60))
def test_any_selector_is_judged(selector: str) -> None:
    for problem in (check_label_selector(selector), check_field_selector(selector)):
        assert isinstance(problem, str)
