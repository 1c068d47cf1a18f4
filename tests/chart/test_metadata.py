"""The annotations of the chart, as Artifact Hub reads them."""

import yaml

from haptic_trio import __version__
from tests.chart.support.image import ROOT, TARGETS
from tests.chart.support.rendering import CHART
from tools.release.project import metadata

CATEGORIES = {
    *("ai-machine-learning", "database", "integration-delivery", "monitoring-logging", "networking", "security"),
    *("storage", "streaming-messaging", "skip-prediction"),
}
KINDS = {"added", "changed", "deprecated", "removed", "fixed", "security"}


def test_annotations_have_the_values_that_artifact_hub_knows() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    annotations = {name.partition("/")[2]: value for name, value in chart["annotations"].items()}
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    changes = yaml.safe_load(annotations["changes"])

    assert all(isinstance(value, str) for value in annotations.values())
    assert annotations["category"] in CATEGORIES
    assert annotations["prerelease"] in {"true", "false"}
    assert values["image"]["repository"] in TARGETS.values()
    assert yaml.safe_load(annotations["images"]) == [
        {"name": name, "image": f"{name}:{__version__}"} for name in TARGETS.values()
    ]
    assert changes
    assert all(one.keys() == {"kind", "description"} and one["kind"] in KINDS for one in changes)


def test_addresses_and_maintainers_are_those_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = metadata()

    assert chart["home"] == project["urls"]["Homepage"]
    assert chart["icon"] == f"{project['urls']['Documentation']}{__version__}/images/icon.svg"
    assert (ROOT / "docs/images/icon.svg").is_file()
    assert chart["sources"] == [project["urls"]["Source"]]
    assert [one["name"] for one in chart["maintainers"]] == [one["name"] for one in project["authors"]]
    assert [one["url"] for one in chart["maintainers"]] == [project["urls"]["Homepage"]]
