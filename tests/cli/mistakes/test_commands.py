"""Typical mistakes in command lines and kubeconfigs: each message names the place and the fix."""

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.mistakes.commands import KUBECONFIG, Shell

pytestmark = pytest.mark.haproxy

ONE_OF = "give one of --manifests DIR, --kubeconfig FILE or --in-cluster (without them, $KUBECONFIG or ~/.kube/config"
COMMANDS = {
    "misspelt command": ("valdate", 2, "No such command 'valdate'. Did you mean 'validate'?"),
    "misspelt option": (
        "validate --manifest site",
        2,
        "No such option '--manifest'. Did you mean '--manifests'?",
    ),
    "missing directory": (
        "serve --manifests nowhere",
        2,
        "'--manifests': Directory 'nowhere' does not exist; `haptic-trio new DIR` makes one with an example",
    ),
    "no cluster": ("validate", 2, ONE_OF),
    "two clusters": ("validate --manifests site --kubeconfig kubeconfig", 2, ONE_OF),
    "unknown ConfigMap": (
        "validate --manifests site --config-map edge",
        1,
        (
            "ConfigMap default/edge: error: not found hint: add it to the manifests, or select another one with"
            " --namespace and --config-map (there is ConfigMap default/haptic-trio)"
        ),
    ),
    "missing kubeconfig": (
        "validate --kubeconfig nothing",
        2,
        "'--kubeconfig': File 'nothing' does not exist; give the kubeconfig that kubectl uses, such as ~/.kube/config",
    ),
    "address without host": (
        "serve --manifests site --listen 9090",
        2,
        "'--listen': '9090' is not an address with a port (expected such as 127.0.0.1:9090 or [::1]:9090)",
    ),
    "missing HAProxy": (
        "validate --manifests site --haproxy nothing",
        2,
        "--haproxy nothing: no such executable; give the path of an HAProxy, or omit the option to search PATH",
    ),
    "another program as HAProxy": (
        "validate --manifests site --haproxy /bin/true",
        2,
        "/bin/true is not HAProxy: the output of -vv has no version; name another binary with --haproxy",
    ),
    "old HAProxy": (
        "validate --manifests site --haproxy ./haproxy-2.4",
        2,
        "HAProxy 2.4.0 is not supported; the oldest supported version is 2.8. Name another binary with --haproxy",
    ),
    "explain an unknown host": (
        "explain --manifests site exmple.localhost",
        1,
        "nothing is named 'exmple.localhost' did you mean example.localhost",
    ),
    "explain an unknown line": (
        "explain --manifests site haproxy.cf:12",
        1,
        "nothing is named 'haproxy.cf:12' did you mean haproxy.cfg:12",
    ),
    "explain a line after the last one": ("explain --manifests site haproxy.cfg:9999", 1, "did you mean haproxy.cfg:"),
    "explain an unknown object": (
        "explain --manifests site Ingress default/exampl",
        1,
        "no object 'Ingress default/exampl' did you mean Ingress default/example",
    ),
    "explain an unknown kind": (
        "explain --manifests site Ingres default/example",
        1,
        (
            "no object 'Ingres default/example' did you mean Ingress default/example"
            " hint: watched kinds with objects: EndpointSlice, Ingress, IngressClass, Service"
        ),
    ),
    "new over existing files": (
        "new site",
        2,
        "site/config.yaml, site/example.yaml: already exists; use another directory",
    ),
    "debug without a controller": (
        "debug --state-dir state",
        2,
        (
            "no console found: state/console.address: No such file or directory; give the --state-dir of a running"
            " controller, or --url and --token-file"
        ),
    ),
    "unreadable kubeconfig": (
        "validate --kubeconfig broken",
        2,
        "broken:3:9: not valid YAML: expected ',' or ']', but got ':'; compare with `kubectl config view`",
    ),
    "unknown context": (
        "validate --kubeconfig kubeconfig --context prod",
        2,
        "kubeconfig: there is no context 'prod' (contexts: dev); compare with `kubectl config view`",
    ),
    "API server away": (
        "validate --kubeconfig kubeconfig",
        2,
        (
            "API server https://127.0.0.1:1 (context dev of kubeconfig): list the kinds of v1: all attempts to"
            " connect to 127.0.0.1:1 failed (is the API server running, and is the address in the credentials right?)"
        ),
    ),
    "in-cluster outside of a pod": (
        "validate --in-cluster",
        2,
        "not in a cluster: KUBERNETES_SERVICE_HOST is not set; outside of a pod, give --kubeconfig FILE",
    ),
}


@pytest.mark.parametrize("mistake", COMMANDS)
def test_mistake_in_a_command_line_is_explained(shell: Shell, mistake: str) -> None:
    command, exit_code, message = COMMANDS[mistake]

    answer = shell.run(command)

    assert message in answer.output
    assert answer.exit_code == exit_code


KUBECONFIGS = {
    "missing plugin": (
        "{token: abc}",
        "{exec: {command: no-such-plugin}}",
        "no-such-plugin: No such file or directory",
    ),
    "server without scheme": (
        "https://127.0.0.1:1",
        "127.0.0.1:1",
        "the server '127.0.0.1:1' has no scheme; write https://127.0.0.1:1",
    ),
    "unknown cluster": ("cluster: edge,", "cluster: lab,", "Cluster lab not found; compare with `kubectl config view`"),
}


@pytest.mark.parametrize("mistake", KUBECONFIGS)
def test_mistake_in_a_kubeconfig_names_file_and_context(shell: Shell, mistake: str) -> None:
    old, new, message = KUBECONFIGS[mistake]
    new = new.replace("{command", "{apiVersion: client.authentication.k8s.io/v1, command")
    Path("kubeconfig").write_text(KUBECONFIG.replace(old, new))

    answer = shell.run("validate --kubeconfig kubeconfig")

    assert f"error: kubeconfig: context dev: {message}" in answer.output
    assert answer.exit_code == 2


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (HTTPStatus.NOT_FOUND, "the answer is 404"),
        (HTTPStatus.OK, "the answer is not a list of resources: JSON is malformed"),
        (HTTPStatus.UNAUTHORIZED, "401 "),
    ],
)
def test_another_server_at_the_address_is_not_taken_for_an_empty_cluster(
    shell: Shell, answer: HTTPStatus, message: str
) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(answer)
            self.end_headers()
            self.wfile.write(b"<html>\n<body>Hello</body>\n</html>\n")

        def log_message(self, *_values: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}"
        Path("kubeconfig").write_text(KUBECONFIG.replace("https://127.0.0.1:1", url))
        found = shell.run("validate --kubeconfig kubeconfig")
        server.shutdown()

    assert f"error: API server {url} (context dev of kubeconfig): " in found.output
    assert f": {message}" in found.output
    assert ("Is this the address of a Kubernetes API server?" in found.output) == (
        answer is not HTTPStatus.UNAUTHORIZED
    )
    assert found.exit_code == 2


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("kubeconfig", "API server https://127.0.0.1:1 (context dev of kubeconfig): "),
        ("nothing:broken", "error: broken:3:9: not valid YAML"),
        ("nothing", "KUBECONFIG names nothing, which does not exist; give --kubeconfig FILE"),
    ],
)
def test_kubeconfig_of_the_environment_is_used_and_named(shell: Shell, value: str, message: str) -> None:
    shell.monkeypatch.setenv("KUBECONFIG", value)

    answer = shell.run("validate")

    assert message in answer.output
    assert answer.exit_code == 2


def test_help_of_serve_has_its_options_in_groups(shell: Shell) -> None:
    output = shell.run("serve --help").output

    groups = ["Cluster and configuration:", "HAProxy on this machine:", "Health, metrics, console and traces:", "Log:"]
    assert sorted(groups, key=output.index) == groups
