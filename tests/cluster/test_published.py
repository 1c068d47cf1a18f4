"""The configuration that runs is an object of a real API server, with the rights that the chart grants."""

from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

from haptic_trio.k8s.resource import Resource
from haptic_trio.status.published import API_VERSION, file_name
from tests.cluster.workloads.client import Cluster
from tests.cluster.workloads.controllers import DURATIONS, LEASE, RULES, Site, installed

pytestmark = pytest.mark.cluster
LIMIT = 180.0
DEFINITIONS = Path(__file__).parents[2] / "chart" / "files" / "published-configuration.yaml"
CONTROLLER = {"leaderElection": {"leaseName": LEASE, **DURATIONS}, "publishConfiguration": True}
GROUP = API_VERSION.partition("/")[0]
RIGHTS = (
    {"apiGroups": [GROUP], "resources": ["publishedconfigurations"], "verbs": ["create", "get", "patch"]},
    {"apiGroups": [GROUP], "resources": ["publishedconfigurations/status"], "verbs": ["patch"]},
    {"apiGroups": [GROUP], "resources": ["publishedfiles"], "verbs": ["create", "delete", "patch"]},
)


def status_of(found: Resource | None) -> dict[str, Any]:
    return (found or {}).get("status") or {}


async def test_running_configuration_and_its_instances_are_objects_of_the_api_server(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    async def prepare(site: Site) -> None:
        site.rules = (*RULES, *RIGHTS)
        await cluster.apply(yaml.safe_load_all(DEFINITIONS.read_text()))

    with trio.fail_after(LIMIT):
        async with installed(cluster, namespace, tmp_path, prepare=prepare, instances=2, controller=CONTROLLER) as site:
            place = f"/apis/{API_VERSION}/namespaces/{namespace}"
            path = f"{place}/publishedconfigurations/haptic-trio"
            found = await cluster.wait(path, lambda found: status_of(found).get("inSync") == "2/2")
            files = await cluster.api.get(f"{place}/publishedfiles")

            assert {one["generation"] for one in found["status"]["instances"]} == {found["spec"]["generation"]}
            assert {one["metadata"]["name"] for one in files["items"]} == {
                one["object"] for one in found["spec"]["files"]
            }
            # A field that the definition does not have would be gone.
            assert found["spec"]["omittedFiles"] == []
            assert all(one.keys() >= {"name", "heldBack", "lastError"} for one in found["status"]["instances"])

            await site.apply(site.ingress("more", "more.test"))
            name = file_name("haptic-trio", "maps/path-prefix.map")
            await cluster.wait(
                f"{place}/publishedfiles/{name}", lambda file: file and "more.test" in file["spec"]["content"]
            )
            # The garbage collector deletes the files with their owner.
            await cluster.delete(found, namespace)
            await cluster.wait(f"{place}/publishedfiles/{name}", lambda file: file is None or recent(file, files))


def recent(file: Resource, former: Resource) -> bool:
    """Whether the leader has written *file* again, after the garbage collector deleted it."""
    return file["metadata"]["uid"] not in {one["metadata"]["uid"] for one in former["items"]}
