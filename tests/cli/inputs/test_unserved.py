"""`validate` warns about objects in a directory that nothing serves."""

from pathlib import Path

import pytest

from tests.cli.commands import invoke_cli, replace_in
from tests.cli.site_commands import GATEWAY, INGRESS, load_libraries, make_site, validate

pytestmark = pytest.mark.haproxy


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The directory that `haptic-trio new` makes."""
    return make_site(tmp_path)


def test_object_of_a_library_that_is_not_loaded_is_a_warning(site: Path, haproxy_binary: Path) -> None:
    (site / "gateway.yaml").write_text(GATEWAY)
    (site / "web.yaml").write_text(INGRESS.format(name="web", annotation="haproxy.org/check", value="'true'"))

    result = invoke_cli("validate", "--manifests", site, "--haproxy", haproxy_binary)

    assert result.exit_code == 0
    for line in (6, 11):
        missing = "NotWatched: no effect: the library gateway is not loaded; add it to templating.libraries"
        assert f"{site}/gateway.yaml:{line}: warning: {missing}" in result.stdout
    assert (
        f'{site}/web.yaml:8: warning: AnnotationIgnored: metadata.annotations["haproxy.org/check"]: no effect: '
        "the library haproxy-org-annotations is not loaded; add it to templating.libraries"
    ) in result.stdout


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        ("ingressClassName: nginx", "its class is nginx; this controller serves the class haptic"),
        ("defaultBackend: {service: {name: example, port: {number: 80}}}", "it has no class"),
    ],
)
def test_ingress_of_another_class_is_a_warning(site: Path, haproxy_binary: Path, new: str, reason: str) -> None:
    replace_in(site / "example.yaml", "ingressClassName: haptic", new)

    result = invoke_cli("validate", "--manifests", site, "--haproxy", haproxy_binary)

    assert result.exit_code == 0
    assert ": warning: ForeignClass: spec.ingressClassName: not served: " + reason in result.stdout


def test_missing_certificate_says_whether_the_secret_exists(site: Path, haproxy_binary: Path) -> None:
    (site / "secret.yaml").write_text("kind: Secret\napiVersion: v1\nmetadata: {name: plain}\ndata: {tls.crt: YWJj}\n")
    names = ("plain", "lost")
    tls = "".join(f"    - {{hosts: [{name}.localhost], secretName: {name}}}\n" for name in names)
    replace_in(site / "example.yaml", "  ingressClassName: haptic\n", f"  ingressClassName: haptic\n  tls:\n{tls}")

    output = validate(site, haproxy_binary)

    assert "spec.tls: the Secret default/plain is of type Opaque, not kubernetes.io/tls; " in output
    assert "spec.tls: the Secret default/lost does not exist; " in output


def test_annotation_of_a_loaded_library_or_of_another_program_gives_no_warning(
    site: Path, haproxy_binary: Path
) -> None:
    load_libraries(site, "haproxy-org-annotations")
    (site / "web.yaml").write_text(INGRESS.format(name="web", annotation="haproxy.org/check", value="'true'"))

    assert "warning" not in validate(site, haproxy_binary)
