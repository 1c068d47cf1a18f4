"""The output of the chart equals the reviewed files, and agrees with the controller and its libraries."""

from base64 import b64decode
from typing import Any

import msgspec
import pytest
import yaml
from cryptography import x509

from haptic_trio.cli.agent import agent
from haptic_trio.cli.serve import serve
from haptic_trio.config.load import load_config
from haptic_trio.config.model import Config, DataplaneKind, WatchedResource
from haptic_trio.fleet.providers.pod_objects import METRICS_PORT, SERVING, labels_of
from haptic_trio.k8s.resource import Resource
from haptic_trio.webhook.app import PATH
from tests.chart.support.golden_files import make_text, path_of
from tests.chart.support.rendering import CHART, VALUE_SETS, WORKLOADS, Helm, find, pod_of, workloads_of
from tests.chart.support.watched import WATCHED_FILE, watched_text

pytestmark = pytest.mark.process

LONGEST_RELEASE = 53
"""Characters of a release name that helm accepts."""
LONGEST_LABEL = 63
"""Characters of the value of a label, and of the name of a Service."""
COMMANDS = {"serve": serve, "agent": agent}
OWN_CONFIGURATION = "configuration.core.haptic-trio"
DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize("values", VALUE_SETS)
def test_helm_finds_nothing_to_criticise(helm: Helm, values: str) -> None:
    helm.lint(values)


@pytest.mark.parametrize("values", VALUE_SETS)
def test_the_chart_renders_what_was_reviewed(helm: Helm, values: str) -> None:
    assert make_text(helm, values) == path_of(values).read_text(), "reviewed? then: make chart-golden"


@pytest.mark.parametrize("values", VALUE_SETS)
@pytest.mark.parametrize("settings", [{}, {"nameOverride": "n" * 63}, {"fullnameOverride": "f" * 63}])
def test_longest_names_are_short_enough_for_services_and_labels(
    helm: Helm, values: str, settings: dict[str, Any]
) -> None:
    objects = helm.render(values, release="r" * LONGEST_RELEASE, **settings)

    assert max(len(each["metadata"]["name"]) for each in objects if each["kind"] == "Service") <= LONGEST_LABEL
    for each in (*objects, *map(pod_of, workloads_of(objects))):
        assert all(len(value) <= LONGEST_LABEL for value in each["metadata"].get("labels", {}).values())


def test_the_chart_knows_what_each_library_watches() -> None:
    assert watched_text() == WATCHED_FILE.read_text(), "reviewed? then: make chart-golden"


def test_every_field_of_the_configuration_may_be_set_but_for_those_that_the_chart_sets() -> None:
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())["properties"]["config"]
    open_fields: set[str] = set()
    fields: set[str] = set()

    def compare(shape: dict[str, Any], model: Any, path: str) -> None:
        for field in msgspec.structs.fields(model):
            name = f"{path}{field.encode_name}"
            fields.add(name)
            if field.encode_name in shape["properties"]:
                open_fields.add(name)
                inner = shape["properties"][field.encode_name]
                if isinstance(inner, dict) and isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
                    compare(inner, field.type, f"{name}.")

    compare(schema, Config, "")

    assert fields - open_fields == {
        "instances.size",
        "instances.podTemplate",
        "podSelector",
        "dataplane.kind",
        "dataplane.port",
        "controller.leaderElection.leaseName",
    }


@pytest.mark.parametrize("values", VALUE_SETS)
def test_the_configuration_is_valid_and_chooses_the_chart_s_own_pods(helm: Helm, values: str) -> None:
    objects = helm.render(values)
    config = load_config(find(objects, "ConfigMap"), None).config
    (haproxy,) = [one for one in workloads_of(objects) if one["metadata"]["name"].endswith("-haproxy")]
    pod = pod_of(haproxy)
    ports = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}

    assert config.dataplane.kind is DataplaneKind.AGENT
    assert config.pod_selector.match_labels.items() <= pod["metadata"]["labels"].items()
    assert config.dataplane.port == ports["agent"]
    assert config.templating.extra_context["httpPort"] == ports["http"]
    assert config.templating.extra_context["httpsPort"] == ports["https"]
    assert config.templating.extra_context["metricsPort"] == ports.get("metrics", 0)


@pytest.mark.parametrize("values", VALUE_SETS)
def test_containers_are_given_options_that_the_program_has(helm: Helm, values: str) -> None:
    for workload in workloads_of(helm.render(values)):
        verb, *arguments = pod_of(workload)["spec"]["containers"][0]["args"]
        known = {option for parameter in COMMANDS[verb].params for option in parameter.opts}

        assert {argument.partition("=")[0] for argument in arguments} <= known


@pytest.mark.parametrize(
    ("image", "haproxy", "expected"),
    [
        ({}, {}, "haptic-trio:0.1.0"),
        ({"digest": DIGEST}, {}, f"haptic-trio@{DIGEST}"),
        ({"tag": "1", "digest": DIGEST}, {"repository": "agent"}, "agent:1"),
        ({}, {"repository": "agent"}, "agent:0.1.0"),
        ({}, {"repository": "agent", "tag": "2", "digest": DIGEST}, f"agent@{DIGEST}"),
        ({}, {"tag": "2"}, "haptic-trio:2"),
    ],
)
def test_haproxy_pods_may_have_an_image_of_their_own(
    helm: Helm, image: dict[str, str], haproxy: dict[str, str], expected: str
) -> None:
    own: dict[str, Any] = {f"image__{name}": value for name, value in image.items()}
    others = helm.render(**own)
    rendered = helm.render(**own | {f"haproxy__image__{name}": value for name, value in haproxy.items()})

    assert image_of(rendered, "demo-haptic-trio-haproxy") == expected
    assert image_of(rendered, "demo-haptic-trio-controller") == image_of(others, "demo-haptic-trio-controller")


def image_of(rendered: list[Resource], name: str) -> str:
    (workload,) = [one for one in rendered if one["kind"] in WORKLOADS and one["metadata"]["name"] == name]
    (container,) = pod_of(workload)["spec"]["containers"]
    return str(container["image"])


@pytest.mark.parametrize("values", VALUE_SETS)
def test_haproxy_pods_get_no_token_and_nothing_is_bound_to_their_account(helm: Helm, values: str) -> None:
    objects = helm.render(values)
    (pod,) = [pod_of(one)["spec"] for one in workloads_of(objects) if one["metadata"]["name"].endswith("-haproxy")]
    account = find(objects, "ServiceAccount", "-haproxy")
    bound = {subject["name"] for one in objects for subject in one.get("subjects", ())}

    assert pod["automountServiceAccountToken"] is account["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    assert bound == {find(objects, "ServiceAccount", "-controller")["metadata"]["name"]}


def test_a_fleet_is_made_from_what_the_chart_has_and_reached_through_it(helm: Helm) -> None:
    objects = helm.render("fleet")
    config = load_config(find(objects, "ConfigMap"), None).config
    template = find(objects, "PodTemplate")
    pods = {**labels_of(template), SERVING: "true"}
    service = find(objects, "Service", "-haproxy")["spec"]["selector"]
    budget = find(objects, "PodDisruptionBudget", "-haproxy")["spec"]

    assert config.instances.pod_template == template["metadata"]["name"]
    assert config.instances.size == 3
    assert service.items() <= pods.items()
    assert budget["selector"]["matchLabels"].items() <= pods.items()
    assert SERVING in service
    assert SERVING not in config.pod_selector.match_labels, "a pod that drains is deployed to"
    assert budget["minAvailable"] == 2
    ports = pod_of(template)["spec"]["containers"][0]["ports"]
    assert config.templating.extra_context["metricsPort"] in {
        one["containerPort"] for one in ports if one["name"] == METRICS_PORT
    }


def test_controller_and_agents_get_certificates_of_one_authority_by_the_names_they_ask_for(helm: Helm) -> None:
    objects = helm.render()
    certificates = {}
    for component, secret in (("haproxy", "-agent-tls"), ("controller", "-controller-tls")):
        data = {key: b64decode(value) for key, value in find(objects, "Secret", secret)["data"].items()}
        certificate = x509.load_pem_x509_certificate(data["tls.crt"])
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(data["ca.crt"]))
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        certificates[component] = names.get_values_for_type(x509.DNSName)
        assert data.keys() == {"ca.crt", "tls.crt", "tls.key"}
    options = [
        dict(argument.partition("=")[::2] for argument in pod_of(one)["spec"]["containers"][0]["args"])
        for one in objects
        if one["kind"] == "Deployment"
    ]
    asked = {name: value for one in options for name, value in one.items()}

    assert certificates["haproxy"] == [asked["--agent-server-name"]]
    assert certificates["controller"] == [asked["--allow-client"]]
    private = [b64decode(value) for one in objects if one["kind"] == "Secret" for value in one["data"].values()]
    assert sum(b"PRIVATE KEY" in value.splitlines()[0] for value in private) == 2, "the authority's key is not kept"


def test_watch_namespaces_limit_each_watch_and_change_nothing_else_of_it(helm: Helm) -> None:
    def watched(*namespaces: str) -> dict[str, WatchedResource]:
        objects = helm.render("two-namespaces", watchNamespaces=namespaces)
        return dict(load_config(find(objects, "ConfigMap"), None).config.watched_resources)

    everywhere, limited = watched(), watched("team-a", "team-b")
    cluster_scoped = {"gatewayClasses", "ingressClasses", "namespaces"}

    assert {*everywhere} == {*limited} > cluster_scoped
    for name, resource in everywhere.items():
        stays = name == "pages" or name in cluster_scoped
        expected = () if stays else ("team-a", "team-b")
        assert limited[name] == msgspec.structs.replace(resource, namespaces=expected), name


def test_what_is_reviewed_follows_from_what_is_watched_and_nothing_waits_for_it(helm: Helm) -> None:
    objects = helm.render("webhook")
    webhooks = find(objects, "ValidatingWebhookConfiguration")["webhooks"]
    service = find(objects, "Service", "-webhook")
    pod = pod_of(find(objects, "Deployment", "-controller"))
    ports = {one["name"]: one["containerPort"] for one in pod["spec"]["containers"][0]["ports"]}
    by_name = {one["name"]: one for one in webhooks}

    assert set(by_name) == {OWN_CONFIGURATION, "ingresses.networking.k8s.io", "secrets.core.haptic-trio"}
    assert {one["failurePolicy"] for one in webhooks} == {"Ignore"}
    assert {one["sideEffects"] for one in webhooks} == {"None"}
    (expression,) = by_name["secrets.core.haptic-trio"]["namespaceSelector"]["matchExpressions"]
    assert expression["values"] == ["team-a"]
    assert "matchExpressions" not in by_name["ingresses.networking.k8s.io"]["namespaceSelector"]
    for one in webhooks:
        place = one["clientConfig"]["service"]
        assert (place["name"], place["namespace"]) == (service["metadata"]["name"], "demo")
        assert place["port"] == service["spec"]["ports"][0]["port"]
        assert place["path"] == PATH
    assert service["spec"]["ports"][0]["targetPort"] in ports
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_certificate_of_the_webhook_is_for_the_name_that_the_api_server_asks_and_known_to_it(helm: Helm) -> None:
    objects = helm.render("webhook")
    data = {key: b64decode(value) for key, value in find(objects, "Secret", "-webhook-tls")["data"].items()}
    certificate = x509.load_pem_x509_certificate(data["tls.crt"])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    service = find(objects, "Service", "-webhook")["metadata"]["name"]
    webhooks = find(objects, "ValidatingWebhookConfiguration")["webhooks"]

    assert f"{service}.demo.svc" in names.get_values_for_type(x509.DNSName)
    for one in webhooks:
        authority = x509.load_pem_x509_certificate(b64decode(one["clientConfig"]["caBundle"]))
        certificate.verify_directly_issued_by(authority)


def test_certificate_of_the_webhook_may_come_from_cert_manager_or_from_elsewhere(helm: Helm) -> None:
    guard: dict[str, Any] = {"webhook__enabled": True, "webhook__clients__caSecret": "clients"}
    managed = helm.render(**guard, webhook__tls__mode="cert-manager")
    given = helm.render(
        **guard, webhook__tls={"mode": "existing", "existing": {"secret": "mine", "caBundle": "-----BEGIN…"}}
    )
    certificate = find(managed, "Certificate", "-webhook")
    made_by_manager = find(managed, "ValidatingWebhookConfiguration")
    volumes = {one["name"]: one for one in pod_of(find(given, "Deployment", "-controller"))["spec"]["volumes"]}

    place = made_by_manager["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    assert place == f"demo/{certificate['metadata']['name']}"
    assert certificate["spec"]["secretName"].endswith("-webhook-tls")
    assert not [one for one in managed + given if one["kind"] == "Secret" and "webhook" in one["metadata"]["name"]]
    assert volumes["webhook"]["secret"]["secretName"] == "mine"
    for webhook in find(given, "ValidatingWebhookConfiguration")["webhooks"]:
        assert b64decode(webhook["clientConfig"]["caBundle"]).decode() == "-----BEGIN…"


def test_without_the_webhook_nothing_of_it_is_there(helm: Helm) -> None:
    objects = helm.render()

    assert not [one for one in objects if one["kind"] == "ValidatingWebhookConfiguration"]
    assert "webhook" not in str([one for one in objects if one["kind"] != "ConfigMap"])


def test_configuration_is_reviewed_by_its_name_and_no_other_object_of_its_kind(helm: Helm) -> None:
    objects = helm.render(
        webhook__enabled=True, webhook__clients__caSecret="clients", config__templating__libraries=["base"]
    )
    (webhook,) = find(objects, "ValidatingWebhookConfiguration")["webhooks"]
    (container,) = pod_of(find(objects, "Deployment", "-controller"))["spec"]["containers"]
    (option,) = [one for one in container["args"] if one.startswith("--config-map=")]
    (condition,) = webhook["matchConditions"]

    assert webhook["name"] == OWN_CONFIGURATION
    assert webhook["rules"][0]["resources"] == ["configmaps"]
    assert webhook["failurePolicy"] == "Ignore"
    assert webhook["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "demo"}}
    assert condition["expression"] == f"request.name == '{option.partition('=')[2]}'"
