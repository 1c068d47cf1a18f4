"""Golden files: the output of the chart for the default values, and the differences for other values.

    python -m tests.chart.support.golden_files

writes the files of `golden/` again, the chart's list of the resources that libraries watch, and the table of
its values.
"""

import difflib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import yaml

from haptic_trio.k8s.resource import Resource
from tests.chart.support.rendering import RELEASE, VALUE_SETS, Helm
from tests.chart.support.values_table import write_table
from tests.chart.support.watched import write_watched
from tests.cluster.control_plane.binaries import provide_helm

GOLDEN: Final = Path(__file__).parents[1] / "golden"
_WIDTH: Final = 130
_LABEL: Final = "app.kubernetes.io"


def path_of(values: str) -> Path:
    """Return the file of a set of values."""
    return GOLDEN / ("default.yaml" if values == "default" else f"{values}.diff")


def text_of(objects: Iterable[Resource]) -> str:
    """Return *objects* by kind and name.

    Of certificates, which are others each time, only the names; of the labels that all objects have, the component.
    """
    documents = sorted((_shortened(each) for each in objects), key=_order)
    return yaml.safe_dump_all(documents, sort_keys=False, width=_WIDTH)


def make_text(helm: Helm, values: str) -> str:
    """Return what the file of *values* should hold."""
    default = text_of(helm.render())
    if values == "default":
        return default
    lines = difflib.unified_diff(
        default.splitlines(), text_of(helm.render(values)).splitlines(), "default", values, n=1, lineterm=""
    )
    return "\n".join([*lines, ""])


def _order(resource: Resource) -> tuple[str, str, str]:
    metadata = resource["metadata"]
    return resource["kind"], metadata.get("namespace", ""), metadata["name"]


def _shortened(resource: Resource) -> Resource:
    labels = dict(resource["metadata"]["labels"])
    component = labels[f"{_LABEL}/component"]
    usual = {
        f"{_LABEL}/name": "haptic-trio",
        f"{_LABEL}/instance": RELEASE,
        f"{_LABEL}/component": component,
        f"{_LABEL}/version": labels[f"{_LABEL}/version"],
        f"{_LABEL}/managed-by": "Helm",
        "helm.sh/chart": labels["helm.sh/chart"],
    }
    others = {name: value for name, value in labels.items() if usual.get(name) != value}
    if labels.items() >= usual.items():
        labels = {"usual": component, **others}
    found = {**resource, "metadata": {**resource["metadata"], "labels": labels}}
    if resource["kind"] == "ValidatingWebhookConfiguration":
        return {**found, "webhooks": [_without_bundle(each) for each in resource["webhooks"]]}
    return {**found, "data": sorted(resource["data"])} if resource["kind"] == "Secret" else found


def _without_bundle(webhook: Resource) -> Resource:
    client = webhook["clientConfig"]
    return {**webhook, "clientConfig": {**client, "caBundle": "…"} if "caBundle" in client else client}


def main() -> int:
    """Write every file."""
    write_watched()
    write_table()
    helm = Helm(provide_helm())
    for values in VALUE_SETS:
        path_of(values).write_text(make_text(helm, values))
    return 0


if __name__ == "__main__":
    sys.exit(main())
