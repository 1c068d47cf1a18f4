"""Requests that the controller sends to an API server, and the check that a service account may send them."""

import msgspec

from haptic_trio.config.model import Config, StoreKind
from haptic_trio.k8s.kinds import group_of
from haptic_trio.k8s.resource import Resource
from haptic_trio.stages.config_watch import CONFIG_MAPS, SECRETS
from haptic_trio.status.gateway_versions import DEFINITIONS, NAMES
from haptic_trio.status.published import CONFIGURATIONS, FILES
from tests.chart.support.watched import stores_with_status
from tests.cluster.workloads.client import Cluster

READ = ("list", "watch")
NO_NAMESPACE = {"ingressclasses", "gatewayclasses", "namespaces"}
LEASES, EVENTS = "coordination.k8s.io/leases", "events.k8s.io/events"
SLICES = "discovery.k8s.io/endpointslices"


class Operation(msgspec.Struct, frozen=True, order=True):
    """One kind of request."""

    verb: str
    resource: str
    """Group, plural and subresource: `networking.k8s.io/ingresses/status`."""
    namespace: str = ""
    """Empty for all."""
    name: str = ""
    """Empty for any."""

    def __str__(self) -> str:
        place = f" in {self.namespace}" if self.namespace else ""
        return " ".join(filter(None, (self.verb, self.resource, self.name))) + place


def needed_operations(config: Config, release: str, namespace: str) -> list[Operation]:
    """Return all that a controller asks for that has *config*, and names after *release*, in *namespace*."""
    needed: set[Operation] = set()
    reported = {namespace}
    reported_status = stores_with_status(config)
    for name, watched in config.watched_resources.items():
        group = watched.api_version.rpartition("/")[0]
        verbs = (*READ, "get") if watched.store is StoreKind.ON_DEMAND else READ
        for place in watched.namespaces or ("",):
            resource = f"{group}/{watched.resources}"
            needed |= {Operation(verb, resource, place) for verb in verbs}
            if name in reported_status:
                needed.add(Operation("patch", f"{resource}/status", place))
            if watched.resources not in NO_NAMESPACE:
                reported.add(place)
    templating = config.templating
    if "gateway" in templating.libraries:
        definitions = f"{group_of(DEFINITIONS.api_version)}/{DEFINITIONS.plural}"
        needed |= {Operation("get", definitions, "", name) for name in NAMES}
    if "gateway" in templating.libraries and templating.extra_context.get("gatewayServices"):
        places = config.watched_resources["gateways"].namespaces or ("",)
        needed |= {Operation(verb, "/services", place) for verb in ("get", "create", "patch") for place in places}
        needed |= {Operation(verb, SLICES, place) for verb in ("create", "patch") for place in places}
    needed |= {Operation(verb, EVENTS, place) for verb in ("create", "get", "update") for place in reported}
    needed |= {
        Operation(verb, f"/{each.plural}", namespace, release) for verb in READ for each in (CONFIG_MAPS, SECRETS)
    }
    needed |= {Operation(verb, "/pods", namespace) for verb in READ}
    needed |= {Operation(verb, "/services", namespace, f"{release}-haproxy") for verb in READ}
    if template := config.instances.pod_template:
        needed |= {Operation(verb, "/pods", namespace) for verb in ("get", "create", "update", "delete")}
        needed |= {Operation(verb, "/podtemplates", namespace, template) for verb in READ}
    if config.controller.publish_configuration:
        group = group_of(CONFIGURATIONS.api_version)
        published, files = f"{group}/{CONFIGURATIONS.plural}", f"{group}/{FILES.plural}"
        needed |= {Operation(verb, published, namespace, release) for verb in ("get", "patch")}
        needed |= {
            Operation("patch", f"{published}/status", namespace, release),
            Operation("create", published, namespace),
        }
        needed |= {Operation(verb, files, namespace) for verb in ("create", "delete", "patch")}
    if config.controller.leader_election.enabled:
        lease = config.controller.leader_election.lease_name
        needed |= {Operation(verb, LEASES, namespace, lease) for verb in (*READ, "get", "update")}
        needed.add(Operation("create", LEASES, namespace))
    return sorted(needed)


async def is_allowed(cluster: Cluster, account: Resource, operation: Operation) -> bool:
    """Ask the API server whether the ServiceAccount *account* may do *operation*."""
    namespace, name = account["metadata"]["namespace"], account["metadata"]["name"]
    group, resource, *subresource = operation.resource.split("/")
    review: Resource = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{namespace}:{name}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
            "resourceAttributes": {
                "verb": operation.verb,
                "group": group,
                "resource": resource,
                "subresource": "".join(subresource),
                "namespace": operation.namespace,
                "name": operation.name,
            },
        },
    }
    answer = await cluster.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


async def denied(cluster: Cluster, account: Resource, operations: list[Operation]) -> list[Operation]:
    """Return those of *operations* that *account* may not do."""
    return [each for each in operations if not await is_allowed(cluster, account, each)]
