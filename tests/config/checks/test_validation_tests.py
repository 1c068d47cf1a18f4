from textwrap import dedent

import pytest

from haptic_trio.config.checks.validation_tests import check_tests
from haptic_trio.config.decode import decode_config
from haptic_trio.config.model import WatchedResource
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem

WATCHED = {
    "services": WatchedResource(api_version="v1", resources="services"),
    "entries": WatchedResource(api_version="networking.k8s.io/v1", resources="ingresses"),
}


def problems_of(tests: str) -> list[Problem]:
    """Return what is wrong with *tests*, YAML of `validationTests`, where Services and Ingresses are watched."""
    text = "validationTests:\n" + "".join(f"  {line}\n" for line in dedent(tests).splitlines())
    try:
        config = decode_config(text, source="x")
    except ConfigInvalidError as exc:
        return list(exc.problems)
    return list(check_tests(config.validation_tests, WATCHED))


@pytest.mark.parametrize(
    ("assertion", "path", "message"),
    [
        ("{type: contains}", "", "`contains` needs `text` or `pattern`"),
        ("{type: contains, text: a, pattern: b}", ".pattern", "`text` and `pattern` exclude each other"),
        ("{type: contains, pattern: 'a('}", ".pattern", "invalid regular expression, character 2: missing )"),
        ("{type: contains, text: a, target: x.map, section: global}", ".section", "only haproxy.cfg has sections"),
        ("{type: jsonpath, path: 'a[', expected: []}", ".path", "JSONPath 'a[', character 2: '[' is not closed"),
        ("{type: plan, outcome: reload}", "", "there is no state before to compare with"),
        ("{type: contans, text: a}", ".type", "there is no type 'contans'"),
        ("{text: a}", ".type", "`type` is missing"),
        ("{type: match_count, text: a}", ".count", "`count` is missing"),
        ("{type: match_count, text: a, count: -1}", ".count", "expected a number from 0 to 1000000"),
        ("{type: behaviour, request: {prt: 1}}", ".request.prt", "unknown field"),
        ("contains", "", "expected a mapping with `type`, found the text 'contains'"),
    ],
)
def test_an_assertion_that_cannot_be_used_is_a_problem(assertion: str, path: str, message: str) -> None:
    (problem,) = problems_of(f"one: {{assertions: [{assertion}]}}")

    assert problem.path == f"validationTests.one.assertions[0]{path}"
    assert problem.message.startswith(message)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("outcome: reload, haproxyVersion: new", "'new' is not a valid version"),
        ("outcome: reload, operations: [AddServer]", "only the outcome `runtime` has operations"),
        ("outcome: runtime, text: x", "only the outcome `reload` has reasons"),
        ("outcome: restart", "expected one of none, runtime, reload"),
    ],
)
def test_a_plan_says_only_what_it_can_have(plan: str, message: str) -> None:
    (problem,) = problems_of(f"one: {{currentConfig: global, assertions: [{{type: plan, {plan}}}]}}")

    assert problem.message.startswith(message)


@pytest.mark.parametrize(
    ("fixture", "path", "message"),
    [
        ("{metadata: {name: a}}", ".kind", "`kind` is missing"),
        ("{kind: Service}", ".metadata.name", "`metadata.name` is missing"),
        ("{repeat: 0, object: {kind: Service, metadata: {name: a}}}", ".repeat", "expected a number from 1 to"),
        ("{repeat: 2, kind: Service}", "", "expected `repeat` and `object`, and nothing else"),
        ("{repeat: 2, object: {kind: Service}}", ".object.metadata.name", "`metadata.name` is missing"),
        ("{kind: Secret, metadata: {name: a}, certificateFor: a}", ".certificateFor", "expected a list of host names"),
    ],
)
def test_a_fixture_is_an_object_or_stands_for_many(fixture: str, path: str, message: str) -> None:
    (problem,) = problems_of(f"one: {{fixtures: {{services: [{fixture}]}}, assertions: [{{type: haproxy_valid}}]}}")

    assert problem.path == f"validationTests.one.fixtures.services[0]{path}"
    assert problem.message.startswith(message)


def test_fixtures_are_of_a_kind_that_is_watched() -> None:
    (problem,) = problems_of("one: {previousFixtures: {service: []}, assertions: [{type: haproxy_valid}]}")

    assert problem.path == "validationTests.one.previousFixtures.service"
    assert problem.hint == "did you mean `services`?"


@pytest.mark.parametrize(
    "fixture",
    ["{kind: Ingress, metadata: {name: a}}", "{repeat: 2, object: {kind: Ingress, metadata: {name: 'a{n}'}}}"],
)
def test_an_object_under_the_name_of_another_kind_is_reported_with_its_right_name(fixture: str) -> None:
    (problem,) = problems_of(f"one: {{fixtures: {{services: [{fixture}]}}, assertions: [{{type: haproxy_valid}}]}}")

    assert problem.path == "validationTests.one.fixtures.services[0]"
    assert problem.hint == "put it under `entries`"


def test_a_kind_of_another_group_is_none_of_those_that_are_watched() -> None:
    fixture = "{apiVersion: example.com/v1, kind: Ingress, metadata: {name: a}}"

    assert problems_of(f"one: {{fixtures: {{services: [{fixture}]}}, assertions: [{{type: haproxy_valid}}]}}") == []


def test_a_test_extends_another_one_and_never_itself() -> None:
    problems = problems_of("""\
        one: {extends: two, assertions: [{type: haproxy_valid}]}
        two: {extends: three}
        three: {extends: one}
        four: {extends: fife, assertions: [{type: haproxy_valid}]}
        five: {assertions: [{type: haproxy_valid}]}
    """)

    assert [(problem.path, problem.message, problem.hint) for problem in problems] == [
        ("validationTests.one.extends", "extends itself", "one → two → three → one"),
        ("validationTests.two.extends", "extends itself", "two → three → one → two"),
        ("validationTests.three.extends", "extends itself", "three → one → two → three"),
        ("validationTests.four.extends", "there is no test 'fife'", "did you mean `five`?"),
    ]


def test_a_test_asserts_something_or_is_extended() -> None:
    assert [problem.message for problem in problems_of("one: {}")] == ["asserts nothing"]
    assert problems_of("one: {}\ntwo: {extends: one, assertions: [{type: haproxy_valid}]}") == []


def test_two_states_before_are_one_too_many() -> None:
    (problem,) = problems_of(
        "one: {currentConfig: global, previousFixtures: {services: []}, assertions: [{type: haproxy_valid}]}"
    )

    assert "exclude each other" in problem.message


def test_fetched_contents_have_a_url_and_a_content_or_an_error() -> None:
    found = problems_of(
        """
        one:
          httpResources:
            - {url: "https://a.example.com/", content: ""}
            - {url: "https://a.example.com/", error: gone}
            - {url: "ftp://b.example.com/", content: x}
            - {url: "https://c.example.com/"}
          previousHttpResources: [{url: "https://c.example.com/", content: x, error: gone}]
          assertions: [{type: haproxy_valid}]
        """
    )

    assert [(problem.path.removeprefix("validationTests.one."), problem.message) for problem in found] == [
        ("httpResources[1].url", "the URL is given twice"),
        ("httpResources[2].url", "the URL is neither `http://…` nor `https://…`"),
        ("httpResources[3]", "expected either `content` or `error`"),
        ("previousHttpResources[0]", "expected either `content` or `error`"),
    ]
