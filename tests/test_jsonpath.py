import copy
import json
from types import MappingProxyType
from typing import Any

import jsonpath_rfc9535
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.jsonpath import JSONPathError, Wildcard, compile_path, remove_path

SLICE = {
    "metadata": {
        "namespace": "shop",
        "name": "web-1",
        "labels": {"kubernetes.io/service-name": "web", "my-label": "x"},
    },
    "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}],
    "endpoints": [{"addresses": ["10.0.0.1", "10.0.0.2"]}, {"addresses": ["10.0.0.3"]}],
    "note": None,
}

names = st.sampled_from(["a", "b", "c-d", "e.f", "it's", 'say "x"', "ü", "0"])
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(names, children, max_size=3),
    max_leaves=20,
)
steps = st.lists(names | st.integers(-3, 3) | st.just(Wildcard.ALL), min_size=1, max_size=4)


def written(path: list[str | int | Wildcard]) -> str:
    parts = ["*" if step is Wildcard.ALL else json.dumps(step, ensure_ascii=False) for step in path]
    return "$" + "".join(f"[{part}]" for part in parts)


@pytest.mark.parametrize(
    "expression",
    [
        "metadata.namespace",
        ".metadata.namespace",
        "$.metadata.namespace",
        "{.metadata.namespace}",
        "{ $.metadata.namespace }",
        "metadata['namespace']",
        '$["metadata"]["namespace"]',
    ],
)
def test_a_path_may_be_spelled_in_each_of_the_usual_ways(expression: str) -> None:
    assert compile_path(expression.replace("{ ", "{").replace(" }", "}")).find(SLICE) == ["shop"]


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("metadata.labels['kubernetes.io/service-name']", ["web"]),
        ('metadata.labels["kubernetes.io/service-name"]', ["web"]),
        (r"metadata.labels.kubernetes\.io/service-name", ["web"]),
        ("metadata.labels.my-label", ["x"]),
        ("ports[0].port", [80]),
        ("ports[-1].name", ["https"]),
        ("ports[7].name", []),
        ("endpoints[*].addresses[*]", ["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
        ("metadata.labels.*", ["web", "x"]),
        ("ports[?@.name == 'https'].port", [443]),
        ("{.ports[?(@.port < 100)].name}", ["http"]),
        ("ports[?@.name == 'http'].no-such", []),
        ("..port", [80, 443]),
        ("ports[0:1].name", ["http"]),
        ("ports[0, 1].port", [80, 443]),
        ("note", [None]),
        ("note.deeper", []),
        ("metadata.name.deeper", []),
        ("missing", []),
        ("$", [SLICE]),
    ],
)
def test_find_returns_all_values_in_document_order(expression: str, values: list[Any]) -> None:
    assert compile_path(expression).find(SLICE) == values


def test_names_after_a_filter_may_have_dashes_too() -> None:
    obj = {"items": [{"kind": "a", "my-key": 1}, {"kind": "b", "my-key": 2}]}

    assert compile_path("items[?@.kind=='b'].my-key").find(obj) == [2]


def test_a_path_is_plain_without_filters_slices_and_descent() -> None:
    assert compile_path("a[0].*.b").steps == ("a", 0, Wildcard.ALL, "b")
    assert not compile_path("a..b").is_plain
    assert not compile_path("a[?@.b]").is_plain


def test_a_path_is_shown_as_its_author_wrote_it() -> None:
    assert str(compile_path("{.metadata.name}")) == "{.metadata.name}"


@pytest.mark.parametrize(
    ("expression", "position", "part"),
    [
        ("", 0, "is empty"),
        ("{}", 1, "is empty"),
        ("{.a", 0, "not closed"),
        ("a..", 3, "name is missing"),
        ("a.", 2, "name is missing"),
        ("a b", 1, "unexpected ' '"),
        ("a[0", 1, "not closed"),
        ("a['b]", 1, "not closed"),
        ("spec.rules[?@.host ==]", 21, "unexpected"),
        # Two versions of the library, one for Python 3.12 and newer, say these in different words.
        ("spec.rules[?bad(@.x)].y", 12, "'bad'"),
        ("a-b.c[01]", 6, "index"),
    ],
)
def test_an_error_has_position_and_hint(expression: str, position: int, part: str) -> None:
    with pytest.raises(JSONPathError) as caught:
        compile_path(expression)

    assert caught.value.position == position
    assert part in caught.value.message
    assert caught.value.hint


def test_a_filter_that_is_nested_too_deeply_is_an_error() -> None:
    with pytest.raises(JSONPathError, match="is nested too deeply"):
        compile_path(f"items[?{'(' * 3000}@.a{')' * 3000}]")


def test_a_key_that_needs_quotes_has_a_hint_to_quote_it() -> None:
    with pytest.raises(JSONPathError) as caught:
        compile_path("metadata.labels[kubernetes.io/service-name]")

    assert caught.value.hint == "write ['kubernetes.io/service-name']"


def test_an_object_that_is_nested_too_deeply_yields_nothing_for_descent() -> None:
    deep: dict[str, Any] = {"x": 1}
    for _level in range(5000):
        deep = {"a": deep}

    assert compile_path("..x").find(deep) == []


@pytest.mark.parametrize("levels", [98, 99, 100, 101])
@pytest.mark.parametrize("inner", [{"x": 1}, [{"x": 1}], 1])
def test_descent_looks_into_as_many_levels_as_rfc_9535_does(levels: int, inner: Any) -> None:
    for _level in range(levels):
        inner = {"a": inner}
    try:
        expected = [node.value for node in jsonpath_rfc9535.finditer("$..x", inner)]
    except jsonpath_rfc9535.JSONPathRecursionError:
        expected = []

    assert compile_path("..x").find(inner) == expected


@given(documents, st.lists(st.tuples(st.booleans(), st.sampled_from(["a", "b", "c-d", "0"])), min_size=1, max_size=3))
def test_names_after_descent_find_what_rfc_9535_finds(document: Any, path: list[tuple[bool, str]]) -> None:
    expression = "$" + "".join(f"{'..' if descends else '.'}{name}" for descends, name in path)
    standard = "$" + "".join(f"{'..' if descends else ''}['{name}']" for descends, name in path)

    found = compile_path(expression).find(document)

    assert found == [node.value for node in jsonpath_rfc9535.finditer(standard, document)]


@given(documents, steps)
def test_plain_paths_find_what_rfc_9535_finds(document: Any, path: list[str | int | Wildcard]) -> None:
    expression = written(path)
    compiled = compile_path(expression)

    assert compiled.is_plain
    assert compiled.find(document) == [node.value for node in jsonpath_rfc9535.finditer(expression, document)]


@given(documents, steps)
def test_the_first_value_is_the_first_one_found_that_is_not_null(
    document: Any, path: list[str | int | Wildcard]
) -> None:
    compiled = compile_path(written(path))
    wanted = next((value for value in compiled.find(document) if value is not None), None)

    assert compiled.first(document) == wanted
    assert compiled.first(MappingProxyType(document) if isinstance(document, dict) else document) == wanted


@given(documents, steps)
def test_remove_path_leaves_nothing_to_find_and_the_original_as_it_was(
    document: Any, path: list[str | int | Wildcard]
) -> None:
    before = copy.deepcopy(document)
    # An index names another item once the first is gone.
    compiled = compile_path(written([Wildcard.ALL if isinstance(step, int) else step for step in path]))

    kept = remove_path(document, compiled)

    assert document == before
    assert compiled.find(kept) == []
    if not compiled.find(document):
        assert kept is document


def test_remove_path_shares_what_is_not_on_the_path() -> None:
    kept = remove_path(SLICE, compile_path("metadata.labels"))

    assert kept["metadata"] == {"namespace": "shop", "name": "web-1"}
    assert kept["ports"] is SLICE["ports"]
    assert remove_path({"a": [1, 2, 3]}, compile_path("a[1]")) == {"a": [1, 3]}


@pytest.mark.parametrize("expression", ["$", "a..b", "a[?@.b]"])
def test_remove_path_rejects_what_is_not_a_plain_path(expression: str) -> None:
    with pytest.raises(JSONPathError, match="cannot be removed"):
        remove_path(SLICE, compile_path(expression))


@pytest.mark.parametrize("expression", ["a.b[0].c", "a.*[*].c", "$.a.b[?@.c == 1].c", "$..c"])
def test_mappings_of_other_kinds_are_objects_too(expression: str) -> None:
    value = MappingProxyType({"a": MappingProxyType({"b": [{"c": 1}]})})
    assert compile_path(expression).find(value) == [1]
    assert compile_path("$[?@.a].a.b[0].c").find([value]) == [1]
