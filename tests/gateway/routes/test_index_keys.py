"""Computed keys of routes equal the JSONPaths that they replace."""

from typing import Any

import jsonpath_rfc9535
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.gateway.routes.index_keys import ROUTE_KEYS

names = st.sampled_from("abc")
REGEX = "RegularExpression"
path_matches = st.sampled_from(
    [
        {},
        {"headers": []},
        {"path": {}},
        {"path": {"value": "/a"}},
        {"path": {"type": "Exact", "value": "/b"}},
        {"path": {"type": REGEX, "value": "/c"}},
    ]
)
method_matches = st.sampled_from(
    [
        {},
        {"method": {}},
        {"method": {"service": "s"}},
        {"method": {"method": "m"}},
        {"method": {"type": REGEX, "service": "s"}},
    ]
)


def rules(matches: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    filters = st.lists(st.sampled_from([{}, {"type": "CORS"}, {"type": "ExtensionRef"}]), max_size=2)
    reference = st.sampled_from([{}, {"name": "web"}, {"name": "api", "namespace": "x"}])
    references = st.lists(
        st.tuples(reference, filters).map(lambda pair: {**pair[0], "filters": pair[1]} if pair[1] else pair[0]),
        max_size=2,
    )
    optional = {
        "matches": st.lists(matches, max_size=2),
        "backendRefs": references,
        "filters": filters,
        "retry": st.just({"attempts": 2}),
    }
    return st.lists(st.fixed_dictionaries({}, optional=optional), max_size=3)


def routes(matches: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    parents = st.lists(names.map(lambda name: {"name": name}), max_size=2)
    optional = {"rules": rules(matches), "hostnames": st.lists(names, max_size=2), "parentRefs": parents}
    spec = st.fixed_dictionaries({}, optional=optional)
    return st.fixed_dictionaries({"metadata": st.just({"name": "r", "namespace": "n"}), "spec": spec})


def query(field: str, value: str) -> dict[str, str]:
    by_path = f"@.{field}.{value} && @.{field}.type != '{REGEX}'"
    return {
        "route_retried_services()": "$.spec.rules[?@.retry || @.sessionPersistence"
        " || @.filters[?@.type=='ExtensionRef']"
        " || @.backendRefs[*].filters[?@.type=='ExtensionRef']].backendRefs[*].name",
        "route_paths()": "$.spec.rules[*].matches[*].path.value",
        "route_paths_of_any_host()": f"$[?@.rules && !@.hostnames[0]].rules[*].matches[?{by_path}].{field}.{value}",
        "route_parents_without_hostnames()": "$[?@.parentRefs && !@.hostnames[0]].parentRefs[*].name",
        "route_parents_without_path()": f"$[?count(@.rules[?!@.matches[0]]) > 0"
        f" || count(@.rules[*].matches[?!({by_path})]) > 0].parentRefs[*].name",
    }


@pytest.mark.parametrize("key", sorted(ROUTE_KEYS))
@pytest.mark.parametrize(
    ("path", "matches"), [(("path", "value"), path_matches), (("method", "service"), method_matches)]
)
@given(data=st.data())
def test_key_has_the_values_of_its_jsonpath(
    key: str, path: tuple[str, str], matches: st.SearchStrategy[Any], data: Any
) -> None:
    route = data.draw(routes(matches))

    assert ROUTE_KEYS[key].find(route) == [node.value for node in jsonpath_rfc9535.finditer(query(*path)[key], route)]


@pytest.mark.parametrize("key", ["route_paths()", "route_paths_of_any_host()"])
def test_all_spellings_of_a_path_have_one_key(key: str) -> None:
    matches = [{"path": {"value": "/%61%2f"}}, {"path": {"value": "/a%2F"}}]

    assert ROUTE_KEYS[key].find({"spec": {"rules": [{"matches": matches}]}}) == ["/a%2F", "/a%2F"]


@pytest.mark.parametrize("key", sorted(ROUTE_KEYS))
@pytest.mark.parametrize(
    "route",
    [{}, {"spec": None}, {"spec": {"rules": {}, "parentRefs": "x"}}, {"spec": {"rules": [None, {"matches": [1]}]}}],
)
def test_objects_of_an_unexpected_form_have_no_keys(key: str, route: Any) -> None:
    assert ROUTE_KEYS[key].find(route) == []
