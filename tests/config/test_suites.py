from functools import cache

import pytest

from haptic_trio.config.libraries import library_names
from haptic_trio.config.load import LoadedConfig, load_config
from haptic_trio.config.suites import Suite, read_library_suites, read_suite
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem


@cache
def loaded() -> LoadedConfig:
    return load_config(
        {
            "metadata": {"namespace": "default", "name": "haptic-trio"},
            "data": {"config": "validationTests: {own: {assertions: [{type: haproxy_valid}]}}"},
        },
        None,
    )


TESTS = """\
extraContext: {balance: leastconn}
templateSnippets:
  frontends-extra: {template: "frontend extra\\n"}
validationTests:
  one:
    assertions:
      - {type: contains, text: a}
"""


def read(text: str) -> Suite:
    return read_suite(text, source="tests.yaml", config=loaded().config, layers=loaded().layers)


def test_a_file_has_tests_variables_and_snippets_of_its_own() -> None:
    suite = read(TESTS)

    assert list(suite.tests) == ["one"]
    assert suite.config.templating.extra_context["balance"] == "leastconn"
    assert suite.config.templating.extra_context["httpPort"] == 8080
    assert suite.config.template_snippets["frontends-extra"].template == "frontend extra\n"
    assert "frontends-http" in suite.config.template_snippets


def test_a_problem_finds_its_place_in_the_file_or_in_what_is_below_it() -> None:
    suite = read(TESTS)

    own = suite.locate(Problem(message="", path="validationTests.one.assertions[0]"))
    assert (own.source, own.line) == ("tests.yaml", 7)
    below = suite.locate(Problem(message="", path="templateSnippets.frontends-http"))
    assert below.source == "library base"


def test_all_problems_of_a_file_come_with_their_lines() -> None:
    with pytest.raises(ConfigInvalidError) as rejected:
        read(TESTS.replace("text: a", "text: a, section: x, target: y").replace("frontend extra", "{% broken"))

    assert [(problem.source, problem.line) for problem in rejected.value.problems] == [
        ("tests.yaml", 7),
        ("frontends-extra", 1),
    ]


def test_only_tests_of_a_library_choose_libraries() -> None:
    with pytest.raises(ConfigInvalidError, match="only tests of a library choose libraries"):
        read("libraries: [base]\n" + TESTS)


def test_the_tests_of_a_library_are_for_the_libraries_that_they_name() -> None:
    (frame,) = (suite for suite in read_library_suites("base") if "frame" in suite.name)

    assert frame.name == "library base/tests/frame.yaml"
    assert frame.config.templating.libraries == ("base",)
    assert "services" not in frame.config.watched_resources
    assert all("services" in suite.config.watched_resources for suite in read_library_suites("ingress"))


def test_an_unknown_library_has_no_tests() -> None:
    with pytest.raises(ConfigInvalidError, match="there is no library 'bse'"):
        read_library_suites("bse")


@pytest.mark.slow
def test_every_shipped_library_can_be_read() -> None:
    assert all(suite.tests for name in library_names() for suite in read_library_suites(name))
