"""Problems of objects name the file and line that their owner wrote."""

from pathlib import Path

import pytest

from haptic_trio.cli.inputs.object_places import placed_objects
from haptic_trio.cli.output.findings import Area, Finding
from haptic_trio.errors import Problem

MANIFESTS = """\
# A comment.
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: web
spec:
  tls: [{secretName: gone}]
  rules:
    - host: example.com
      http:
        paths:
          - path: /a
          - {path: /b c}
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a Service and an Ingress, and an Ingress of the same name in another namespace."""
    (tmp_path / "web.yaml").write_text(MANIFESTS)
    other = '{"kind": "IngressList", "items": [{"kind": "Ingress", "metadata": {"name": "web", "namespace": "other"}}]}'
    (tmp_path / "z.json").write_text(f"\n{other}\n")
    return tmp_path


def placed(directory: Path, problem: Problem) -> Problem:
    """Return *problem* with its place."""
    (found,) = placed_objects([Finding(area=Area.OBJECT, problem=problem)], directory)
    return found.problem


def test_object_and_field_are_found(directory: Path) -> None:
    problem = Problem(
        message="a space",
        source="ingress-route",
        line=17,
        path="spec.rules[0].http.paths[1].path, spec.rules[0].host",
        subject="Ingress default/web",
        excerpt="> 17 | template",
    )

    found = placed(directory, problem)

    assert (found.source, found.line) == (str(directory / "web.yaml"), 17)
    assert found.excerpt == "template ingress-route:17\n> 17 | template"
    assert (found.message, found.subject) == (problem.message, problem.subject)


@pytest.mark.parametrize(
    ("subject", "message", "place"),
    [
        ("Ingress default/web", "PortNotFound: no port", ("web.yaml", 6)),
        ("Ingress default/web", "CertificateNotFound: spec.tls: it is gone", ("web.yaml", 11)),
        ("Service shop/web", "anything", ("web.yaml", 2)),
        ("Ingress other/web", "anything", ("z.json", 2)),
    ],
)
def test_object_alone_or_field_of_the_message_is_found(
    directory: Path, subject: str, message: str, place: tuple[str, int]
) -> None:
    found = placed(directory, Problem(message=message, subject=subject))

    assert (Path(found.source).name, found.line) == place


def test_unknown_objects_and_problems_with_a_file_stay(directory: Path) -> None:
    for problem in (
        Problem(message="x", subject="Ingress default/gone", source="ingress-route", line=3),
        Problem(message="x", subject="Ingress default/web", source="manifests/config.yaml", line=3),
        Problem(message="x", source="haproxy.cfg", line=3),
    ):
        assert placed(directory, problem) == problem


def test_places_are_as_the_user_wrote_the_directory(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory)

    assert placed(Path(), Problem(message="x", subject="Service shop/web")).source == "web.yaml"
