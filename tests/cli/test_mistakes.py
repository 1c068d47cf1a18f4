"""Common mistakes in manifests: `validate` and `explain` name the place, the value and the fix."""

from pathlib import Path

import pytest

from tests.cli.commands import invoke_cli, replace_in
from tests.cli.site_commands import GATEWAY, INGRESS, explain, load_libraries, make_site, validate

pytestmark = pytest.mark.haproxy


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The directory that `haptic-trio new` makes."""
    return make_site(tmp_path)


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


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("config.yaml", "httpPort: 8080", 'httpPort: "8080"', "hint: write it without quotes"),
        (
            "example.yaml",
            "port: {number: 80}",
            'port: {number: "80"}',
            'the Service default/example has no port "80", which must be a number without quotes (ports: 80)',
        ),
        (
            "example.yaml",
            "host: example.localhost",
            "host: exa_mple.localhost",
            "hint: labels of 1 to 63 letters, digits and inner '-'",
        ),
        ("example.yaml", "# An example", "hello\n---\n# An example", "expected an object: found the text 'hello'"),
    ],
)
def test_small_mistake_names_the_fix(
    site: Path, haproxy_binary: Path, file: str, old: str, new: str, message: str
) -> None:
    replace_in(site / file, old, new)

    assert message in validate(site, haproxy_binary)


def test_explain_names_the_file_of_a_rejected_object(site: Path) -> None:
    replace_in(site / "example.yaml", "path: /\n", 'path: "/a b"\n')

    output = invoke_cli("explain", "--manifests", site, "example.localhost/a").stdout

    assert 'spec.rules[0].http.paths[0].path: "/a b" contains a space at character 3' in " ".join(output.split())
    assert f"{site}/example.yaml:8, ingress-route:" in " ".join(output.split())


SERVED_CLASS = (
    "this controller serves the GatewayClasses haptic with spec.controllerName haptic-trio/gateway-controller"
)
ROUTE_MISTAKES = {
    "parentRefs: [{name: gw}]": (
        "parentRefs: [{name: gwx}]",
        "15: warning: NoMatchingParent: spec.parentRefs[0]: the Gateway default/gwx does not exist (Gateways: ",
        "the Gateway default/gwx does not exist",
    ),
    "{name: example, port: 80}": (
        "{name: exampel, port: 80}",
        "17: warning: BackendNotFound: spec.rules[0].backendRefs[0]: the Service default/exampel does not exist",
        "the answer 500",
    ),
    "gatewayClassName: haptic": (
        "gatewayClassName: haptik",
        f"9: warning: GatewayClassNotFound: spec.gatewayClassName: there is no GatewayClass haptik; {SERVED_CLASS}",
        "there is no GatewayClass haptik",
    ),
    "hostnames:": ("hostname:", "16: error: spec.hostname: unknown field", ""),
}


@pytest.mark.parametrize("old", ROUTE_MISTAKES)
def test_mistake_in_a_route_of_a_gateway_is_named(site: Path, haproxy_binary: Path, old: str) -> None:
    new, problem, reason = ROUTE_MISTAKES[old]
    load_libraries(site, "gateway")
    (site / "gateway.yaml").write_text(GATEWAY.replace(old, new))

    assert f"{site}/gateway.yaml:{problem}" in validate(site, haproxy_binary)
    assert reason in explain(site, "shop.localhost/")


def test_healthy_route_of_a_gateway_is_explained_first(site: Path, haproxy_binary: Path) -> None:
    load_libraries(site, "gateway")
    (site / "gateway.yaml").write_text(GATEWAY)

    output = explain(site, "shop.localhost/")

    assert "gateway.yaml" not in validate(site, haproxy_binary)
    place = "at the listener default/gw/http of frontend gateway-port::default_gw_8085"
    made_by = "(maps/gateway-prefix.map:1, HTTPRoute default/shop)"
    assert f"routed to backend gateway::default_example_80 {made_by}, {place}" in output
