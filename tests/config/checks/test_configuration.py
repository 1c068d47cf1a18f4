from textwrap import dedent

import pytest

from haptic_trio.config.checks.configuration import check_config, check_settings
from haptic_trio.config.decode import decode_config
from haptic_trio.config.model import Config
from haptic_trio.errors import Problem

MAIN = "\nhaproxyConfig: {template: global}\n"


def problems_of(text: str) -> tuple[Problem, ...]:
    return check_config(decode_config(text + MAIN, source="x"))


def watched(**fields: str) -> str:
    values = {"apiVersion": "v1", "resources": "things"} | fields
    return f"watchedResources: {{things: {{{', '.join(f'{name}: {value}' for name, value in values.items())}}}}}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dataplane: {kind: dataplaneapi, mapsDir: haproxy/maps}",
        "dataplane: {mapsDir: same, sslCertsDir: same, generalStorageDir: same}",
        "podSelector: {matchLabels: {app.kubernetes.io/name: haproxy, empty: ''}}",
        "watchedResourcesIgnoreFields: [metadata.managedFields, 'metadata.annotations[\"a/b\"]']",
        watched(apiVersion="networking.k8s.io/v1beta1", indexBy="[\"{.metadata.labels['a/b']}\"]"),
        watched(labelSelector='"app=web,tier in (a, b)"', fieldSelector="metadata.name=x", namespaces="[a, b-c]"),
        "maps: {a.map: {template: x}}\nfiles: {a.map: {template: x}}",
        "http: {allowedNetworks: [127.0.0.1, '::1/128'], allowedHosts: ['*.example.com', 10.0.0.1, '::1']}",
    ],
)
def test_sensible_configuration_has_no_problem(text: str) -> None:
    assert problems_of(text) == ()


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("http: {allowedNetworks: [127.0.0.0/8, 127.0.0.1/8]}", "http.allowedNetworks[1]"),
        ("http: {allowedNetworks: [localhost]}", "http.allowedNetworks[0]"),
        ("http: {allowedHosts: ['*.example.com', 'https://example.com/']}", "http.allowedHosts[1]"),
        ("templating: {extraContext: {http: 1}}", "templating.extraContext.http"),
        ("controller: {leaderElection: {leaseDuration: 10s}}", "controller.leaderElection.leaseDuration"),
        ("controller: {leaderElection: {retryPeriod: 10s}}", "controller.leaderElection.renewDeadline"),
        ("controller: {leaderElection: {leaseName: Upper_case}}", "controller.leaderElection.leaseName"),
        ("podSelector: {matchLabels: {app: 'a b'}}", "podSelector.matchLabels.app"),
        ("podSelector: {matchLabels: {app: 'a,b=c'}}", "podSelector.matchLabels.app"),
        ("dataplane: {mapsDir: /etc/maps}", "dataplane.mapsDir"),
        ("dataplane: {kind: agent, sslCertsDir: /x}", "dataplane.sslCertsDir"),
        ("dataplane: {kind: dataplaneapi, mapsDir: /etc/maps}", "dataplane.mapsDir"),
        ("dataplane: {generalStorageDir: a/../../b}", "dataplane.generalStorageDir"),
        ("dataplane: {kind: dataplaneapi, mapsDir: /a/../b}", "dataplane.mapsDir"),
        ("dataplane: {mapsDir: ''}", "dataplane.mapsDir"),
        ("dataplane: {mapsDir: 'a b'}", "dataplane.mapsDir"),
        ("dataplane: {configFile: sub/}", "dataplane.configFile"),
        ("dataplane: {configFile: .}", "dataplane.configFile"),
        ("templating: {extraContext: {a-b: 1}}", "templating.extraContext.a-b"),
        ("templating: {extraContext: {_private: 1}}", "templating.extraContext._private"),
        ("watchedResourcesIgnoreFields: ['a[']", "watchedResourcesIgnoreFields[0]"),
        ("watchedResourcesIgnoreFields: [a, '$..b']", "watchedResourcesIgnoreFields[1]"),
        ("watchedResources: {a-b: {apiVersion: v1, resources: x}}", "watchedResources.a-b"),
        (watched(apiVersion="networking/1"), "watchedResources.things.apiVersion"),
        (watched(apiVersion="V1"), "watchedResources.things.apiVersion"),
        (watched(resources="Ingress"), "watchedResources.things.resources"),
        (watched(indexBy="[metadata.name, 'a[']"), "watchedResources.things.indexBy[1]"),
        (watched(namespaces="[a, Upper]"), "watchedResources.things.namespaces[1]"),
        (watched(labelSelector="a=b=c"), "watchedResources.things.labelSelector"),
        (watched(fieldSelector="metadata.name"), "watchedResources.things.fieldSelector"),
        ("maps: {../up: {template: x}}", 'maps["../up"]'),
        ("maps: {'': {template: x}}", 'maps[""]'),
        ("files: {a/b: {template: x}}", 'files["a/b"]'),
        ("sslCertificates: {.hidden: {template: x}}", 'sslCertificates[".hidden"]'),
        ("crtLists: {'a b': {template: x}}", 'crtLists["a b"]'),
        ("templateSnippets: {maps/x: {template: x}}", 'templateSnippets["maps/x"]'),
        ("templateSnippets: {haproxy.cfg: {template: x}}", 'templateSnippets["haproxy.cfg"]'),
        ("sslCertificates: {a.pem: {template: x}}\ncrtLists: {a.pem: {template: x}}", 'crtLists["a.pem"]'),
        ("dataplane: {generalStorageDir: .}\nfiles: {haproxy.cfg: {template: x}}", 'files["haproxy.cfg"]'),
        ("dataplane: {generalStorageDir: .}\nfiles: {maps: {template: x}}", "files.maps"),
    ],
)
def test_each_fault_is_found_at_its_path(text: str, path: str) -> None:
    assert [problem.path for problem in problems_of(text)] == [path]


def test_jsonpath_fault_says_where_in_the_expression() -> None:
    (problem,) = problems_of(watched(indexBy="['metadata[name']"))

    assert "'metadata[name'" in problem.message
    assert problem.hint


def test_all_faults_are_reported_at_once() -> None:
    text = "dataplane: {mapsDir: /x, configFile: .}\nmaps: {../x: {template: y}}\n" + watched(
        resources="X", apiVersion="y"
    )

    assert len(problems_of(text)) == 5


@pytest.mark.parametrize("name", ["resources", "fail", "paths", "snippets"])
def test_variable_cannot_hide_what_templates_rely_on(name: str) -> None:
    (problem,) = problems_of(f"templating: {{extraContext: {{{name}: 1}}}}")

    assert problem.path == f"templating.extraContext.{name}"


def test_faults_of_all_templates_come_with_template_line_and_path() -> None:
    text = dedent("""
        maps:
          host.map:
            template: |
              {% for x in y %}
              {{ x | wrd }}
              {% endfor %}
        templateSnippets:
          part: {template: "{{ 1 "}
        files:
          a.txt: {template: "{% include 'prt' %}"}
    """)

    problems = {problem.source: problem for problem in problems_of(text)}

    assert {source: (problem.line, problem.path) for source, problem in problems.items()} == {
        "maps/host.map": (2, 'maps["host.map"].template'),
        "part": (1, "templateSnippets.part.template"),
        "files/a.txt": (1, 'files["a.txt"].template'),
    }
    assert "part" in problems["files/a.txt"].hint


def test_snippets_can_be_included_by_prefix() -> None:
    config = decode_config(
        "templateSnippets: {a-1: {template: x}}\n"
        "haproxyConfig: {template: \"{% for s in snippets('a-') %}{% include s %}{% endfor %}\"}",
        source="x",
    )

    assert check_config(config) == ()


def test_missing_main_template_is_a_fault_of_the_templates_only() -> None:
    assert [problem.path for problem in check_config(Config())] == ["haproxyConfig"]
    assert check_settings(Config()) == ()
