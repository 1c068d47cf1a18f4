"""Alerts and dashboard ask for what the controller exports, in expressions that Prometheus can read."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from haptic_trio.cli.serving.probes import WITHIN
from haptic_trio.fleet.model import InstanceState
from haptic_trio.webhook.metrics import UNCHECKED
from tests.chart.support.promql import Query, parse
from tests.chart.support.rendering import CHART, NAMESPACE, RELEASE, Helm, RenderError, find
from tools.docgen.metrics import all_families

DOCS = Path(__file__).parents[2] / "docs"
ALERTS: list[dict[str, str]] = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
DASHBOARD: dict[str, Any] = json.loads((CHART / "files" / "dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
OF_TARGETS = {"namespace", "job", "pod"}
"""Labels that the Prometheus operator adds to everything of a ServiceMonitor."""
SAMPLES = {sample: set(family.labels) for family in all_families() for sample in family.samples}
SELECTOR = 'namespace="demo",job="demo-controller-metrics"'


VALUES = {
    "within": set(WITHIN),
    "state": {state.value for state in InstanceState},
    "reason": {"failed", "start timed out", "configuration changed"},
    "error": {"Expired"},
    "outcome": {"failed", UNCHECKED},
    "result": {"accepted", "rejected"},
}
"""What labels are compared with, and what they can be."""


def check(expression: str) -> Query:
    """Return what *expression* asks for, all of which has to be there."""
    query = parse(expression)
    assert query.kind != "range"
    for selector in query.selectors:
        for name, value in selector.matchers:
            assert name in OF_TARGETS or set(value.split("|")) <= VALUES[name], f"{name} is never {value}"
        if selector.metric == "up" or selector.metric.startswith("haproxy_"):
            # Not of the controller: what HAProxy exports is looked up where it runs.
            assert {"namespace", "job"} <= selector.labels
            continue
        known = SAMPLES[selector.metric] | OF_TARGETS
        assert selector.labels <= known, selector
        assert {"namespace", "job"} <= selector.labels, f"{selector.metric} is of any release"
    if any(one.metric.startswith("haproxy_") for one in query.selectors):
        return query
    there = set.union(OF_TARGETS, *(SAMPLES.get(one.metric, set()) for one in query.selectors))
    buckets = {"le"} if any(one.metric.endswith("_bucket") for one in query.selectors) else set()
    assert query.grouped <= there | buckets
    return query


@pytest.mark.parametrize("alert", ALERTS, ids=[alert["alert"] for alert in ALERTS])
def test_alert_asks_for_what_there_is_and_says_what_it_means(alert: dict[str, str]) -> None:
    query = check(alert["expr"].replace("SELECTOR", SELECTOR))

    assert re.fullmatch(r"Haptic[A-Z]\w+", alert["alert"])
    assert re.fullmatch(r"\d+[mh]", alert["for"])
    assert alert["severity"] in {"critical", "warning", "info"}
    assert alert["summary"].endswith(".")
    assert "{{" not in alert["summary"], "alerts of one kind have one summary"
    assert alert["description"].endswith(".")
    assert set(re.findall(r"\$labels\.(\w+)", alert["description"])) <= query.grouped


def test_each_alert_has_a_part_in_the_runbook_and_each_part_an_alert() -> None:
    headings = re.findall(r"^## (Haptic\w+)$", (DOCS / "alerts.md").read_text(), re.MULTILINE)

    assert headings == [alert["alert"] for alert in ALERTS]


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_panel_asks_for_what_there_is(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        expression = target["expr"].replace("$__rate_interval", "5m")
        query = check(expression)

        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= query.grouped
        assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_panels_do_not_overlap_and_their_variables_are_there() -> None:
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len(ids) == len(set(ids))
    assert [one["name"] for one in DASHBOARD["templating"]["list"]] == ["datasource", "namespace", "job", "haproxy"]
    for query in (one.get("definition", "") for one in DASHBOARD["templating"]["list"]):
        assert all(name in SAMPLES for name in re.findall(r"haptic_\w+", query))


@pytest.mark.process
def test_nothing_of_it_is_there_unless_it_is_asked_for(helm: Helm) -> None:
    kinds = {one["kind"] for one in helm.render()}

    assert not kinds & {"PrometheusRule", "ServiceMonitor"}
    assert not [one for one in helm.render() if one["metadata"]["name"].endswith("-dashboard")]


@pytest.mark.process
def test_rule_is_of_this_release_and_leads_to_the_runbook(helm: Helm) -> None:
    objects = helm.render(
        prometheusRule={
            "enabled": True,
            "labels": {"release": "prometheus"},
            "alertLabels": {"team": "edge"},
            "disabled": ["HapticReloadsOften"],
            "runbooks": "https://docs.test/alerts.md",
        }
    )
    rule = find(objects, "PrometheusRule")
    (group,) = rule["spec"]["groups"]
    service = find(objects, "Service", "-controller-metrics")["metadata"]["name"]

    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert [one["alert"] for one in group["rules"]] == [
        alert["alert"] for alert in ALERTS if alert["alert"] != "HapticReloadsOften"
    ]
    for one in group["rules"]:
        assert f'namespace="{NAMESPACE}",job="{service}"' in one["expr"]
        assert "SELECTOR" not in one["expr"]
        check(one["expr"])
        assert one["labels"].keys() == {"severity", "team"}
        assert one["annotations"]["runbook_url"] == f"https://docs.test/alerts.md#{one['alert'].lower()}"
        assert one["annotations"].keys() == {"summary", "description", "runbook_url"}


@pytest.mark.process
def test_unknown_alert_cannot_be_left_out(helm: Helm) -> None:
    with pytest.raises(RenderError, match='there is no alert "HapticNothing"'):
        helm.render(prometheusRule={"enabled": True, "disabled": ["HapticNothing"]})


@pytest.mark.process
def test_dashboard_reaches_the_sidecar_unchanged(helm: Helm) -> None:
    objects = helm.render(dashboard={"enabled": True, "annotations": {"folder": "Edge"}})
    config_map = find(objects, "ConfigMap", "-dashboard")

    assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert config_map["metadata"]["annotations"] == {"folder": "Edge"}
    assert json.loads(config_map["data"]["haptic-trio.json"]) == DASHBOARD


@pytest.mark.process
def test_traces_are_sent_where_the_values_say(helm: Helm) -> None:
    def options(**settings: Any) -> list[str]:
        workload = find(helm.render(**settings), "Deployment", f"{RELEASE}-haptic-trio-controller")
        found: list[str] = workload["spec"]["template"]["spec"]["containers"][0]["args"]
        return [one for one in found if one.startswith("--otlp")]

    assert options() == []
    assert options(controller__otlpEndpoint="http://collector:4318") == ["--otlp-endpoint=http://collector:4318"]
    with pytest.raises(RenderError, match="does not match pattern"):
        helm.render(controller__otlpEndpoint="http://user:password@collector:4318")
