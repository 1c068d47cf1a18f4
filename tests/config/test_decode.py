from textwrap import dedent

import msgspec
import pytest

from haptic_trio.config.decode import decode_config, decode_text
from haptic_trio.config.model import Config, DataplaneKind, Duration, LogLevel, StoreKind
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem


def problems_of(text: str) -> tuple[Problem, ...]:
    with pytest.raises(ConfigInvalidError) as caught:
        decode_config(dedent(text), source="ConfigMap demo/haptic")
    return caught.value.problems


def only_problem(text: str) -> Problem:
    (problem,) = problems_of(text)
    return problem


@pytest.mark.parametrize("text", ["", "# nothing\n", "null", "{}", "---\n"])
def test_empty_text_is_the_default_configuration(text: str) -> None:
    assert decode_config(text, source="x") == Config()


def test_fields_are_decoded() -> None:
    config = decode_config(
        dedent("""
            podSelector: {matchLabels: {app: haproxy}}
            controller:
              leaderElection: {enabled: false, leaseDuration: 1m}
            logging: {level: debug}
            dataplane: {kind: agent, port: 5_556, minDeploymentInterval: 250ms}
            templating:
              libraries: []
              extraContext: {limits: {burst: 10, share: 0.5}, hosts: [a, b], on: true, none: null}
            watchedResources:
              ingresses:
                apiVersion: networking.k8s.io/v1
                resources: ingresses
                indexBy: [metadata.namespace]
                store: on-demand
            maps:
              host.map: {template: "x\\n"}
            haproxyConfig:
              template: |
                global
            validationTests:
              one:
                fixtures: {ingresses: [{metadata: {name: a}}]}
                assertions: [{type: contains}]
        """).replace("on: true", '"on": true'),
        source="x",
    )

    assert config.pod_selector.match_labels == {"app": "haproxy"}
    assert config.controller.leader_election.enabled is False
    assert config.controller.leader_election.lease_duration == Duration(60)
    assert config.logging.level is LogLevel.DEBUG
    assert (config.dataplane.kind, config.dataplane.port) == (DataplaneKind.AGENT, 5556)
    assert config.dataplane.min_deployment_interval == Duration(0.25)
    assert config.templating.libraries == ()
    assert config.templating.extra_context == {
        "limits": {"burst": 10, "share": 0.5},
        "hosts": ["a", "b"],
        "on": True,
        "none": None,
    }
    watched = config.watched_resources["ingresses"]
    assert (watched.index_by, watched.store) == (("metadata.namespace",), StoreKind.ON_DEMAND)
    assert config.maps["host.map"].template == "x\n"
    assert config.haproxy_config is not None
    assert config.haproxy_config.template == "global\n"
    assert config.validation_tests["one"].fixtures == {"ingresses": [{"metadata": {"name": "a"}}]}


def test_all_problems_come_at_once_in_order_of_the_text() -> None:
    problems = problems_of("""
        controler: {}
        dataplane:
          port: 0
          kind: agnt
        watchedResources:
          ingresses:
            apiVersion: v1
            indexBy: [metadata.name, 5]
    """)

    assert [(problem.line, problem.path) for problem in problems] == [
        (2, "controler"),
        (4, "dataplane.port"),
        (5, "dataplane.kind"),
        (8, "watchedResources.ingresses.resources"),
        (9, "watchedResources.ingresses.indexBy[1]"),
    ]
    assert {problem.source for problem in problems} == {"ConfigMap demo/haptic"}


@pytest.mark.parametrize(
    ("text", "path", "hint"),
    [
        ("dataplan: {}", "dataplan", "`dataplane`"),
        ("pod_selector: {}", "pod_selector", "`podSelector`"),
        ("dataplane: {minDeployInterval: 5s}", "dataplane.minDeployInterval", "`minDeploymentInterval`"),
        ("logging: {zzz: 1}", "logging.zzz", "valid are: level"),
        ("logging: {level: INFO}", "logging.level", "`info`"),
        ("logging: {level: 5}", "logging.level", "valid are: debug, error"),
    ],
)
def test_unknown_names_come_with_the_nearest_valid_one(text: str, path: str, hint: str) -> None:
    problem = only_problem(text)

    assert problem.path == path
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("maps: [a]", "expected a mapping, found a list"),
        ("- a", "expected a mapping, found a list"),
        ("just text", "expected a mapping, found the text 'just text'"),
        ("templating: {libraries: base}", "expected a list, found the text 'base'"),
        ("dataplane: {port: '80'}", "expected a whole number, found the text '80'"),
        ("dataplane: {port: 80.5}", "expected a whole number, found the number 80.5"),
        ("dataplane: {port: true}", "expected a whole number, found the truth value true"),
        ("dataplane: {port: 0o17}", "expected a whole number, found the text '0o17'"),
        ("dataplane: {port: 0555}", "expected a whole number in decimal digits, found the number 0555"),
        ("dataplane: {port: 65536}", "expected a number from 1 to 65535, found the number 65536"),
        ("dataplane: {maxParallel: -1}", "expected a number of at least 0, found the number -1"),
        ("dataplane: {mapsDir: null}", "expected text, found nothing"),
        ("dataplane: {mapsDir: {a: b}}", "expected text, found a mapping"),
        ("dataplane: {kind: [local]}", "expected one of local, agent, dataplaneapi, found a list"),
        ("controller: {leaderElection: {enabled: 'true'}}", "expected true or false, found the text 'true'"),
        ("controller: {startTimeout: 0s}", "must be longer than nothing"),
        ("controller: {startTimeout: 5}", "a duration needs a unit, found '5'"),
        ("controller: {startTimeout: [5s]}", "expected a duration such as `5s`, found a list"),
        ("controller: {startTimeout: -5s}", "a duration cannot be negative, found '-5s'"),
        ("maps: {a.map: null}", "expected a mapping, found nothing"),
        ("maps: {a.map: {}}", "`template` is missing"),
        ("haproxyConfig: {template: !secret x}", "expected text, found the text 'x'"),
        ("templating: {extraContext: {a: !foo x}}", "the tag '!foo' is not supported"),
        ("templating: {extraContext: {a: .inf}}", "infinite and undefined numbers are not supported"),
        ("templating: {extraContext: {a: !!int x}}", "x is not a valid value of type int"),
        ("templating: {extraContext: {a: !!bool x}}", "x is not a valid value of type bool"),
        ("templating: {extraContext: {5: a}}", "keys must be text, found the number 5"),
        ("templating: {extraContext: {[a]: a}}", "keys must be text, found a list"),
        ("templating: {extraContext: !!set {a, b}}", "expected a mapping, found a mapping"),
        (
            "watchedResources: {a: {apiVersion: v1, resources: b, indexBy: []}}",
            "expected a list of at least 1, found 0",
        ),
    ],
)
def test_wrong_values_say_what_was_expected_and_found(text: str, message: str) -> None:
    assert only_problem(text).message == message


def test_text_that_yaml_takes_for_a_number_is_to_be_quoted() -> None:
    problem = only_problem("podSelector: {matchLabels: {version: 1.10}}")

    assert problem.hint == 'put it in quotes: "1.10"'


def test_key_given_twice_says_where_the_first_is() -> None:
    problem = only_problem("dataplane:\n  port: 1\n  kind: local\n  port: 2\n")

    assert (problem.line, problem.path, problem.hint) == (4, "dataplane.port", "the first is 2 lines above")


def test_key_given_twice_is_found_at_any_depth() -> None:
    problem = only_problem("templating:\n  extraContext:\n    a:\n      - b: 1\n        b: 2\n")

    assert (problem.line, problem.path) == (5, "templating.extraContext.a[0].b")


@pytest.mark.parametrize(
    "section",
    ["podSelector", "controller", "dataplane", "templating", "maps", "watchedResources", "haproxyConfig"],
)
def test_section_with_nothing_in_it_is_absent(section: str) -> None:
    assert decode_config(f"{section}:\n", source="x") == Config()


def test_null_list_is_the_default() -> None:
    assert decode_config("templating:\n  libraries:\n", source="x").templating.libraries == ("base", "ssl", "ingress")


def test_dates_and_clock_times_stay_text() -> None:
    config = decode_config("templating: {extraContext: {day: 2024-02-30, time: 22:22}}", source="x")

    assert config.templating.extra_context == {"day": "2024-02-30", "time": "22:22"}


def test_merge_keys_are_resolved_and_own_keys_win() -> None:
    config = decode_config(
        dedent("""
            templating:
              extraContext:
                base: &base {a: 1, b: 1}
                other: &other {b: 2, c: 2}
                all: {<<: [*base, *other], a: 3}
        """),
        source="x",
    )

    assert config.templating.extra_context["all"] == {"a": 3, "b": 1, "c": 2}


def test_problem_carries_the_line_itself() -> None:
    assert only_problem("dataplane:\n  port: x\n").excerpt == "  port: x"


def test_places_are_known_by_path() -> None:
    decoded = decode_text("maps:\n  a.map:\n    template: x\n", Config, source="x")

    assert decoded.places['maps["a.map"]'] == (2, 3)
    assert decoded.places['maps["a.map"].template'] == (3, 5)


def test_decoded_configuration_cannot_be_changed() -> None:
    config = decode_config("", source="x")

    with pytest.raises(AttributeError):
        config.dataplane.port = 1  # type: ignore[misc]
    assert msgspec.structs.replace(config) == config
