from typing import Any

import pytest

from haptic_trio.validation_tests.results import Checked, Verdict
from tests.validation_tests.builders import API, BAD, WEB, loaded_with, run


def outcome(assertion: dict[str, Any], **test: Any) -> Checked:
    (result,) = run(loaded_with([assertion], **test))
    return result.checked[0]


@pytest.mark.parametrize(
    "assertion",
    [
        {"type": "contains", "text": "backend web from plain"},
        {"type": "contains", "pattern": "^backend w.b"},
        {"type": "contains", "target": "host.map", "text": "web.example.com web"},
        {"type": "contains", "target": "maps/host.map", "text": "web.example.com web"},
        {"type": "contains", "section": "backend api", "text": "10.0.0.2"},
        {"type": "contains", "section": "global", "text": "maxconn 100"},
        {"type": "not_contains", "text": "backend other"},
        {"type": "not_contains", "section": "backend api", "text": "10.0.0.1"},
        {"type": "not_contains", "target": "maps/absent.map", "text": "x"},
        {"type": "match_count", "pattern": "^backend ", "count": 2},
        {"type": "match_count", "text": "10.9", "count": 0},
        {"type": "equals", "target": "host.map", "expected": "api.example.com api\nweb.example.com web\n"},
        {
            "type": "equals",
            "section": "backend web",
            "expected": "backend web from plain\n    server one 10.0.0.1:80  \n\n",
        },
        {"type": "jsonpath", "path": "resources.sites[*].metadata.name", "expected": ["web", "api"]},
        {"type": "jsonpath", "path": "resources.sitesByHost[0].apiVersion", "expected": ["example.org/v1"]},
        {"type": "jsonpath", "path": "greeting", "expected": ["hello"]},
        {"type": "jsonpath", "path": "nothing", "expected": []},
        {"type": "map_entry", "map": "host.map", "key": "web.example.com"},
        {"type": "map_entry", "map": "host.map", "key": "web.example.com", "value": "web"},
        {"type": "map_entry", "map": "host.map", "key": "x.example.com", "absent": True},
        {"type": "deterministic", "rounds": 3},
    ],
)
def test_what_is_so_holds(assertion: dict[str, Any]) -> None:
    found = outcome(assertion)

    assert (found.verdict, found.message) == (Verdict.PASSED, "")


@pytest.mark.parametrize(
    ("assertion", "why"),
    [
        (
            {"type": "contains", "text": "backend wep from"},
            "haproxy.cfg: expected 'backend wep from', found no such text, but 'backend web from plain'",
        ),
        ({"type": "contains", "pattern": "^bakend$"}, "haproxy.cfg: expected /^bakend$/, found no such text"),
        ({"type": "contains", "section": "backend other", "text": "x"}, "no section 'backend other': backend api, ba"),
        ({"type": "contains", "target": "x.map", "text": "x"}, "no file 'x.map': haproxy.cfg, maps/host.map"),
        ({"type": "not_contains", "pattern": "10.0.0.[0-9]"}, "expected no /10.0.0.[0-9]/, found '10.0.0.2'"),
        ({"type": "match_count", "pattern": "^backend ", "count": 3}, "expected /^backend / 3 times, found 2 times"),
        ({"type": "equals", "target": "host.map", "expected": "x"}, "host.map differs"),
        ({"type": "jsonpath", "path": "greeting", "expected": ["bye"]}, "selects another value"),
        ({"type": "jsonpath", "path": "greetin", "expected": ["hello"]}, "it selects nothing"),
        (
            {"type": "jsonpath", "path": "resources.site[*].metadata.name", "expected": ["web"]},
            "it selects nothing: no watched resource 'site'; did you mean `sites`?",
        ),
        (
            {"type": "map_entry", "map": "host.map", "key": "x"},
            "host.map: expected the key x, found 2 others: api.example.com, web.example.com",
        ),
        (
            {"type": "map_entry", "map": "host.map", "key": "web.example.com", "value": "x"},
            "the key web.example.com: expected the value 'x', found 'web'",
        ),
        (
            {"type": "map_entry", "map": "host.map", "key": "web.example.com", "absent": True},
            "expected none, found the value 'web'",
        ),
        ({"type": "rendering_error"}, "expected an error, found none: the object is rendered without error"),
    ],
)
def test_what_is_not_so_is_explained(assertion: dict[str, Any], why: str) -> None:
    found = outcome(assertion)

    assert found.verdict is Verdict.FAILED
    assert why in found.message


def test_a_text_that_differs_comes_with_a_diff_and_with_what_was_found() -> None:
    found = outcome({"type": "equals", "target": "host.map", "expected": "api.example.com api\nold.example.com x\n"})

    assert "-old.example.com x\n+web.example.com web" in found.diff
    assert found.actual == "api.example.com api\nweb.example.com web\n"


def test_an_object_that_is_left_out_is_an_error_with_its_message() -> None:
    sites = {"sites": [WEB, BAD]}

    assert outcome({"type": "rendering_error", "object": "Site default/bad"}, fixtures=sites).verdict is Verdict.PASSED
    right = outcome(
        {"type": "rendering_error", "object": "Site default/bad", "pattern": "at character [0-9]"}, fixtures=sites
    )
    assert right.verdict is Verdict.PASSED
    wrong = outcome({"type": "rendering_error", "object": "Site default/bad", "text": "teapot"}, fixtures=sites)
    assert "its message: expected 'teapot', found '" in wrong.message
    other = outcome({"type": "rendering_error", "object": "Site default/web"}, fixtures=sites)
    assert "rendered without error, but Site default/bad" in other.message


def test_a_configuration_that_leaves_an_object_out_is_not_valid() -> None:
    found = outcome({"type": "haproxy_valid"}, fixtures={"sites": [WEB, BAD]})

    assert found.verdict is Verdict.FAILED
    assert found.message.startswith("rejected: Site default/bad: ")


def test_variables_of_a_test_replace_those_of_the_configuration() -> None:
    context = {"greeting": "good day"}

    found = outcome({"type": "contains", "text": "X-Greeting 'good day'"}, extraContext=context)
    assert found.verdict is Verdict.PASSED, found.message


@pytest.mark.parametrize(
    ("before", "assertion"),
    [
        ([WEB, API], {"outcome": "none"}),
        (
            [{**WEB, "spec": {**WEB["spec"], "address": "10.0.0.9"}}, API],  # type: ignore[dict-item]
            {"outcome": "runtime", "operations": ["SetServerAddress"]},
        ),
        ([WEB], {"outcome": "reload", "text": "backend api added"}),
        ([WEB], {"outcome": "reload", "pattern": "api .*ed$"}),
        ([WEB], {"outcome": "runtime", "haproxyVersion": "3.4"}),
    ],
)
def test_a_plan_depends_on_the_state_before_and_the_version(before: Any, assertion: dict[str, Any]) -> None:
    found = outcome({"type": "plan", **assertion}, previousFixtures={"sites": before})

    assert (found.verdict, found.message) == (Verdict.PASSED, "")


@pytest.mark.parametrize(
    ("assertion", "why"),
    [
        ({"outcome": "runtime"}, "the cost of the change: expected runtime, found reload: backend api added"),
        ({"outcome": "reload", "text": "sunspots"}, "the reasons: expected 'sunspots', found backend api added"),
        (
            {"outcome": "runtime", "haproxyVersion": "3.4", "operations": ["AddServer"]},
            "the operations: expected AddServer, found AddBackend",
        ),
    ],
)
def test_another_plan_is_explained(assertion: dict[str, Any], why: str) -> None:
    found = outcome({"type": "plan", **assertion}, previousFixtures={"sites": [WEB]})

    assert why in found.message


def test_a_plan_may_start_from_a_configuration_as_text() -> None:
    (result,) = run(
        loaded_with(
            [{"type": "plan", "outcome": "reload", "text": "backend old removed"}],
            currentConfig="global\n    maxconn 100\n\nbackend old\n    mode http\n",
        )
    )

    assert not result.failed
