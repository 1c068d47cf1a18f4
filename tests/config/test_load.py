import base64
from typing import Any

import pytest

from haptic_trio.config.load import joined_version, load_config
from haptic_trio.config.model import DataplaneKind
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem, ProblemsError

ALONE = "templating: {libraries: []}\nhaproxyConfig: {template: global}\n"


def configmap(text: str, **metadata: str) -> dict[str, Any]:
    return {
        "kind": "ConfigMap",
        "metadata": {"namespace": "demo", "name": "haptic", "resourceVersion": "7", **metadata},
        "data": {"config": text},
    }


def secret(**data: str) -> dict[str, Any]:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {
        "kind": "Secret",
        "metadata": {"namespace": "demo", "name": "creds", "resourceVersion": "9"},
        "data": encoded,
    }


def problems_of(obj: dict[str, Any], credentials: dict[str, Any] | None = None) -> tuple[Problem, ...]:
    with pytest.raises(ConfigInvalidError) as caught:
        load_config(obj, credentials)
    assert isinstance(caught.value, ProblemsError)
    return caught.value.problems


def test_configuration_and_credentials_are_loaded() -> None:
    loaded = load_config(configmap(ALONE), secret(dataplane_username="admin", dataplane_password="hush-hush"))

    assert loaded.config.haproxy_config is not None
    assert loaded.credentials is not None
    assert loaded.credentials.dataplane_password == "hush-hush"
    assert (loaded.config_map_source, loaded.secret_source) == ("ConfigMap demo/haptic", "Secret demo/creds")
    assert "hush-hush" not in repr(loaded)


def test_version_changes_with_either_object() -> None:
    both = secret(dataplane_username="a", dataplane_password="b")

    versions = {
        load_config(configmap(ALONE), None).version,
        load_config(configmap(ALONE), both).version,
        load_config(configmap(ALONE, resourceVersion="8"), both).version,
        load_config(configmap(ALONE, resourceVersion="79"), None).version,
    }

    assert len(versions) == 4
    assert load_config(configmap(ALONE), both).version == joined_version(configmap(ALONE), both)


def test_version_of_absent_objects_is_known() -> None:
    assert joined_version(None, None) == "/"


@pytest.mark.parametrize("text", ["", " \n  \n", "# nothing yet\n", "null", "~\n", "---\n", "--- # nothing\n...\n"])
def test_empty_configuration_is_rejected(text: str) -> None:
    (problem,) = problems_of(configmap(text))

    assert (problem.message, problem.path) == ("the configuration is empty", "data.config")
    assert problem.source == "ConfigMap demo/haptic"


def test_configuration_without_settings_has_every_default() -> None:
    assert load_config(configmap("{}"), None).config.templating.libraries


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ({}, "data.config"),
        ({"config.yaml": "x"}, "it has config.yaml"),
        (None, "it has no data"),
        ({"config": {"maps": {}}}, "`config: |`"),
    ],
)
def test_missing_text_has_a_hint(data: object, hint: str) -> None:
    (problem,) = problems_of({"metadata": {"name": "haptic"}, "data": data})

    assert problem.path == "data.config"
    assert problem.source == "ConfigMap haptic"
    assert hint in problem.hint


def test_problems_of_both_objects_come_together() -> None:
    problems = problems_of(configmap("dataplan: {}"), secret(dataplane_username="admin"))

    assert [problem.source for problem in problems] == ["ConfigMap demo/haptic", "Secret demo/creds"]


def test_configuration_for_a_data_plane_api_is_loaded_without_credentials() -> None:
    loaded = load_config(configmap(f"dataplane: {{kind: dataplaneapi}}\n{ALONE}"), None)

    assert loaded.config.dataplane.kind is DataplaneKind.DATAPLANEAPI
    assert loaded.credentials is None


def test_meaningless_value_has_the_line_of_the_users_text() -> None:
    (problem,) = problems_of(configmap(f"{ALONE}dataplane:\n  port: 1\n  mapsDir: /etc\n"))

    assert (problem.source, problem.line, problem.path) == ("ConfigMap demo/haptic", 5, "dataplane.mapsDir")


def test_fault_between_defaults_is_located_at_what_encloses_it() -> None:
    (problem,) = problems_of(configmap(f"{ALONE}controller:\n  leaderElection:\n    renewDeadline: 20s\n"))

    assert problem.path == "controller.leaderElection.leaseDuration"
    assert (problem.line, problem.source) == (4, "ConfigMap demo/haptic")


def test_unknown_and_repeated_libraries_are_located() -> None:
    problems = problems_of(configmap("templating:\n  libraries:\n    - base\n    - bsae\n    - base\n"))

    assert [(problem.path, problem.line) for problem in problems] == [
        ("templating.libraries[1]", 4),
        ("templating.libraries[2]", 5),
    ]


def test_unknown_library_does_not_hide_other_faults() -> None:
    problems = problems_of(configmap("templating: {libraries: [nothing]}\ndataplane: {mapsDir: /etc}\n"))

    assert [problem.path for problem in problems] == ["templating.libraries[0]", "dataplane.mapsDir"]


@pytest.mark.parametrize("metadata", [None, [], "x", {"name": None}])
def test_odd_metadata_is_not_a_crash(metadata: object) -> None:
    assert load_config({"metadata": metadata, "data": {"config": ALONE}}, None).version == "/"


def test_fault_in_a_template_keeps_its_template_line() -> None:
    (problem,) = problems_of(
        configmap("templating: {libraries: []}\nhaproxyConfig:\n  template: |\n    ok\n    {{ }}\n")
    )

    assert (problem.source, problem.line, problem.path) == ("haproxy.cfg", 2, "haproxyConfig.template")


def test_shipped_libraries_need_nothing_of_the_user() -> None:
    config = load_config(configmap("{}"), None).config

    assert config.haproxy_config is not None
    assert "ingresses" in config.watched_resources


@pytest.mark.parametrize("libraries", ["[base]", "[base, ssl]", "[base, ssl, ingress]"])
def test_shipped_libraries_check_clean_as_they_build_upon_each_other(libraries: str) -> None:
    load_config(configmap(f"templating: {{libraries: {libraries}}}"), None)


@pytest.mark.parametrize(
    ("libraries", "message", "hint"),
    [
        ("base, gateway", "the library 'gateway' needs the library 'ssl'", "write libraries: [base, ssl, gateway]"),
        (
            "nginx-annotations",
            "the library 'nginx-annotations' needs the libraries 'base', 'ingress'",
            "write libraries: [base, ingress, nginx-annotations]",
        ),
    ],
)
def test_library_that_needs_another_one_says_so_alone(libraries: str, message: str, hint: str) -> None:
    tests = "validationTests: {a: {fixtures: {ingresses: []}, assertions: [{type: haproxy_valid}]}}"

    (problem,) = problems_of(configmap(f"templating: {{libraries: [{libraries}]}}\n{tests}\n"))

    assert (problem.message, problem.hint) == (message, hint)
    assert problem.line == 1


def test_users_variable_goes_before_that_of_a_library() -> None:
    config = load_config(configmap("templating: {extraContext: {httpPort: 1234}}"), None).config

    assert config.templating.extra_context["httpPort"] == 1234
    assert "bindAddress" in config.templating.extra_context
