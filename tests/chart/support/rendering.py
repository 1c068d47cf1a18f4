"""The chart as helm renders it."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from haptic_trio.k8s.resource import Resource
from tests.cluster.control_plane.binaries import KUBERNETES, BinaryUnavailableError, find_helm, provide_helm

CHART: Final = Path(__file__).parents[3] / "chart"
VALUES: Final = Path(__file__).parents[1] / "values"
VALUE_SETS: Final = ("default", *sorted(path.stem for path in VALUES.glob("*.yaml")))
RELEASE: Final = "demo"
NAMESPACE: Final = "demo"
COMMAND_LIMIT: Final = 60.0

WORKLOADS: Final = ("Deployment", "DaemonSet", "PodTemplate")
"""Kinds that pods of the chart are made from."""

Settings = Mapping[str, Any]
"""Values by their path, such as `haproxy.kind`."""


class RenderError(Exception):
    """helm rejects; the text is what it says."""


class Helm:
    """The helm of the tests, with the version of the API server to render for."""

    def __init__(self, binary: Path) -> None:
        self.binary = binary
        self._rendered: dict[tuple[str, ...], str] = {}

    def lint(self, values: str = "default") -> None:
        """Raises RenderError with what helm finds."""
        self._run(["lint", "--strict", str(CHART), *value_files(values)])

    def render(
        self,
        values: str = "default",
        *,
        file: Path | None = None,
        namespace: str = NAMESPACE,
        release: str = RELEASE,
        **settings: Any,
    ) -> list[Resource]:
        """Return the objects of the chart; raises RenderError. A `__` in the name of a setting stands for a dot.

        *file* has further values.
        """
        more = ["--values", str(file)] if file is not None else []
        options = ["--namespace", namespace, *value_files(values), *more, *set_options(settings)]
        command = ("template", release, str(CHART), *options)
        inputs = (*command, file.read_text() if file is not None else "")
        if inputs not in self._rendered:
            self._rendered[inputs] = self._run(command)
        return [each for each in yaml.safe_load_all(self._rendered[inputs]) if each]

    def notes(self, folder: Path, values: str = "default", **settings: Any) -> str:
        """Return what an installation prints; *folder* gets a copy of the chart, since only a cluster would be told."""
        chart = shutil.copytree(CHART, folder / "chart")
        text = (chart / "templates/NOTES.txt").read_text()
        document = 'kind: Notes\ntext: {{ include "notes" . | toJson }}\n'
        (chart / "templates/notes.yaml").write_text(f'{{{{- define "notes" -}}}}\n{text}{{{{- end }}}}\n{document}')
        options = ["--namespace", NAMESPACE, *value_files(values), *set_options(settings)]
        shown = self._run(["template", RELEASE, str(chart), *options, "--show-only", "templates/notes.yaml"])
        return str(yaml.safe_load(shown)["text"])

    def _run(self, arguments: Iterable[str]) -> str:
        command = [str(self.binary), *arguments, "--kube-version", KUBERNETES]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_LIMIT, check=False)
        if done.returncode:
            raise RenderError(done.stdout + done.stderr)
        return done.stdout


def value_files(values: str) -> list[str]:
    """Return the option for a set of values; the default ones need none."""
    return [] if values == "default" else ["--values", str(VALUES / f"{values}.yaml")]


def set_options(settings: Settings) -> list[str]:
    """Return *settings* as options of helm."""
    return [f"--set-json={name.replace('__', '.')}={json.dumps(value)}" for name, value in settings.items()]


def find(objects: Iterable[Resource], kind: str, suffix: str = "") -> Resource:
    """Return the only object of *kind* whose name ends in *suffix*."""
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"].endswith(suffix)]
    return found


def pod_of(workload: Resource) -> Resource:
    """Return the Pod that *workload* makes, without a name."""
    return {"apiVersion": "v1", "kind": "Pod", **workload.get("spec", workload)["template"]}


def workloads_of(objects: Iterable[Resource]) -> list[Resource]:
    """Return those of *objects* that pods are made from."""
    return [each for each in objects if each["kind"] in WORKLOADS]


@pytest.fixture(scope="session")
def helm() -> Helm:
    """Skips where there is no helm, and builds it under HAPTIC_REQUIRE_CLUSTER=1."""
    try:
        return Helm(provide_helm() if os.environ.get("HAPTIC_REQUIRE_CLUSTER") == "1" else find_helm())
    except BinaryUnavailableError as exc:
        pytest.skip(str(exc))
