"""Surrounding variables of a fragment are compared by what a template can distinguish."""

from typing import Any

import pytest
from jinja2 import Environment

from haptic_trio.templating.incremental.scope import Memo, same
from haptic_trio.templating.missing import MissingValue
from haptic_trio.templating.values.text import Emitted

CIRCLE: list[Any] = [1]
CIRCLE.append(CIRCLE)
OTHER: list[Any] = [1]
OTHER.append(OTHER)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 1), ("a", "a"), (Emitted("a"), Emitted("a")), ([1, {"a": (2,)}], [1, {"a": (2,)}]), (None, None),
        (range(3), range(3)), (float("nan"), float("nan")), (CIRCLE, OTHER), (len, len),
        (MissingValue(name="x"), MissingValue(name="x")),
    ],
)  # fmt: skip
def test_the_same(left: Any, right: Any) -> None:
    assert same(left, right, Memo())
    assert same({"x": left}, {"x": right}, Memo())


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 2), (1, True), (1, 1.0), (0.0, -0.0), ("a", Emitted("a")), (["a"], [Emitted("a")]), ([1], (1,)),
        ([1], [1, 2]), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({"a": 1}, {"b": 1}), (None, False), (object(), object()),
        (MissingValue(name="x"), MissingValue(name="y")), (iter([]), iter([])), (CIRCLE, [1, [1, [1]]]),
    ],
)  # fmt: skip
def test_not_the_same(left: Any, right: Any) -> None:
    assert not same(left, right, Memo())
    assert not same({"x": left}, {"x": right}, Memo())


def test_macros_are_the_same_if_their_compiled_functions_are() -> None:
    # Fails if Jinja keeps the function of a macro under another name.
    environment = Environment(autoescape=False)
    templates = [environment.from_string(f"{{% macro m() %}}{text}{{% endmacro %}}") for text in ("one", "two")]
    (one, other), (again, _) = ([vars(template.make_module())["m"] for template in templates] for _ in range(2))

    assert same(one, again, Memo())
    assert not same(one, other, Memo())
