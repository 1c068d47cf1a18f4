"""Common mistakes in manifests: `validate` and `explain` name the place, the value and the fix."""

from pathlib import Path

import pytest

from tests.cli.commands import invoke_cli, replace_in

pytestmark = pytest.mark.haproxy

INGRESS = """\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {name}
  namespace: default
  annotations:
    example.com/team: abc
    {annotation}: {value}
spec:
  ingressClassName: haptic
  rules:
    - host: {name}.localhost
      http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: example, port: {{number: 80}}}}}}}}]}}
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The directory that `haptic-trio new` makes."""
    assert invoke_cli("new", tmp_path / "site").exit_code == 0
    return tmp_path / "site"


def load_libraries(site: Path, *names: str) -> None:
    """Load the libraries *names* as well."""
    replace_in(site / "config.yaml", "[base, ssl, ingress]", f"[base, ssl, ingress, {', '.join(names)}]")


def validate(site: Path, haproxy_binary: Path) -> str:
    """Return the output of `validate`."""
    return invoke_cli("validate", "--manifests", site, "--haproxy", haproxy_binary).stdout


def test_wrong_value_of_an_annotation_is_named_with_its_line(site: Path, haproxy_binary: Path) -> None:
    nginx, org = "nginx.ingress.kubernetes.io", "haproxy.org"
    wrong = {
        f"{nginx}/proxy-read-timeout": ("abc", "is not a duration"),
        f"{nginx}/proxy-body-size": ("10x", "is not a size of at most 1024g"),
        f"{nginx}/whitelist-source-range": ("10.0.0.300", "is neither an address nor a network"),
        f"{nginx}/cors-allow-origin": ("shop.test", "is not an origin"),
        f"{nginx}/permanent-redirect": ("~x", "is neither an http(s) URL nor a path"),
        f"{org}/timeout-server": ("5y", "is not a duration"),
    }
    load_libraries(site, "nginx-annotations", "haproxy-org-annotations")
    for number, (annotation, (value, _)) in enumerate(wrong.items()):
        more = f"\n    {nginx}/enable-cors: 'true'" if "cors" in annotation else ""
        text = INGRESS.format(name=f"web{number}", annotation=annotation, value=value + more)
        (site / f"web{number}.yaml").write_text(text)

    output = validate(site, haproxy_binary)

    for number, (annotation, (value, problem)) in enumerate(wrong.items()):
        place = f'{site}/web{number}.yaml:8: error: metadata.annotations["{annotation}"]'
        assert f'{place}: "{value}" {problem}\n    object: Ingress default/web{number}' in output
    assert "hint: a number and one of us, ms, s, m, h, d, such as 30s" in output


def test_unreadable_certificate_names_the_field_of_the_secret(site: Path, haproxy_binary: Path) -> None:
    secret = "kind: Secret\napiVersion: v1\nmetadata: {name: web}\ntype: kubernetes.io/tls\ndata:\n"
    (site / "secret.yaml").write_text(f"{secret}  tls.crt: YWJj\n  tls.key: eHl6\n")
    tls = "  tls: [{hosts: [example.localhost], secretName: web}]\n"
    replace_in(site / "example.yaml", "  ingressClassName: haptic\n", f"  ingressClassName: haptic\n{tls}")

    output = validate(site, haproxy_binary)

    place = f'{site}/secret.yaml:6: error: data["tls.crt"]'
    assert f"{place}: the value is not a sequence of well-formed PEM blocks\n    object: Secret default/web" in output
    assert "hint: make it with `kubectl create secret tls NAME --cert=FILE --key=FILE`" in output
    assert "YWJj" not in output


def test_explain_names_the_file_of_a_rejected_object(site: Path) -> None:
    replace_in(site / "example.yaml", "path: /\n", 'path: "/a b"\n')

    output = invoke_cli("explain", "--manifests", site, "example.localhost/a").stdout

    assert 'spec.rules[0].http.paths[0].path: "/a b" contains a space at character 3' in " ".join(output.split())
    assert f"{site}/example.yaml:8, ingress-route:" in " ".join(output.split())
