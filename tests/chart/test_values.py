"""Values of the chart: which of them it rejects, and that none of them becomes another field or object."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from haptic_trio.k8s.resource import Resource
from tests.chart.support.rendering import CHART, Helm, RenderError, find, pod_of
from tests.chart.support.schema import fields_of, texts_of
from tests.chart.support.values_table import README, readme_with_table

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("haproxy__kind", "StatefulSet", "'/haproxy/kind': value must be one of 'Deployment', 'DaemonSet', 'fleet'"),
        ("haproxy", {"kind": "fleet", "replicas": 65}, "'/haproxy/replicas': maximum: got 65, want 64"),
        (
            "haproxy",
            {"kind": "fleet", "podDisruptionBudget": {"maxUnavailable": "25%"}},
            "'/haproxy/podDisruptionBudget/maxUnavailable': got string, want integer",
        ),
        ("config__instances", {"maxAge": "24h"}, "haproxy.kind is Deployment: set that to fleet"),
        ("config__instances", {"size": 2}, "'/config/instances': additional properties 'size' not allowed"),
        ("controller__replica", 3, "'/controller': additional properties 'replica' not allowed"),
        ("controller__replicas", "two", "'/controller/replicas': got string, want integer"),
        ("haproxy__ports__http", 80, "'/haproxy/ports/http': minimum: got 80, want 1,024"),
        ("haproxy__ports__http", 8443, "haproxy.ports and haproxy.metrics: 8443 is given twice"),
        ("nameOverride", "long" * 16, "'/nameOverride': maxLength: got 64, want 63"),
        ("nameOverride", "Edge_1", "'/nameOverride': 'Edge_1' does not match pattern"),
        ("image__digest", "abc", "'/image/digest': 'abc' does not match pattern"),
        ("haproxy__image__digest", "abc", "'/haproxy/image/digest': 'abc' does not match pattern"),
        (
            "haproxy__topologySpreadConstraints",
            [{"topologyKey": "zone"}],
            "'/haproxy/topologySpreadConstraints/0': missing properties 'maxSkew', 'whenUnsatisfiable'",
        ),
        (
            "haproxy",
            {"kind": "fleet", "updateStrategy": {"rollingUpdate": {"maxSurge": 1}}},
            "'/haproxy/updateStrategy': maxProperties: got 1, want 0",
        ),
        (
            "haproxy__service__ipFamilies",
            ["IPv5"],
            "'/haproxy/service/ipFamilies/0': value must be one of 'IPv4', 'IPv6'",
        ),
        ("controller__extraEnv", [{"value": "x"}], "'/controller/extraEnv/0': missing property 'name'"),
        (
            "haproxy__extraEnvFrom",
            [{"secret": {"name": "x"}}],
            "'/haproxy/extraEnvFrom/0': additional properties 'secret' not allowed",
        ),
        ("config__podSelector", {}, "'/config': additional properties 'podSelector' not allowed"),
        ("config__dataplane", {"kind": "local"}, "'/config/dataplane': additional properties 'kind' not allowed"),
        (
            "config__templating__extraContext__httpPort",
            1,
            "extraContext.httpPort is set by the chart: see haproxy.ports",
        ),
        (
            "config__templating__libraries",
            ["nginx"],
            'there is no library "nginx", but base, gateway, haproxy-ingress-',
        ),
        ("config__watchedResources__pages", {"resources": "configmaps"}, "missing property 'apiVersion'"),
        ("config__controller__leaderElection__enabled", False, "controller.replicas must be 1"),
        ("agentTls__mode", "existing", "agentTls.existing.agentSecret is needed with agentTls.mode existing"),
        ("agentTls__mode", "none", "'/agentTls/mode': value must be one of 'generate', 'cert-manager', 'existing'"),
        ("webhook__enabled", True, "webhook.enabled requires webhook.clients.caSecret, or networkPolicy.webhookFrom"),
        (
            "webhook",
            {
                "enabled": True,
                "clients": {"caSecret": "clients"},
                "tls": {"mode": "existing", "existing": {"secret": "x"}},
            },
            "webhook.tls.existing.caBundle is needed with webhook.tls.mode existing",
        ),
        ("webhook__timeoutSeconds", 60, "'/webhook/timeoutSeconds': maximum: got 60, want 30"),
        ("serviceMonitor__interval", 30, "'/serviceMonitor/interval': got number, want string"),
        (
            "haproxy",
            {"kind": "DaemonSet", "autoscaling": {"enabled": True}},
            "haproxy.autoscaling requires haproxy.kind Deployment; it is DaemonSet",
        ),
        (
            "haproxy__autoscaling",
            {"enabled": True, "minReplicas": 11},
            "haproxy.autoscaling: minReplicas is 11, and maxReplicas is 10",
        ),
        (
            "haproxy__autoscaling",
            {"enabled": True, "targetCPUUtilizationPercentage": 0},
            "haproxy.autoscaling requires a target for CPU or memory, or an entry in metrics",
        ),
        (
            "haproxy",
            {"autoscaling": {"enabled": True}, "resources": {"requests": {"cpu": None}}},
            "a target for cpu is a percentage of haproxy.resources.requests.cpu, which is not set",
        ),
        ("haproxy__hostNetwork", True, "haproxy.hostNetwork and host ports require haproxy.kind DaemonSet"),
        ("haproxy__hostPorts__https", 443, "haproxy.hostNetwork and host ports require haproxy.kind DaemonSet"),
        (
            "haproxy__extraPorts",
            [{"name": "sql", "containerPort": 5432, "hostPort": 5432}],
            "haproxy.hostNetwork and host ports require haproxy.kind DaemonSet",
        ),
        (
            "haproxy",
            {"kind": "DaemonSet", "hostNetwork": True, "hostPorts": {"http": 80}},
            "the ports of the node are haproxy.ports then, and there can be no host ports",
        ),
        ("haproxy__dnsPolicy", "None", "haproxy.dnsPolicy None requires haproxy.dnsConfig.nameservers"),
        ("haproxy__extraPorts", [{"name": "https", "containerPort": 1}], "there is a port with the name https already"),
        ("haproxy__extraPorts", [{"name": "a", "containerPort": 8443}], "haproxy.metrics: 8443 is given twice"),
        ("haproxy__extraPorts", [{"name": "a", "containerPort": 80}], "haproxy.service has port 80 twice"),
        ("haproxy__extraServices", {"metrics": {"type": "ClusterIP"}}, "a Service with the name metrics itself"),
        ("haproxy__extraServices", {"internal": {}}, "'/haproxy/extraServices/internal': missing property 'type'"),
        (
            "haproxy__extraServices",
            {"internal": {"type": "ClusterIP", "extraPorts": ["sql"]}},
            "haproxy.extraServices.internal.extraPorts: haproxy.extraPorts has no port sql",
        ),
        (
            "haproxy__extraServices",
            {"internal": {"type": "ClusterIP", "ports": {"http": 0, "https": 0}}},
            "haproxy.extraServices.internal has no port",
        ),
        (
            "haproxy__service",
            {"type": "NodePort", "loadBalancerClass": "x"},
            "loadBalancerClass and loadBalancerSourceRanges require type LoadBalancer; it is NodePort",
        ),
        (
            "haproxy__service",
            {"type": "ClusterIP", "nodePorts": {"http": 30080}},
            "haproxy.service: nodePorts require type NodePort or LoadBalancer",
        ),
        ("haproxy__service__sessionAffinitySeconds", 60, "sessionAffinitySeconds requires sessionAffinity ClientIP"),
        ("haproxy__service__ports__http", 443, "haproxy.service has port 443 twice"),
        (
            "haproxy__service__loadBalancerSourceRanges",
            ["192.0.2.1"],
            "'/haproxy/service/loadBalancerSourceRanges/0': '192.0.2.1' does not match pattern",
        ),
        ("haproxy__terminationGracePeriodSeconds", 34, "haproxy.terminationGracePeriodSeconds must be at least 35"),
        ("haproxy__probes__liveness__httpGet", {}, "'/haproxy/probes/liveness': additional properties 'httpGet'"),
        ("controller__extraVolumes", [{"name": "tls"}], "the pod has a volume with the name tls already"),
        (
            "controller__extraContainers",
            [{"name": "controller", "image": "x"}],
            "the pod has a container with the name controller already",
        ),
        ("controller__extraContainers", [{"name": "x"}], "'/controller/extraContainers/0': missing property 'image'"),
        (
            "controller__podLabels",
            {"app.kubernetes.io/name": "x"},
            "controller.podLabels: the label app.kubernetes.io/name",
        ),
        (
            "haproxy__podLabels",
            {"haptic-trio/serving": "true"},
            "haproxy.podLabels: the label haptic-trio/serving is set by",
        ),
        ("commonLabels", {"helm.sh/chart": "x"}, "commonLabels: the label helm.sh/chart is set by the chart"),
        ("commonLabels", {"team": "a b"}, "'/commonLabels/team': 'a b' does not match pattern"),
        ("controller__console__tokenSecret", "A", "'/controller/console/tokenSecret': 'A' does not match pattern"),
        ("watchNamespaces", ["Team"], "'/watchNamespaces/0': 'Team' does not match pattern"),
        ("haproxy__autoscaling", None, "'/haproxy': missing property 'autoscaling'"),
        ("resourcesPreset", "huge", "'/resourcesPreset': value must be one of 'small', 'medium', 'large'"),
    ],
)
def test_invalid_values_are_rejected_with_their_place(helm: Helm, setting: str, value: Any, message: str) -> None:
    with pytest.raises(RenderError) as rejection:
        helm.render(**{setting: value})

    assert message in str(rejection.value)


def test_readme_has_each_value_with_its_default() -> None:
    assert readme_with_table() == README.read_text(), "run make chart-golden"


EVERYTHING: dict[str, Any] = {
    "webhook": {"enabled": True, "clients": {"caSecret": "clients"}},
    "networkPolicy": {"webhookFrom": [{}]},
    "prometheusRule": {"enabled": True},
    "serviceMonitor": {"enabled": True},
    "dashboard": {"enabled": True},
    "gatewayClass": {"enabled": True},
    "ingressClass": {"default": True},
    "controller": {"console": {"enabled": True}},
    "haproxy": {"extraServices": {"any": {"type": "LoadBalancer"}}},
}
HOSTILE = "x: [y #\n- z: \"'{{ fail `executed` }}\n---\nkind: Secret\nmetadata: {name: stolen}\n"
HARMLESS = "harmless"
# Names of things that the chart or the program has.
FIXED = {("config", "templating", "libraries"), ("prometheusRule", "disabled")}


def with_texts(folder: Path, text: str, *, without: set[tuple[str, ...]]) -> Path:
    """Write values with *text* wherever the schema has a text, and return the file."""
    values = json.loads(json.dumps(EVERYTHING))
    for path, wrap in texts_of():
        if path not in without and path[0] != "global":
            place = values
            for name in path[:-1]:
                place = place.setdefault(name, {})
            place[path[-1]] = wrap(text)
    file = folder / "values.yaml"
    file.write_text(json.dumps(values))
    return file


def comparable(resource: Resource) -> Resource:
    """Return *resource* without certificates, and with its configuration as an object."""
    if resource["kind"] == "Secret":
        return {**resource, "data": sorted(resource["data"])}
    if resource["kind"] == "ValidatingWebhookConfiguration":
        for webhook in resource["webhooks"]:
            del webhook["clientConfig"]["caBundle"]
    data = resource.get("data", {})
    return {**resource, "data": {**data, "config": yaml.safe_load(data["config"])}} if "config" in data else resource


def test_no_text_of_the_values_becomes_another_field_or_object(helm: Helm, tmp_path: Path) -> None:
    with pytest.raises(RenderError) as rejection:
        helm.render(file=with_texts(tmp_path, HOSTILE, without=FIXED))
    rejected = {path for path, _ in texts_of() if f"at '/{'/'.join(path)}" in str(rejection.value)}
    left_out = FIXED | rejected
    assert len(rejected) >= 40

    hostile = helm.render(file=with_texts(tmp_path, HOSTILE, without=left_out))
    harmless = helm.render(file=with_texts(tmp_path, HARMLESS, without=left_out), release="demo")

    shown = json.dumps([comparable(each) for each in harmless])
    expected = shown.replace(HARMLESS, json.dumps(HOSTILE)[1:-1])
    assert [comparable(each) for each in hostile] == json.loads(expected)
    assert expected.count("stolen") >= 20


def test_each_value_of_the_schema_has_a_default_but_for_optional_parts() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    # Helm itself rejects a default that the schema does not have.
    missing = {path for path, _ in fields_of() if path[0] not in {"global", "config"} and not has_value(defaults, path)}

    assert {path[-2:] for path in missing if path[-2] not in {"liveness", "readiness", "startup"}} == {
        ("service", "extraPorts"),
        ("stateVolume", "medium"),
        *(("updateStrategy", field) for field in ("type", "rollingUpdate")),
        *(("lifecycle", field) for field in ("postStart", "preStop", "stopSignal")),
        *(("behavior", field) for field in ("scaleUp", "scaleDown")),
        *(("issuerRef", field) for field in ("name", "kind", "group")),
    }


def has_value(values: Any, path: tuple[str, ...]) -> bool:
    """Return whether *values* have something at *path*."""
    return not path or (isinstance(values, dict) and path[0] in values and has_value(values[path[0]], path[1:]))


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}),
        (
            {"limits": {"memory": "3Gi", "cpu": 2}},
            {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "3Gi", "cpu": 2}},
        ),
        ({"limits": None}, {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": None}),
    ],
)
def test_resources_replace_those_of_the_preset(helm: Helm, resources: Any, expected: Any) -> None:
    controller = find(helm.render(controller__resources=resources), "Deployment", "-controller")

    assert pod_of(controller)["spec"]["containers"][0]["resources"] == expected


def test_presets_grow_and_ask_for_no_more_than_they_allow() -> None:
    presets = yaml.safe_load((CHART / "files/resources.yaml").read_text())
    units = {"Mi": 1, "Gi": 1024}
    memory = [
        [units[text[-2:]] * int(text[:-2]) for text in (one["requests"]["memory"], one["limits"]["memory"])]
        for component in ("controller", "haproxy")
        for one in (presets[name][component] for name in ("small", "medium", "large"))
    ]

    assert list(presets) == ["small", "medium", "large"]
    assert all(request <= limit for request, limit in memory)
    assert memory[:3] == sorted(memory[:3])
    assert memory[3:] == sorted(memory[3:])


def test_false_and_null_replace_fields_of_security_contexts(helm: Helm) -> None:
    objects = helm.render(
        haproxy__podSecurityContext={"runAsUser": None, "runAsNonRoot": False},
        haproxy__securityContext={"readOnlyRootFilesystem": False},
    )
    spec = pod_of(find(objects, "Deployment", "-haproxy"))["spec"]

    assert spec["securityContext"]["runAsUser"] is None
    assert spec["securityContext"]["runAsNonRoot"] is False
    assert spec["securityContext"]["runAsGroup"] == 10001
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": False,
    }


def test_a_port_of_one_service_may_have_the_number_of_a_port_of_another_one(helm: Helm) -> None:
    objects = helm.render(
        haproxy__extraPorts=[{"name": "gateway", "containerPort": 80}],
        haproxy__service__extraPorts=[],
        haproxy__extraServices={
            "gateway": {"type": "LoadBalancer", "ports": {"http": 0, "https": 0}, "extraPorts": ["gateway"]}
        },
    )

    def ports_of(suffix: str) -> list[tuple[int, str]]:
        return [(one["port"], one["targetPort"]) for one in find(objects, "Service", suffix)["spec"]["ports"]]

    assert ports_of("-haproxy") == [(80, "http"), (443, "https")]
    assert ports_of("-haproxy-gateway") == [(80, "gateway")]


def test_given_addresses_need_no_permission_for_the_service(helm: Helm) -> None:
    own: dict[str, Any] = {"watchNamespaces": ["team-a"], "controller__publishAddresses": ["edge.team.test"]}
    objects = helm.render(**own)
    args = pod_of(find(objects, "Deployment", "-controller"))["spec"]["containers"][0]["args"]
    named = [rule for one in objects for rule in one.get("rules", ()) if "demo-haptic-trio-haproxy" in str(rule)]

    assert [one for one in args if one.startswith("--publish")] == ["--publish-address=edge.team.test"]
    assert named == []


@pytest.mark.parametrize("limited", [True, False])
def test_addresses_of_nodes_need_permission_to_list_nodes_alone(helm: Helm, limited: bool) -> None:
    own: dict[str, Any] = {
        "controller__publishNodes": "external",
        **({"watchNamespaces": ["team-a"]} if limited else {}),
    }
    objects = helm.render(**own)
    args = pod_of(find(objects, "Deployment", "-controller"))["spec"]["containers"][0]["args"]
    rules = [rule for one in objects if one["kind"] == "ClusterRole" for rule in one["rules"]]
    named = [rule for one in objects for rule in one.get("rules", ()) if "demo-haptic-trio-haproxy" in str(rule)]

    assert [one for one in args if one.startswith("--publish")] == ["--publish-nodes=external"]
    assert {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]} in rules
    assert named == []


def test_a_hook_before_the_end_replaces_the_one_that_waits(helm: Helm) -> None:
    own = {"exec": {"command": ["drain"]}}
    objects = helm.render(haproxy__lifecycle={"preStop": own})

    assert pod_of(find(objects, "Deployment", "-haproxy"))["spec"]["containers"][0]["lifecycle"] == {"preStop": own}


@pytest.mark.parametrize("release", ["123", "1e3", "true"])
def test_a_release_may_have_the_name_of_a_number_or_of_a_constant(helm: Helm, release: str) -> None:
    objects = helm.render(
        release=release,
        namespace=release,
        fullnameOverride=release,
        webhook__enabled=True,
        webhook__clients__caSecret="clients",
    )

    for each in objects:
        texts = [each["metadata"]["name"], *each["metadata"]["labels"].values()]
        assert all(isinstance(text, str) for text in texts), texts
        assert all(isinstance(name, str) for rule in each.get("rules", ()) for name in rule.get("resourceNames", ()))
    pods = [pod_of(each)["spec"]["serviceAccountName"] for each in objects if each["kind"] == "Deployment"]
    webhooks = find(objects, "ValidatingWebhookConfiguration")["webhooks"]
    assert set(pods) == {f"{release}-controller", f"{release}-haproxy"}
    assert {one["clientConfig"]["service"]["namespace"] for one in webhooks} == {release}
