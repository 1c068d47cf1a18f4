"""Typical mistakes in manifests and configurations: each message names the user's file and line, and the fix."""

import pytest

from tests.cli.mistakes.commands import Shell, edit

pytestmark = pytest.mark.haproxy

SNIPPET = "X-Served-By haptic-trio"
FILES = {
    "unknown filter": (
        "config.yaml",
        (SNIPPET, "X-Served-By {{ 'x' | map_valu }}"),
        "site/config.yaml:22: error: templateSnippets.frontend-rules-served-by.template: there is no filter 'map_valu'",
        "hint: did you mean 'map_value'?",
    ),
    "unknown store": (
        "config.yaml",
        (SNIPPET, "X-Served-By {{ resources.servces.list() | length }}"),
        "site/config.yaml:22: error: 'resources' has no 'servces'",
        "hint: did you mean 'services'?",
    ),
    "unknown variable": (
        "config.yaml",
        (SNIPPET, "X-Served-By {{ nothing.at.all }}"),
        "site/config.yaml:22: error: 'nothing' is not defined template frontend-rules-served-by:1",
        "",
    ),
    "unfinished tag": (
        "config.yaml",
        (SNIPPET, "X-Served-By {{ x"),
        "site/config.yaml:22: error: templateSnippets.frontend-rules-served-by.template: unexpected end of template",
        "expected 'end of print statement'",
    ),
    "unknown action of HAProxy": (
        "config.yaml",
        ("set-header X-", "sett-header X-"),
        "site/config.yaml:22: error: unknown 'http-response' action 'sett-header' template frontend-rules-served-by:1",
        "hint: did you mean 'set-header'?",
    ),
    "unknown library": (
        "config.yaml",
        ("[base, ssl, ingress]", "[base, ssl, ingres]"),
        "site/config.yaml:12:30: error: templating.libraries[2]: there is no library 'ingres'",
        "hint: did you mean `ingress`? manifests: ok configuration: 1 problem",
    ),
    "library without the one that it needs": (
        "config.yaml",
        ("[base, ssl, ingress]", "[base, ingress, gateway]"),
        "site/config.yaml:12:34: error: templating.libraries[2]: the library 'gateway' needs the library 'ssl'",
        "hint: write libraries: [base, ingress, ssl, gateway]",
    ),
    "unknown setting": (
        "config.yaml",
        ("httpPort: 8080", "htpPort: 8080"),
        "site/config.yaml:16:9: error: templating.extraContext.htpPort: 'htpPort' is not a setting",
        "hint: did you mean `httpPort`?",
    ),
    "unknown field": (
        "config.yaml",
        ("extraContext:", "extraContxt:"),
        "site/config.yaml:14:7: error: templating.extraContxt: unknown field",
        "hint: did you mean `extraContext`?",
    ),
    "unknown type of assertion": (
        "config.yaml",
        ("type: haproxy_valid", "type: haproxy_vald"),
        "site/config.yaml:50:19: error: validationTests.example-is-served.assertions[0].type: there is no type",
        "hint: did you mean `haproxy_valid`?",
    ),
    "duration without unit": (
        "config.yaml",
        ("    templating:", "    validation: {checkTimeout: 10}\n    templating:"),
        "site/config.yaml:10:32: error: validation.checkTimeout: ",
        "hint: write `10s` for seconds or `10ms` for milliseconds",
    ),
    "tab in the configuration": (
        "config.yaml",
        ("      libraries:", "\tlibraries:"),
        "site/config.yaml:12:1: error: found a tab character where an indentation space is expected",
        "hint: indent with spaces, not with tabs",
    ),
    "tab in a manifest": (
        "example.yaml",
        ("  ingressClassName", "\tingressClassName"),
        "site/example.yaml:12:1: error: found character that cannot start any token",
        "hint: indent with spaces, not with tabs",
    ),
    "bracket in the configuration": (
        "config.yaml",
        ("libraries: [base", "libraries: [base: x: y"),
        "site/config.yaml:12:26: error: not valid YAML: did not find expected ',' or ']'",
        "hint: check quotes, brackets and indentation of this line and of the line above",
    ),
    "bracket in a manifest": (
        "example.yaml",
        ("rules:", "rules: ]"),
        "site/example.yaml:13:10: error: did not find expected node content",
        "hint: check quotes, brackets and indentation of this line and of the line above",
    ),
    "text instead of an object": (
        "example.yaml",
        ("# An example", "hello\n---\n# An example"),
        "site/example.yaml:1: error: expected an object: found the text 'hello'",
        "hint: a manifest begins with apiVersion, kind and metadata",
    ),
    "object twice": (
        "example.yaml",
        (
            "name: example-1",
            "name: example-1\n  namespace: default\n---\nkind: Service\napiVersion: v1\nmetadata:\n  name: example",
        ),
        "site/example.yaml:32: error: defined already in site/example.yaml:21 object: Service default/example",
        "hint: remove one of them; until then the first by file name and line counts",
    ),
    "misspelt field": (
        "example.yaml",
        ("ingressClassName", "ingressClasName"),
        "site/example.yaml:12: error: spec.ingressClasName: unknown field object: Ingress default/example",
        "hint: did you mean `ingressClassName`?",
    ),
    "misspelt kind": (
        "example.yaml",
        ("kind: Ingress\n", "kind: Ingres\n"),
        "site/example.yaml:9: error: kind: there is no kind 'Ingres' in networking.k8s.io/v1",
        "hint: did you mean `Ingress`?",
    ),
    "removed version": (
        "example.yaml",
        ("apiVersion: networking.k8s.io/v1\nkind: Ingress\n", "apiVersion: networking.k8s.io/v1beta1\nkind: Ingress\n"),
        "site/example.yaml:8: error: apiVersion: Ingress is not served in networking.k8s.io/v1beta1",
        "hint: write apiVersion: networking.k8s.io/v1",
    ),
    "misspelt value": (
        "example.yaml",
        ("pathType: Prefix", "pathType: Prefx"),
        "site/example.yaml:18: error: spec.rules[0].http.paths[0].pathType: 'Prefx' is not one of Exact, Prefix, ",
        "hint: did you mean `Prefix`?",
    ),
    "number in quotes": (
        "example.yaml",
        ("{number: 80}", '{number: "80"}'),
        "site/example.yaml:19: error: spec.rules[0].http.paths[0].backend.service.port.number: expected integer",
        "hint: write a number without quotes",
    ),
}


@pytest.mark.parametrize("mistake", FILES)
def test_mistake_in_a_file_is_named_with_its_line(shell: Shell, mistake: str) -> None:
    file, change, place, fix = FILES[mistake]
    edit(file, change)

    answer = shell.run("validate --manifests site")

    assert place in answer.output
    assert fix in answer.output
    assert "ConfigMap not found" not in answer.output
    assert answer.exit_code == 1


WARNINGS = {
    "misspelt extension point": (
        "config.yaml",
        ("frontend-rules-served-by", "frontend-rule-served-by"),
        (
            "site/config.yaml:20:7: warning: templateSnippets.frontend-rule-served-by: no template includes the snippet"
            " 'frontend-rule-served-by', so it has no effect"
        ),
        "hint: did you mean `frontend-rules-served-by`? Snippets with the prefix `frontend-rules-` are included",
    ),
    "port of an EndpointSlice with another name": (
        "example.yaml",
        ('{name: "", port: 8000}', "{name: web, port: 8000}"),
        "site/example.yaml:8: warning: NoEndpoints: the Service default/example has no ready endpoint",
        "(its EndpointSlices have the ports web, the Service has unnamed)",
    ),
    "another class": (
        "example.yaml",
        ("ingressClassName: haptic", "ingressClassName: nginx"),
        "site/example.yaml:12: warning: ForeignClass: spec.ingressClassName: not served: its class is nginx",
        "this controller serves the class haptic",
    ),
}


@pytest.mark.parametrize("mistake", WARNINGS)
def test_mistake_that_a_cluster_accepts_is_a_warning(shell: Shell, mistake: str) -> None:
    file, change, place, fix = WARNINGS[mistake]
    edit(file, change)
    edit("config.yaml", (", pattern: X-Served-By", ", pattern: frontend"))

    answer = shell.run("validate --manifests site")

    assert place in answer.output
    assert fix in answer.output
    assert answer.exit_code == 0


def test_failing_test_names_the_line_of_the_template_and_not_its_description_as_a_hint(shell: Shell) -> None:
    edit("config.yaml", (SNIPPET, "X-Served-By {{ nothing.at.all }}"))

    output = shell.run("test --manifests site").output
    checked = shell.run("validate --manifests site")

    assert "✗ HAProxy accepts it 0 ms" in output
    assert "site/config.yaml:22: 'nothing' is not defined" in output
    assert output.count("is not defined") == 1
    assert "the render fails: see above" in output
    assert "hint: The example Ingress" not in output + checked.output
    assert "site/config.yaml:22: error: the test 'example-is-served' (The example Ingress routes" in checked.output


def test_failing_assertion_shows_expected_and_found(shell: Shell) -> None:
    edit("config.yaml", ("value: default_example_80", "value: default_example_81"))

    answer = shell.run("test --manifests site")

    assert "expected the value 'default_example_81', found 'default_example_80' │ site/config.yaml:52" in (
        answer.output.replace(" site", " │ site")
    )
    assert answer.exit_code == 1


def test_explain_names_mistakes_in_the_files_that_it_reads(shell: Shell) -> None:
    edit("example.yaml", ("rules:", "rules: ]"))
    unread = shell.run("explain --manifests site example.localhost")
    edit("config.yaml", (SNIPPET, "X-Served-By {{ nothing.at.all }}"))
    failed = shell.run("explain --manifests site example.localhost")

    assert unread.output.startswith("site/example.yaml:13:10: error: did not find expected node content")
    assert "hint: `haptic-trio validate` says which objects are not served, and why" in unread.output
    assert "site/config.yaml:22: error: 'nothing' is not defined" in failed.output
    assert (unread.exit_code, failed.exit_code) == (1, 1)


def test_explain_says_why_no_certificate_is_served(shell: Shell) -> None:
    tls = "  tls: [{hosts: [example.localhost], secretName: web}]\n"
    edit("example.yaml", ("  ingressClassName: haptic\n", f"  ingressClassName: haptic\n{tls}"))

    answer = shell.run("explain --manifests site certificate example.localhost")

    assert "hint: no certificate is served for the host, though Ingress default/example asks for TLS" in answer.output
    assert "the Secret default/web does not exist" in answer.output
    assert answer.exit_code == 1


def test_config_map_in_a_file_that_cannot_be_read_is_not_only_missing(shell: Shell) -> None:
    edit("config.yaml", ("apiVersion: v1", "apiVersion: v1: x"))

    answer = shell.run("test --manifests site")

    assert answer.output.startswith("site/config.yaml:3:15: error: ")
    assert "not found hint: correct the files first: it may be in one of them" in answer.output
    assert answer.exit_code == 2
