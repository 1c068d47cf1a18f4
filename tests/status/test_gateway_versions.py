"""The condition `SupportedVersion` of GatewayClasses, from the definitions in the cluster."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from haptic_trio.channels import Latest
from haptic_trio.k8s.client import NotFoundError
from haptic_trio.k8s.errors import ForbiddenError
from haptic_trio.k8s.resource import Resource, ResourceRef, ResourceType
from haptic_trio.status.gateway import GatewayClassStatus
from haptic_trio.status.gateway_versions import NAMES, follow_versions, version_condition
from tests.gateway.objects import CONTROLLER, gateway_class, stores_of
from tests.k8s.api.api_cluster import connected
from tests.support.api_server.server import serving

ANNOTATION = "gateway.networking.k8s.io/bundle-version"


def definition(name: str, version: str) -> Resource:
    """Return a definition; without a *version*, it has no annotation."""
    plural, _, group = name.partition(".")
    names = {"plural": plural, "kind": plural.capitalize()}
    metadata = {"name": name, "annotations": {ANNOTATION: version} if version else {}}
    spec = {"group": group, "names": names, "versions": []}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    }


@pytest.mark.parametrize("version", ["v1.6.0", "v1.6.3", "v1.6.0-rc.1"])
def test_supported_version(version: str) -> None:
    found = version_condition(dict.fromkeys(NAMES, version), 7)

    assert (found["status"], found["reason"], found["observedGeneration"]) == ("True", "SupportedVersion", 7)


@pytest.mark.parametrize(
    ("version", "shown"),
    [
        ("v1.5.1", "v1.5.1"),
        ("v1.60.0", "v1.60.0"),
        ("1.6.0", "1.6.0"),
        ("", "without a version"),
        ("v" * 5000, "v" * 64),
    ],
)
def test_one_definition_of_another_version_is_unsupported(version: str, shown: str) -> None:
    found = version_condition({**dict.fromkeys(NAMES, "v1.6.3"), NAMES[3]: version}, 1)

    assert (found["status"], found["reason"]) == ("False", "UnsupportedVersion")
    assert found["message"].startswith(f"1 of 9 definitions: {shown}; v1.6 is supported")


def test_status_of_a_class_has_the_condition_once_versions_are_known() -> None:
    one = gateway_class()
    versions = Latest[Mapping[str, str]]()
    source = GatewayClassStatus(stores_of(one), CONTROLLER, versions=lambda: versions.value or {})

    def types() -> list[tuple[str, str]]:
        status = source.wanted(one)
        assert status is not None
        return [(each["type"], each["status"]) for each in status["conditions"]]

    assert types() == [("Accepted", "True")]
    versions.put({NAMES[0]: "v1.6.1"})
    assert types() == [("Accepted", "True"), ("SupportedVersion", "True")]
    versions.put({NAMES[0]: "v1.3.0"})
    assert types() == [("Accepted", "True"), ("SupportedVersion", "False")]


async def test_versions_are_read_from_an_api_server(tmp_path: Path, nursery: trio.Nursery) -> None:
    versions = Latest[Mapping[str, str]]()
    installed = [definition(name, "v1.6.3") for name in NAMES[:2]]
    async with (
        serving(*installed, definition(NAMES[2], "")) as server,
        connected(server, tmp_path / "kubeconfig") as cluster,
    ):
        nursery.start_soon(follow_versions, cluster, versions)
        with trio.fail_after(30):
            _, found = await versions.wait_newer(0)
        nursery.cancel_scope.cancel(reason="the test is over")

    assert found == {NAMES[0]: "v1.6.3", NAMES[1]: "v1.6.3", NAMES[2]: ""}


class Definitions:
    """Definitions of one version, or a server that forbids to read them."""

    def __init__(self) -> None:
        self.version = "v1.6.0"
        self.forbids = False

    async def get(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        await trio.lowlevel.checkpoint()
        if self.forbids:
            raise ForbiddenError("GET", "403 forbidden", status=403)
        if name != NAMES[0]:
            raise NotFoundError(ResourceRef("CustomResourceDefinition", namespace, name))
        return definition(name, self.version)


async def test_versions_are_read_again_and_kept_while_they_cannot_be_read(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    server, versions = Definitions(), Latest[Mapping[str, str]]()
    server.forbids = True
    nursery.start_soon(follow_versions, server, versions)
    await trio.sleep(1000)
    assert versions.version == 0

    server.forbids = False
    await trio.sleep(1000)
    assert versions.value == {NAMES[0]: "v1.6.0"}
    assert versions.version == 1

    server.version = "v1.7.0"
    await trio.sleep(1000)
    server.forbids = True
    await trio.sleep(1000)
    assert (versions.value, versions.version) == ({NAMES[0]: "v1.7.0"}, 2)
