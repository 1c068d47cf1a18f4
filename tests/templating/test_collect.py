"""`collect()`: keys and values in order, at a cost that does not grow with what is collected."""

import pytest

from haptic_trio.k8s.store import Store
from haptic_trio.templating.views import ResourcesView
from tests.support.kubernetes import service
from tests.templating.rendering import rejected, render


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for x in [3, 1, 3, 2, 1] if c.add(x) %}{{ x }}{% endfor %}", "312"),
        ("{% do c.add('b', 1) %}{% do c.add('a', 2) %}{% do c.add('b', 3) %}{{ c | join }} {{ c.get('b') }}", "ba 1"),
        ("{% do c.add('b', 1) %}{% for key, value in c.items() %}{{ key }}{{ value }}{% endfor %}", "b1"),
        ("{% do c.add('b') %}{{ 'b' in c }} {{ 'x' in c }} {{ c | length }}", "true false 1"),
        ("{{ 'yes' if c else 'no' }}{% do c.add(1) %}{{ 'yes' if c else 'no' }}", "noyes"),
        ("{{ c.get('x') is none }} {{ c.get('x', 5) }}", "true 5"),
        ("{% do c.add('b', 1) %}{% do c.add('a', 2) %}{{ c | sort | join }}{{ c.values() | sum }}", "ab3"),
    ],
)  # fmt: skip
def test_collecting(source: str, text: str) -> None:
    assert render("{% set c = collect() %}" + source) == text


def test_data_stays_data() -> None:
    problem = rejected("{% set c = collect() %}{% do c.add(x, x) %}{% for key in c %}{{ key }}{% endfor %}", x="a b")
    assert "a space" in problem.message


@pytest.mark.parametrize("key", ["[1]", "{'a': 1}", "none", "1.5"])
def test_keys_are_text_and_numbers(key: str) -> None:
    problem = rejected("{% set c = collect() %}{% do c.add(" + key + ") %}")
    assert "the key of a collection is a" in problem.message


@pytest.mark.parametrize("use", ["{% do c.add('x') %}", "{{ c | join }}", "{{ c.get('x') }}", "{{ 'x' in c }}"])
def test_a_collection_from_outside_of_each_cannot_be_used_within(use: str) -> None:
    store = Store("services", ["metadata.name"])
    store.replace([service("a")])
    source = "{% set c = collect() %}{% each s in resources.services %}" + use + "{% endeach %}{{ c | length }}"
    text = render(source, resources=ResourcesView({"services": store}))
    # What fails is the fragment.
    assert text == "0"
